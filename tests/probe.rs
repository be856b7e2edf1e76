//! `ekiden probe` as a user runs it: real relays on loopback, a server of the test's own.

mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Output, Stdio};
use std::time::Duration;

use harness::{Folder, Key, Relay, ekiden, nobody, read_head, serve, server};
use serde_json::Value;

/// What the file of the test's server is long.
const LONG: usize = 12 << 20;

fn probe(arguments: &[&str]) -> Output {
    let quick = ["--count", "3", "--time", "2s", "--bytes", "24MiB"];
    ekiden().arg("probe").args(arguments).args(quick).output().expect("ekiden runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {output:?}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn candidate<'v>(report: &'v Value, name: &str) -> &'v Value {
    let all = report["candidates"].as_array().expect("candidates");
    all.iter().find(|candidate| candidate["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

/// Whether somebody wants something; a probe also connects and closes again.
fn asks(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_ok_and(|count| count > 0)
}

/// Answers one request with a file of so many bytes, so much at once, with such pauses.
fn answer(mut stream: TcpStream, length: usize, (piece, pause): (usize, Duration)) {
    if !asks(&stream) {
        return;
    }
    let head = read_head(&mut stream);
    assert!(head.starts_with("GET /file HTTP/1.1\r\n"), "{head}");
    let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let block = vec![b'x'; piece];
    for _ in 0..length / piece {
        // Enough is enough for a probe: then it closes.
        if stream.write_all(&block).is_err() {
            return;
        }
        if !pause.is_zero() {
            std::thread::park_timeout(pause);
        }
    }
}

fn fast(stream: TcpStream) {
    answer(stream, LONG, (64 << 10, Duration::ZERO));
}

/// A relay that lets this caller in, to every target, and the caller's file with it as `near`.
fn relay(caller: &Key, entrance: &str) -> (Relay, Key) {
    let key = Key::new();
    let folder = Folder::new();
    let peers = folder.write("peers", format!("{} caller\n", caller.public));
    let text = format!(
        "version = 1\nprivate_key = \"{}\"\n[[listener]]\nname = \"section\"\nbind = \"127.0.0.1:0\"\nkind = \"section\"\n\
         peers = \"{}\"\n{entrance}",
        key.file.display(),
        peers.display()
    );
    let file = folder.write("relay.toml", text);
    (Relay::run(&["-c", file.to_str().expect("text")], 1), key)
}

fn table(name: &str, address: SocketAddr, key: &str) -> String {
    format!("[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{key}\"\n")
}

/// The file of a relay that calls others.
fn caller(folder: &Folder, key: &Key, relays: &str) -> String {
    let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n";
    let text = format!("version = 1\nprivate_key = \"{}\"\n{relays}{door}", key.file.display());
    folder.write("ekiden.toml", text).to_str().expect("text").to_owned()
}

#[test]
fn a_download_is_measured_direct_and_through_every_relay() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, near_key) = relay(&own, "allow_private = true\n");
    let encrypted = table("sealed", near.address(), &near_key.public) + "encrypt = true\n";
    // The same relay under two names is one; so the second is another one.
    let (other, other_key) = relay(&own, "allow_private = true\n");
    let relays = table("near", other.address(), &other_key.public)
        + &encrypted
        + "[[path]]\nname = \"both\"\nrelays = [\"near\", \"sealed\"]\n[[route]]\npath = [\"both\", \"direct\"]\n";
    let file = caller(&folder, &own, &relays);
    let address = serve(fast);
    let output = probe(&[&format!("http://{address}/file"), "-c", &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report = json(&output);
    for name in ["direct", "via near", "via sealed"] {
        let found = candidate(&report, name);
        assert_eq!(found["error"], Value::Null, "{found:#}");
        assert!(found["bytes"].as_u64().unwrap() >= 1 << 20, "{found:#}");
        assert!(found["bytes_per_second"].as_f64().unwrap() > 1e6, "{found:#}");
        let first_byte = found["first_byte_ms"].as_f64().unwrap();
        assert!(first_byte > 0.0 && found["completion_ms"][3].as_f64().unwrap() > first_byte, "{found:#}");
        assert_eq!(found["predicted"], false);
    }
    assert_eq!(candidate(&report, "via near")["sections_ms"].as_array().unwrap().len(), 2);
    // The relay in the middle does not know the one behind it.
    let both = candidate(&report, "via both");
    assert_eq!((both["reached"].as_bool(), both["failures"].as_u64()), (Some(false), Some(3)), "{both:#}");
    assert!(text(&output.stderr).contains("real traffic: 2 s or 24MiB by each"), "{}", text(&output.stderr));
}

/// The server is slow at its IPv6 address, and the relay may only go to the other one.
#[test]
fn a_relay_that_is_faster_is_praised() {
    let Ok(slow) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) else {
        eprintln!("skipped: no IPv6 on loopback");
        return;
    };
    let port = slow.local_addr().unwrap().port();
    let quick = TcpListener::bind(("127.0.0.1", port)).expect("the same port on IPv4");
    std::thread::spawn(move || {
        for stream in slow.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream, LONG, (16 << 10, Duration::from_millis(4))));
        }
    });
    std::thread::spawn(move || {
        for stream in quick.incoming().map_while(Result::ok) {
            std::thread::spawn(move || fast(stream));
        }
    });
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\ndeny = [\"::1\"]\n");
    let file = caller(&folder, &own, &table("near", near.address(), &key.public));
    let url = format!("http://localhost:{port}/file");
    let output = probe(&[&url, "-c", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let verdict = said.replace('\n', " ");
    assert!(verdict.contains("via near is ") && verdict.contains("times as fast as direct for files of "), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let report = json(&probe(&[&url, "-c", &file, "--json"]));
    assert!(candidate(&report, "via near")["gain"][2].as_f64().unwrap() > 1.5, "{report:#}");
}

/// Each way says itself why it does not work; the others go on.
#[test]
fn errors_are_told_by_candidate() {
    let (own, stranger, folder) = (Key::new(), Key::new(), Folder::new());
    let (strict, strict_key) = relay(&own, "deny = [\"127.0.0.0/8\"]\n");
    let (other, _) = relay(&own, "allow_private = true\n");
    let (unfriendly, unfriendly_key) = relay(&stranger, "allow_private = true\n");
    let relays = [
        table("strict", strict.address(), &strict_key.public),
        table("wrongkey", other.address(), &Key::new().public),
        table("unfriendly", unfriendly.address(), &unfriendly_key.public),
        table("gone", nobody(), &Key::new().public),
    ];
    let file = caller(&folder, &own, &relays.concat());
    let address = serve(fast);
    let output = probe(&[&address.to_string(), "-c", &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "direct works");
    let report = json(&output);
    for (name, part) in [
        ("via strict", "is no target that this relay allows"),
        ("via wrongkey", "does not let us in"),
        ("via unfriendly", "does not let us in"),
        ("via gone", "gone refuses the connection"),
    ] {
        let error = candidate(&report, name)["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(part), "{name}: {error:?}");
    }
    assert_eq!(report["verdict"], "Direct is the only way that works.");

    let output = probe(&[&nobody().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("the target refuses the connection"), "{}", text(&output.stdout));
}

/// Without a file there is nothing to download: the rate is the model's, and said to be.
#[test]
fn a_bare_host_is_predicted() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\n");
    let address = serve(fast);
    let url = format!("section://{}?key={}", near.address(), key.public);
    let key_file = own.file.to_str().expect("text");
    let output = probe(&[&address.to_string(), "-F", &url, "--key", key_file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("predicted from round trips"), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    let file = caller(&folder, &own, &table("near", near.address(), &key.public));
    let report = json(&probe(&[&address.to_string(), "-c", &file, "--via", "near", "--json"]));
    let found = candidate(&report, "via near");
    assert_eq!((found["predicted"].as_bool(), found["bytes"].as_u64()), (Some(true), Some(0)), "{found:#}");

    let output = probe(&[&address.to_string(), "-c", &file, "--via", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--via nowhere: expected a relay or a path, one of near"));
}

/// Proxies of other kinds are tried as a session would use them; an HTTP proxy is asked for the file itself.
#[test]
fn proxies_are_tried_too() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0?allow_private=true"]);
    let address = serve(fast);
    for scheme in ["http", "socks5"] {
        let hop = format!("{scheme}://{}", proxy.address());
        let report = json(&probe(&[&format!("http://{address}/file"), "-F", &hop, "--json"]));
        let found = candidate(&report, &format!("via {hop}"));
        assert_eq!(found["error"], Value::Null, "{found:#}");
        assert!(found["bytes"].as_u64().unwrap() >= 1 << 20, "{found:#}");
        // Of a proxy that is asked for the file nobody knows how far it is from the server.
        let sections = found["sections_ms"].as_array().unwrap().len();
        assert_eq!(sections, if scheme == "http" { 0 } else { 2 }, "{found:#}");
    }
}

#[test]
fn an_answer_that_is_no_file_is_told() {
    let moved = serve(|mut stream| {
        if asks(&stream) {
            read_head(&mut stream);
            let _ =
                stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: https://b.example/\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let output = probe(&[&format!("http://{moved}/file")]);
    let said = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("302 and sends us to \"https://b.example/\": probe that instead"), "{said}");
}

/// Ctrl-C shows what is known by then.
#[test]
fn an_interrupted_probe_says_what_it_knows() {
    let (listener, address) = server();
    let mut child = ekiden()
        .args(["probe", &format!("http://{address}/file"), "--count", "1", "--time", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ekiden runs");
    // The first connection is the one that only connects; the second asks, and hears nothing more than a beginning.
    drop(listener.accept().expect("a connection"));
    let (mut stream, _) = listener.accept().expect("the download");
    read_head(&mut stream);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nxxx").unwrap();
    let interrupted = std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(interrupted.expect("kill runs").success());
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(said.starts_with("Interrupted; so far:") && said.contains("direct"), "{said}");
}

/// By TLS as a browser does: a certificate that the system does not trust is told, one that it trusts is fine.
#[test]
fn https_is_fetched_by_tls() {
    let folder = Folder::new();
    let (certificate, private) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-keyout"])
        .arg(&private)
        .arg("-out")
        .arg(&certificate)
        .output();
    if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        eprintln!("skipped: no openssl");
        return;
    }
    assert!(made.unwrap().status.success());
    let port = server().1.port();
    let mut nginx = match nginx(&folder, port) {
        Ok(nginx) => nginx,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    let url = format!("https://localhost:{port}/file");
    let stranger = probe(&[&url, "--json"]);
    let error = candidate(&json(&stranger), "direct")["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.starts_with("no TLS: "), "{error:?}");
    let output = ekiden().args(["probe", &url, "--json", "--count", "1"]).env("SSL_CERT_FILE", &certificate).output();
    let report = json(&output.unwrap());
    let _ = nginx.kill();
    let _ = nginx.wait();
    let direct = candidate(&report, "direct");
    assert_eq!(direct["bytes"].as_u64(), Some(2 << 20), "twice 1 MiB: {direct:#}");
}

/// nginx with a file of 1 MiB, by TLS, in the foreground.
fn nginx(folder: &Folder, port: u16) -> Result<std::process::Child, String> {
    folder.write("file", vec![b'x'; 1 << 20]);
    let here = folder.0.display();
    let config = folder.write(
        "nginx.conf",
        format!(
            "daemon off; master_process off; pid {here}/pid; error_log {here}/log; events {{}}\nhttp {{ access_log off;\n\
             client_body_temp_path {here}/b; proxy_temp_path {here}/p; fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u;\n\
             scgi_temp_path {here}/s;\nserver {{ listen 127.0.0.1:{port} ssl; listen [::1]:{port} ssl; root {here};\n\
             ssl_certificate {here}/cert.pem; ssl_certificate_key {here}/key.pem; }} }}\n"
        ),
    );
    let mut nginx = std::process::Command::new("nginx");
    nginx.arg("-c").arg(config).arg("-e").arg(folder.0.join("log")).stderr(Stdio::null());
    let child = nginx.spawn().map_err(|error| format!("no nginx: {error}"))?;
    harness::eventually("nginx to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    Ok(child)
}

/// Hints before the answer, and a file without a length; nobody says what a larger one would take that is not there.
#[test]
fn small_files_of_every_form_are_taken_whole() {
    for head in
        ["HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"]
    {
        let address = serve(move |mut stream| {
            if asks(&stream) {
                read_head(&mut stream);
                // A probe that has enough closes.
                let _ = stream.write_all(&[head.as_bytes(), &[b'x'; 300_000]].concat());
            }
        });
        let report = json(&probe(&[&format!("http://{address}/file"), "--json"]));
        let direct = candidate(&report, "direct");
        assert_eq!((&direct["error"], &direct["bytes"]), (&Value::Null, &600_000.into()), "twice: {direct:#}");
        assert!(direct["completion_ms"][1].is_number() && direct["completion_ms"][2].is_null(), "{direct:#}");
    }
}

#[test]
fn no_more_is_downloaded_than_was_said() {
    let address = serve(fast);
    let url = format!("http://{address}/file");
    let output = ekiden().args(["probe", &url, "--json", "--count", "1", "--time", "10s", "--bytes", "1MiB"]).output();
    let bytes = candidate(&json(&output.unwrap()), "direct")["bytes"].as_u64().unwrap();
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
}

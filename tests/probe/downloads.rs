//! Downloads by HTTP and HTTPS, and the verdict of the probe.

use std::io::{ErrorKind, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::fixture::*;
use super::harness::*;

#[test]
fn a_download_is_measured_direct_and_through_every_relay() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, near_key) = relay(&own, "allow_private = true\n");
    let encrypted = table("sealed", near.address(), &near_key.public) + "encrypt = true\n";
    // Two names of one relay are one candidate, so the second name needs another relay.
    let (other, other_key) = relay(&own, "allow_private = true\n");
    let relays = table("near", other.address(), &other_key.public)
        + &encrypted
        + "[[path]]\nname = \"both\"\nrelays = [\"near\", \"sealed\"]\n[[route]]\npath = [\"both\", \"direct\"]\n";
    let file = caller_config(&folder, &own, &relays);
    let address = serve(answer_fast);
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
    // The configuration of the first relay does not contain the second relay.
    let both = candidate(&report, "via both");
    assert_eq!((both["reached"].as_bool(), both["failures"].as_u64()), (Some(false), Some(3)), "{both:#}");
    assert!(text(&output.stderr).contains("real traffic of at most 2 s or 24MiB per path"), "{}", text(&output.stderr));
}

/// Error number of an address family that the kernel lacks (socket(2)).
const EAFNOSUPPORT: i32 = 97;

/// The server is slow at its IPv6 address, which direct connections prefer; the relay may use only the IPv4 address.
#[test]
fn faster_relay_is_named_in_the_verdict() {
    let port = free_port();
    let slow = match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
        // EAFNOSUPPORT has no ErrorKind.
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT) => {
            skipped("no IPv6 on loopback");
            return;
        }
        bound => bound.expect("a free port on IPv6"),
    };
    let quick = TcpListener::bind(("127.0.0.1", port)).expect("the same port on IPv4");
    std::thread::spawn(move || {
        for stream in slow.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream, LONG, 16 << 10, Duration::from_millis(4)));
        }
    });
    std::thread::spawn(move || {
        for stream in quick.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer_fast(stream));
        }
    });
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\ndeny = [\"::1\"]\n");
    let file = caller_config(&folder, &own, &table("near", near.address(), &key.public));
    let url = format!("http://localhost:{port}/file");
    let output = probe(&[&url, "-c", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let verdict = printed.replace('\n', " ");
    assert!(verdict.contains("via near is ") && verdict.contains("times as fast as direct for files of "), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let report = json(&probe(&[&url, "-c", &file, "--json"]));
    assert!(candidate(&report, "via near")["gain"][2].as_f64().unwrap() > 1.5, "{report:#}");
}

/// A response after 103 Early Hints and without a length, and a response with a length. After the download of a small
/// file, the report has no completion times of larger files.
#[test]
fn small_files_are_downloaded_completely() {
    for head in
        ["HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"]
    {
        let address = serve(move |mut stream| {
            if has_request(&stream) {
                read_head(&mut stream);
                // The probe closes when it has enough bytes.
                let _ = stream.write_all(&[head.as_bytes(), &[b'x'; 300_000]].concat());
            }
        });
        let report = json(&probe(&[&format!("http://{address}/file"), "--json"]));
        let direct = candidate(&report, "direct");
        assert_eq!((&direct["error"], &direct["bytes"]), (&Value::Null, &600_000.into()), "two downloads: {direct:#}");
        assert!(direct["completion_ms"][1].is_number() && direct["completion_ms"][2].is_null(), "{direct:#}");
    }
}

#[test]
fn byte_limit_bounds_the_download() {
    let address = serve(answer_fast);
    let url = format!("http://{address}/file");
    let output = ekiden().args(["probe", &url, "--json", "--count", "1", "--time", "10s", "--bytes", "1MiB"]).output();
    let bytes = candidate(&json(&output.unwrap()), "direct")["bytes"].as_u64().unwrap();
    assert!((1 << 20..2 << 20).contains(&bytes), "{bytes}");
}

/// As in a browser, an untrusted certificate is an error, and a certificate that the system trusts is accepted.
#[test]
fn https_download_verifies_the_certificate() {
    let folder = Folder::new();
    let (certificate, private) = (folder.0.join("cert.pem"), folder.0.join("key.pem"));
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-addext", "subjectAltName=DNS:localhost,IP:::1", "-keyout"])
        .arg(&private)
        .arg("-out")
        .arg(&certificate)
        .output();
    if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        skipped("no openssl");
        return;
    }
    assert!(made.unwrap().status.success());
    let port = free_port();
    let _nginx = match nginx(&folder, port) {
        Ok(nginx) => nginx,
        Err(reason) => {
            skipped(reason);
            return;
        }
    };
    let url = format!("https://localhost:{port}/file");
    let untrusted = probe(&[&url, "--json"]);
    let error = candidate(&json(&untrusted), "direct")["error"].as_str().unwrap_or_default().to_owned();
    assert!(error.starts_with("no TLS: "), "{error:?}");
    assert_eq!(untrusted.status.code(), Some(1), "no byte of the file arrived");
    let own = Key::new();
    let (near, key) = relay(&own, "allow_private = true\n");
    let file = caller_config(&folder, &own, &table("near", near.address(), &key.public));
    let trusting = |arguments: &[&str]| {
        let arguments = [&["probe", "--json", "--count", "1"], arguments].concat();
        json(&ekiden().args(arguments).env("SSL_CERT_FILE", &certificate).output().unwrap())
    };
    let report = trusting(&[&url, "-c", &file]);
    let direct = candidate(&report, "direct");
    assert_eq!(direct["bytes"].as_u64(), Some(2 << 20), "two downloads of 1 MiB: {direct:#}");
    // The server closes first: nginx would answer a close_notify with a reset, and the section could not be reused.
    let visits = &candidate(&report, "via near")["visits"];
    assert_eq!((&visits["bytes"], &visits["reuse"]), (&(1 << 20).into(), &true.into()), "{visits}");
    // Certificates contain IPv6 addresses without the brackets of URLs.
    let report = trusting(&[&format!("https://[::1]:{port}/file")]);
    let direct = candidate(&report, "direct");
    assert_eq!(direct["bytes"].as_u64(), Some(2 << 20), "{direct:#}");
}

/// Starts nginx in the foreground, with a file of 1 MiB over TLS. Returns the reason if nginx cannot be started.
fn nginx(folder: &Folder, port: u16) -> Result<KillOnDrop, String> {
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
    let nginx = KillOnDrop(nginx.spawn().map_err(|error| format!("no nginx: {error}"))?);
    eventually("nginx to listen", || TcpStream::connect(("127.0.0.1", port)).ok());
    Ok(nginx)
}

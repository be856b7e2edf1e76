//! Failed and interrupted probes, targets without a file, and hops that are not ekiden relays.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::Value;

use super::fixture::*;
use super::harness::*;

/// Each candidate reports its own error; the other candidates are not affected.
#[test]
fn errors_are_reported_per_candidate() {
    let (own, stranger, folder) = (Key::new(), Key::new(), Folder::new());
    let (strict, strict_key) = relay(&own, "deny = [\"127.0.0.0/8\"]\n");
    let (other, _) = relay(&own, "allow_private = true\n");
    let (unfriendly, unfriendly_key) = relay(&stranger, "allow_private = true\n");
    let relays = [
        table("strict", strict.address(), &strict_key.public),
        table("wrongkey", other.address(), &Key::new().public),
        table("unfriendly", unfriendly.address(), &unfriendly_key.public),
        table("gone", unused_address(), &Key::new().public),
    ];
    let file = caller_config(&folder, &own, &relays.concat());
    let address = serve(answer_fast);
    let output = probe(&[&address.to_string(), "-c", &file, "--json"]);
    assert_eq!(output.status.code(), Some(0), "direct works");
    let report = json(&output);
    for (name, part) in [
        ("via strict", "is not allowed by this relay"),
        ("via wrongkey", "rejects the login or the target"),
        ("via unfriendly", "rejects the login or the target"),
        ("via gone", "gone refuses the connection"),
    ] {
        let error = candidate(&report, name)["error"].as_str().unwrap_or_default().to_owned();
        assert!(error.contains(part), "{name}: {error:?}");
    }
    assert_eq!(report["verdict"], "Direct is the only path that works.");

    let output = probe(&[&unused_address().to_string()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("the target refuses the connection"), "{}", text(&output.stdout));
}

#[test]
fn redirect_is_reported_with_its_location() {
    let moved = serve(|mut stream| {
        if has_request(&stream) {
            read_head(&mut stream);
            let _ =
                stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: https://b.example/\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let output = probe(&[&format!("http://{moved}/file")]);
    let printed = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains("302 and redirects to \"https://b.example/\": probe that URL instead"), "{printed}");
}

/// After SIGINT (Ctrl-C), the probe prints the results so far.
#[test]
fn interrupted_probe_prints_partial_results() {
    let (listener, address) = server();
    let mut child = ekiden()
        .args(["probe", &format!("http://{address}/file"), "--count", "1", "--time", "1h"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ekiden runs");
    // The first connection only measures the connect time. The second connection sends a request and gets the beginning
    // of the response.
    drop(listener.accept().expect("a connection"));
    let (mut stream, _) = listener.accept().expect("the download");
    read_head(&mut stream);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nxxx").unwrap();
    let interrupted = std::process::Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(interrupted.expect("kill runs").success());
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(printed.starts_with("Interrupted; so far:") && printed.contains("direct"), "{printed}");
}

/// Without a file there is no download: the rate is calculated by the model, and is marked as a prediction.
#[test]
fn bare_host_yields_a_predicted_rate() {
    let (own, folder) = (Key::new(), Folder::new());
    let (near, key) = relay(&own, "allow_private = true\n");
    let address = serve(answer_fast);
    let url = format!("section://{}?key={}", near.address(), key.public);
    let key_file = own.file.to_str().expect("text");
    let output = probe(&[&address.to_string(), "-F", &url, "--key", key_file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("predicted from round trips"), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
    let file = caller_config(&folder, &own, &table("near", near.address(), &key.public));
    let report = json(&probe(&[&address.to_string(), "-c", &file, "--via", "near", "--json"]));
    let found = candidate(&report, "via near");
    assert_eq!((found["predicted"].as_bool(), found["bytes"].as_u64()), (Some(true), Some(0)), "{found:#}");

    let output = probe(&[&address.to_string(), "-c", &file, "--via", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--via nowhere: expected a relay or a path, one of near"));
}

/// Proxies of other kinds are used as in a session: the probe sends an HTTP proxy a request for the file.
#[test]
fn http_and_socks5_proxies_are_candidates() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0?allow_private=true"]);
    let address = serve(answer_fast);
    for scheme in ["http", "socks5"] {
        let hop = format!("{scheme}://{}", proxy.address());
        let report = json(&probe(&[&format!("http://{address}/file"), "-F", &hop, "--json"]));
        let found = candidate(&report, &format!("via {hop}"));
        assert_eq!(found["error"], Value::Null, "{found:#}");
        assert!(found["bytes"].as_u64().unwrap() >= 1 << 20, "{found:#}");
        // The round-trip time between an HTTP proxy and the server is unknown, because the proxy itself requests the
        // file.
        let sections = found["sections_ms"].as_array().unwrap().len();
        assert_eq!(sections, if scheme == "http" { 0 } else { 2 }, "{found:#}");
    }
}

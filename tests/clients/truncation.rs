//! Interrupted transfers: the receiver must be able to detect that data is missing.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::curl::proxy_option;
use super::origin;
use super::programs::{client, is_any_missing};
use super::servers::Nginx;
use crate::harness::{Folder, Relay, eventually, pattern};

/// Size of the file in bytes: more than all buffers between nginx and curl hold.
const SIZE: usize = 60_000_000;

/// Each proxy method of the relay: scheme, and `-p` for CONNECT.
const METHODS: [(&str, &str); 3] = [("http", "-S"), ("http", "-p"), ("socks5h", "-S")];

/// Starts a rate-limited curl, and waits until the response has begun to arrive.
fn slow_download(home: &Folder, method: (&str, &str), relay: SocketAddr, url: &str) -> (Child, Command) {
    let file = home.0.join(format!("{}{}", method.0, method.1));
    let mut curl = client("curl", home);
    curl.args(["-q", "-s", &proxy_option(method.0, relay), method.1, "--limit-rate", "2M", "-o"]).arg(&file).arg(url);
    let child = curl.stderr(Stdio::null()).spawn().expect("curl runs");
    eventually("the first bytes", || (length(&file) > 0).then_some(()));
    (child, curl)
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |metadata| metadata.len())
}

#[test]
fn server_failure_does_not_look_like_the_end_of_the_file() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let mut nginx = Nginx::start().with_file("file", &pattern(SIZE));
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let home = Folder::new();
    for method in METHODS {
        let (mut child, curl) = slow_download(&home, method, relay.address(), &nginx.url("file"));
        nginx.restart();
        let code = child.wait().expect("curl ends").code();
        // Exit codes of curl: 18 is a partial file, 56 a failure to receive data.
        assert!(matches!(code, Some(18 | 56)), "{curl:?}: {code:?}");
        let event = relay.closed();
        assert_eq!(event["target"], nginx.address.to_string(), "{event}");
        assert!(event["bytes_down"].as_u64() < Some(SIZE as u64), "{event}");
        if method == METHODS[0] {
            // In absolute form the relay knows the length of the complete response.
            let end = event["end"].as_str();
            assert!(matches!(end, Some("reset_by_server" | "server_lost")), "{event}");
        }
    }
}

#[test]
fn client_disconnect_ends_the_session() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start().with_file("file", &pattern(SIZE));
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let home = Folder::new();
    for method in METHODS {
        let (mut child, _) = slow_download(&home, method, relay.address(), &nginx.url("file"));
        // timeout(1) forwards the signal to curl.
        let killed = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status();
        assert!(killed.expect("kill runs").success());
        child.wait().expect("curl ends");
        let event = relay.closed();
        assert_eq!(event["end"], "reset_by_client", "{method:?}: {event}");
        assert!(event["bytes_down"].as_u64() < Some(SIZE as u64), "{event}");
    }
    // nginx logs a request when it ends: the relay has closed its connections to nginx as well.
    assert_eq!(nginx.wait_requests(3).len(), 3);
}

#[test]
fn missing_last_chunk_is_reported_as_an_error() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    for version in ["--http1.1", "-0"] {
        let url = format!("http://{origin}/broken-chunks");
        let fetched = super::curl::curl(&[&proxy_option("http", relay.address()), version, &url]);
        // A client of HTTP/1.0 gets the data without framing, and only a reset can report that data is missing.
        assert!(matches!(fetched.code, 18 | 56), "{version}: {} {}", fetched.code, fetched.err);
        let event = relay.closed();
        assert!(matches!(event["end"].as_str(), Some("reset_by_server" | "server_lost")), "{event}");
    }
}

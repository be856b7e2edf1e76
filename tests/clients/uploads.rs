//! Requests with bodies, and an upgrade to another protocol.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use super::curl::{assert_next_closed, curl, proxy_option};
use super::origin::{self, GREETING, checksum};
use super::programs::is_any_missing;
use super::servers::Nginx;
use crate::harness::{Folder, Relay, join, pattern, read_all, read_exactly, read_head};

#[test]
fn length_delimited_and_chunked_bodies_arrive_complete() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let url = format!("http://{origin}/upload?a=b");
    let (length, chunks) = ("X-Nothing: 0", "Transfer-Encoding: chunked");
    for size in [0, 1, 100_000, 5_000_000] {
        let bytes = pattern(size);
        let file = format!("@{}", folder.write("body", &bytes).display());
        for (scheme, framing) in [("http", length), ("http", chunks), ("socks5h", length), ("socks5h", chunks)] {
            let proxy = proxy_option(scheme, relay.address());
            let fetched = curl(&[&proxy, "-H", framing, "-H", "Expect:", "--data-binary", &file, &url]);
            fetched.assert_ended(0, 200);
            let response = fetched.text();
            assert!(response.starts_with("POST /upload?a=b HTTP/1.1\n"), "{response}");
            assert!(
                response.ends_with(&format!("body: {size} {}\n", checksum(&bytes))),
                "{scheme}, {framing}: {response}"
            );
            assert_eq!(response.contains("chunked"), framing == chunks, "{response}");
            let event = assert_next_closed(&mut relay, "finished", &origin.to_string(), "direct");
            assert!(event["bytes_up"].as_u64() > Some(size as u64), "{event}");
            assert_eq!(event["bytes_down"], fetched.transfers[0].bytes_down, "{event}");
        }
    }
}

#[test]
fn interim_response_100_continue_reaches_the_client() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let bytes = pattern(3_000_000);
    let file = format!("@{}", folder.write("body", &bytes).display());
    for framing in ["X-Nothing: 0", "Transfer-Encoding: chunked"] {
        let began = Instant::now();
        let patience = ["-H", "Expect: 100-continue", "--expect100-timeout", "50"];
        let url = format!("http://{origin}/");
        let proxy = proxy_option("http", relay.address());
        let arguments = [&[proxy.as_str(), "-H", framing, "--data-binary", &file], &patience[..], &[&url]].concat();
        let fetched = curl(&arguments);
        fetched.assert_ended(0, 200);
        assert!(began.elapsed() < Duration::from_secs(30), "curl timed out without 100 Continue");
        assert!(fetched.text().ends_with(&format!("body: 3000000 {}\n", checksum(&bytes))), "{}", fetched.text());
        assert!(fetched.text().contains("Expect: 100-continue"), "{}", fetched.text());
        assert_next_closed(&mut relay, "finished", &origin.to_string(), "direct");
    }
}

#[test]
fn put_requests_store_files_on_nginx() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let proxy = proxy_option("http", relay.address());
    for (size, framing) in [
        (0, "X-Nothing: 0"),
        (4_000_000, "X-Nothing: 0"),
        (4_000_000, "Transfer-Encoding: chunked"),
        (10, "Transfer-Encoding: chunked"),
    ] {
        let bytes = pattern(size);
        let file = folder.write("file", &bytes);
        let name = format!("put/{size}-{}", framing.len());
        let fetched = curl(&[&proxy, "-H", framing, "-T", &file.display().to_string(), &nginx.url(&name)]);
        fetched.assert_ended(0, 201);
        assert!(std::fs::read(nginx.path(&name)).expect("the uploaded file is there") == bytes, "{size}, {framing}");
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    }
}

/// nginx rejects a body that is too large before the body has arrived, and closes the connection.
#[test]
fn a_refusal_reaches_a_client_that_is_still_sending() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let folder = Folder::new();
    let file = folder.write("file", pattern(8_000_000)).display().to_string();
    for expect in ["Expect:", "Expect: 100-continue"] {
        let url = nginx.url("small/file");
        let fetched = curl(&[&proxy_option("http", relay.address()), "-H", expect, "-T", &file, &url]);
        assert_eq!(fetched.transfers[0].status, 413, "{expect} {}", fetched.err);
        let request = relay.next(|event| event["event"] == "request");
        assert_eq!(request["status"], 413);
        let event = relay.closed();
        assert_eq!(event["target"], nginx.address.to_string(), "{event}");
    }
}

/// After its response the relay continues to read the body: a reset would fail the client's writes, and could discard
/// the response (RFC 9112, 9.6).
#[test]
fn client_may_send_the_whole_body_before_reading_a_refusal() {
    if is_any_missing(&["nginx"]) {
        return;
    }
    let nginx = Nginx::start();
    let relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let mut client = relay.connect();
    let body = pattern(4_000_000);
    let head = format!(
        "PUT {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
        nginx.url("small/file"),
        nginx.address,
        body.len()
    );
    client.write_all(head.as_bytes()).unwrap();
    // Waits until the response has arrived, before the client sends the body.
    client.peek(&mut [0]).unwrap();
    client.write_all(&body).expect("the relay reads the body");
    let answer = read_head(&mut client);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
}

#[test]
fn upgraded_connection_becomes_a_tunnel() {
    let origin = origin::start();
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let mut client = relay.connect();
    let early = b"sent before the answer";
    let head =
        format!("GET http://{origin}/chat HTTP/1.1\r\nHost: {origin}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    client.write_all(&[head.as_bytes(), early].concat()).unwrap();
    let answer = read_head(&mut client);
    assert!(answer.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{answer}");
    let fields = answer.to_ascii_lowercase();
    assert!(fields.contains("\r\nconnection: upgrade\r\n") && fields.contains("\r\nupgrade: echo\r\n"), "{answer}");
    assert_eq!(read_exactly(&mut client, GREETING.len()), GREETING);
    assert_eq!(read_exactly(&mut client, early.len()), early);
    let bytes = pattern(5_000_000);
    let expected = bytes.clone();
    let mut sender = client.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        sender.write_all(&bytes).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
    });
    assert!(read_all(&mut client) == expected);
    join(sending);
    let request = relay.next(|event| event["event"] == "request");
    assert_eq!((&request["status"], &request["method"]), (&101.into(), &"GET".into()));
    let event = assert_next_closed(&mut relay, "finished", &origin.to_string(), "direct");
    assert!(event["bytes_up"].as_u64() > Some(5_000_000), "{event}");
}

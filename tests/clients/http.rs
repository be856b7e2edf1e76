//! curl through the HTTP proxy: absolute form and CONNECT, and responses with each kind of framing.

use std::time::UNIX_EPOCH;

use super::curl::{assert_next_closed, curl, proxy_option};
use super::origin::{self, long_answer};
use super::programs::is_any_missing;
use super::servers::Nginx;
use crate::harness::{Relay, pattern};

#[test]
fn absolute_form_and_connect_deliver_the_same_bytes() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let (small, large) = (pattern(1234), pattern(20_000_000));
    let nginx = Nginx::start().with_file("small", &small).with_file("large", &large);
    let target = format!("localhost:{}", nginx.address.port());
    for listener in ["auto", "http"] {
        let mut relay = Relay::listen(&[&format!("{listener}://127.0.0.1:0")]);
        let proxy = proxy_option("http", relay.address());
        for (name, expected) in [("small", &small), ("large", &large)] {
            let fetched = curl(&[&proxy, &nginx.named_url(name)]);
            fetched.assert_success(200, expected);
            let request = relay.next(|event| event["event"] == "request");
            let whole = (&request["method"], &request["url"], &request["status"]);
            assert_eq!(whole, (&"GET".into(), &nginx.named_url(name).into(), &200.into()));
            let event = assert_next_closed(&mut relay, "finished", &target, "direct");
            assert_eq!(event["bytes_down"], fetched.transfers[0].bytes_down, "{event}");
            assert_eq!(event["session"], request["session"]);

            let fetched = curl(&[&proxy, "-p", &nginx.named_url(name)]);
            fetched.assert_success(200, expected);
            assert_eq!(fetched.transfers[0].connect_status, 200);
            let event = assert_next_closed(&mut relay, "finished", &target, "direct");
            assert!(event["bytes_down"].as_u64() > Some(expected.len() as u64), "{event}");
            assert_eq!(event["bytes_spliced"].as_u64() > Some(1_000_000), name == "large", "{event}");
        }
    }
    // The relay adds `Via` to requests in absolute form, and not to those in a tunnel.
    for (at, line) in nginx.wait_requests(8).iter().enumerate() {
        assert_eq!(line.ends_with(r#""1.1 ekiden""#), at % 2 == 0, "{line}");
    }
}

#[test]
fn curl_fetches_https_over_connect() {
    if is_any_missing(&["curl", "nginx", "openssl"]) {
        return;
    }
    let bytes = pattern(3_000_000);
    let nginx = Nginx::with_tls().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let arguments =
        [&proxy_option("http", relay.address()), "--cacert", &nginx.certificate(), &nginx.secure_url("file")];
    let fetched = curl(&arguments);
    fetched.assert_success(200, &bytes);
    assert_eq!(fetched.transfers[0].connect_status, 200);
    let port = nginx.secure.expect("with TLS").port();
    assert_next_closed(&mut relay, "finished", &format!("localhost:{port}"), "direct");
}

#[test]
fn head_requests_and_304_responses_have_no_body() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let nginx = Nginx::start().with_file("file", &pattern(5000));
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let (proxy, url) = (proxy_option("http", relay.address()), nginx.url("file"));
    // Two requests in one run: the second request uses the connection of the first.
    let fetched = curl(&[&proxy, "-I", &url, &url]);
    assert_eq!(fetched.text().matches("Content-Length: 5000\r\n").count(), 2, "{}", fetched.text());
    let event = assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    let counted: u64 = fetched.transfers.iter().map(|transfer| transfer.bytes_down).sum();
    assert_eq!(event["bytes_down"], counted);

    let changed = std::fs::metadata(nginx.path("file")).expect("the file is there").modified().expect("a time");
    let later = changed.duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 3600;
    let date = format!("@{later}");
    let date = String::from_utf8(
        std::process::Command::new("date").args(["-u", "-R", "-d", &date]).output().expect("date runs").stdout,
    );
    let fetched = curl(&[&proxy, "-z", date.expect("a date").trim(), &url, &url]);
    assert_eq!(fetched.transfers.iter().map(|transfer| transfer.status).collect::<Vec<_>>(), [304, 304]);
    assert_eq!(fetched.body, b"");
    assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
}

#[test]
fn range_requests_return_the_requested_parts() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(400_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let (proxy, url) = (proxy_option("http", relay.address()), nginx.url("file"));
    for (range, expected) in
        [("0-0", &bytes[..1]), ("1000-299999", &bytes[1000..300_000]), ("-77", &bytes[bytes.len() - 77..])]
    {
        curl(&[&proxy, "-r", range, &url]).assert_success(206, expected);
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    }
    let fetched = curl(&[&proxy, "-r", "0-9,100-109", &url]);
    fetched.assert_ended(0, 206);
    for part in [&bytes[..10], &bytes[100..110]] {
        assert!(fetched.body.windows(10).any(|window| window == part));
    }
    curl(&[&proxy, "-r", "400000-", &url]).assert_ended(0, 416);
}

#[test]
fn chunked_and_close_delimited_responses_arrive_complete() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let origin = origin::start();
    let bytes = pattern(2_000_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let proxy = proxy_option("http", relay.address());
    for version in ["-0", "--http1.1"] {
        for url in [format!("http://{origin}/chunked"), format!("http://{origin}/close")] {
            let fetched = curl(&[&proxy, version, &url]);
            fetched.assert_success(200, &long_answer());
            let event = assert_next_closed(&mut relay, "finished", &origin.to_string(), "direct");
            assert!(event["bytes_down"].as_u64() > Some(300_000), "{event}");
        }
        // nginx compresses while sending, so the response has no Content-Length.
        let fetched = curl(&[&proxy, version, "--compressed", &nginx.url("gzip/file")]);
        fetched.assert_success(200, &bytes);
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    }
    let seen = nginx.wait_requests(2);
    assert!(seen[0].ends_with(r#""1.0 ekiden""#) && seen[1].ends_with(r#""1.1 ekiden""#), "{seen:?}");
}

#[test]
fn http_1_0_client_keeps_its_connection_on_request() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(100_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let url = nginx.url("file");
    let kept = ["-H", "Proxy-Connection: keep-alive"];
    let fetched = curl(&[&proxy_option("http", relay.address()), "-0", kept[0], kept[1], &url, &url]);
    fetched.assert_success(200, &bytes.repeat(2));
    let event = assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    let counted: u64 = fetched.transfers.iter().map(|transfer| transfer.bytes_down).sum();
    assert_eq!(event["bytes_down"], counted, "both in one session");
}

#[test]
fn server_errors_and_redirects_are_passed_on() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(999);
    let nginx = Nginx::start().with_file("here", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let proxy = proxy_option("http", relay.address());
    let fetched = curl(&[&proxy, &nginx.url("nowhere")]);
    fetched.assert_ended(0, 404);
    assert!(fetched.text().contains("nginx"), "the page is the server's: {}", fetched.text());
    assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    // The redirect leads from 127.0.0.1 to localhost; both requests are in one session.
    curl(&[&proxy, "-L", &nginx.url("moved")]).assert_success(200, &bytes);
    assert_next_closed(&mut relay, "finished", &format!("localhost:{}", nginx.address.port()), "direct");
}

#[test]
fn unsupported_upgrade_offers_are_ignored() {
    if is_any_missing(&["curl", "nginx"]) {
        return;
    }
    let bytes = pattern(100_000);
    let nginx = Nginx::start().with_file("file", &bytes);
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let (proxy, url) = (proxy_option("http", relay.address()), nginx.url("file"));
    // An offer of HTTP/2 without TLS, which the relay does not pass on, and of a protocol that nginx does not support.
    for offer in [&["--http2"][..], &["-H", "Connection: Upgrade", "-H", "Upgrade: chat"], &["-H", "TE: trailers"]] {
        let fetched = curl(&[&[proxy.as_str()], offer, &["-o", "-", "-o", "-", &url, &url]].concat());
        fetched.assert_success(200, &bytes.repeat(2));
        assert_next_closed(&mut relay, "finished", &nginx.address.to_string(), "direct");
    }
}

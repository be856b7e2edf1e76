//! Handshakes that fail, time out, or select a protocol.

use std::io::Write;
use std::net::TcpStream;

use tokio_rustls::rustls::version::TLS13;

use crate::certificate::{Certificate, has_kernel_tls};
use crate::harness::{Relay, accept, connect, eventually, is_closed, read_all, read_exactly, server};

#[test]
fn plaintext_clients_are_rejected_and_logged() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = Relay::listen(&[&certificate.listener("auto")]);
    let mut client = relay.connect();
    client.write_all(b"CONNECT example.com:443 HTTP/1.1\r\n\r\n").unwrap();
    let answer = String::from_utf8(read_all(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    let plain = relay.closed();
    let detail = "the client does not speak TLS, and this listener does: the URL of the proxy must begin with https://";
    assert_eq!((&plain["end"], &plain["detail"]), (&"bad_handshake".into(), &detail.into()));

    let mut client = relay.connect();
    client.write_all(&[5, 1, 0]).unwrap();
    assert!(is_closed(&mut client), "SOCKS without TLS is rejected");
    assert_eq!(relay.closed()["detail"], detail);
}

#[test]
fn incomplete_tls_handshake_times_out() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = certificate.relay("[timeouts]\nhandshake = \"300ms\"", "");
    let mut client = relay.connect();
    // An incomplete TLS record.
    client.write_all(&[22, 3, 1, 1, 0]).unwrap();
    assert!(is_closed(&mut client));
    let event = relay.closed();
    assert_eq!((&event["end"], &event["detail"]), (&"handshake_timeout".into(), &"no complete TLS handshake".into()));
    drop(relay.connect());
    assert_eq!(relay.closed()["end"], "left_early");
    for result in ["timed_out", "failed"] {
        let series = format!("ekiden_tls_handshakes_total{{listener=\"door\",result=\"{result}\"}}");
        assert_eq!(relay.metric(&series), Some(1), "{series}");
    }
}

/// Connections without a handshake may use one eighth of the descriptors; the oldest is closed for a new one.
#[test]
fn connections_without_handshake_are_limited_and_evicted() {
    let Some(certificate) = Certificate::new() else { return };
    // One thread accepts in the order of arrival.
    let relay = Relay::run_with_few_files(&certificate.configuration("threads = 1", ""));
    let mut silent: Vec<TcpStream> = (0..40).map(|_| relay.connect()).collect();
    assert!(is_closed(&mut silent[0]));
    let (listener, address) = server();
    let mut client = certificate.client(relay.address()).connect(address);
    client.send(b"hello");
    assert_eq!(read_exactly(&mut accept(&listener), 5), b"hello");
    let count = relay.evictions("door");
    assert!(count >= 10, "{count}");
}

#[test]
fn alpn_selects_http_1_1() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto"), &certificate.listener("socks")]);
    let selected = |listener: usize, offered: &[&str]| {
        let client = certificate.try_client(connect(relay.address_of(listener)), &[&TLS13], offered)?;
        Ok::<_, std::io::Error>(client.0.conn.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()))
    };
    assert_eq!(selected(0, &["spdy/3", "http/1.1"]).unwrap().as_deref(), Some("http/1.1"));
    assert_eq!(selected(0, &[]).unwrap(), None);
    assert_eq!(selected(1, &["http/1.1"]).unwrap(), None, "SOCKS has no ALPN name");
    let refused = selected(0, &["spdy/3"]).unwrap_err().to_string();
    assert!(refused.contains("NoApplicationProtocol"), "{refused}");
}

/// A load balancer that passes TLS through sends its PROXY header before the handshake.
#[test]
fn proxy_header_before_the_tls_handshake_is_accepted() {
    let Some(certificate) = Certificate::new() else { return };
    let mut relay = certificate.relay("", "proxy_protocol = [\"127.0.0.1\"]");
    let (listener, address) = server();
    let mut stream = relay.connect();
    stream.write_all(b"PROXY TCP4 203.0.113.9 198.51.100.1 5000 443\r\n").unwrap();
    let mut client = certificate.try_client(stream, &[&TLS13], &[]).unwrap().connect(address);
    let mut at_server = accept(&listener);
    client.send(b"hello");
    assert_eq!(read_exactly(&mut at_server, 5), b"hello");
    drop((client, at_server));
    assert_eq!(relay.closed()["client"], "203.0.113.9:5000");
}

#[test]
fn status_shows_tls_version_cipher_and_transfer() {
    let Some(certificate) = Certificate::new() else { return };
    let relay = Relay::listen(&[&certificate.listener("auto")]);
    let (listener, address) = server();
    let _client = certificate.client(relay.address()).socks5(address);
    let _at_server = accept(&listener);
    let transfer = if has_kernel_tls() { "spliced" } else { "copied" };
    let is_tunnel = |session: &serde_json::Value| session["tls"]["transfer"] == transfer;
    let session = eventually("a tunnel through the relay", || relay.sessions().into_iter().find(is_tunnel));
    let suite = session["tls"]["cipher"].as_str().unwrap();
    assert!(suite.starts_with("TLS13_"), "{suite}");
    assert_eq!(session["tls"], serde_json::json!({ "version": "1.3", "cipher": suite, "transfer": transfer }));
    // The counters are those of the client's own connection.
    assert!(session["down"]["segments_out"].as_u64() > Some(0), "{session}");
    let table = relay.status(&[]);
    assert!(table.contains("client   1.3  TLS13_AES") && table.contains(transfer), "{table}");
}

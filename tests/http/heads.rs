//! Slow and invalid request heads. A TLS ClientHello to a listener without TLS gets a TLS alert, and the log has the
//! cause.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::exchange::*;
use super::harness::*;

const SHORT_HANDSHAKE: &str = "[timeouts]\nhandshake = \"1s\"\n";

#[test]
fn byte_by_byte_messages_are_parsed() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.set_nodelay(true).unwrap();
    let request = fixture.post("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n";
    let writer = {
        let mut client = client.try_clone().unwrap();
        std::thread::spawn(move || request.as_bytes().chunks(1).for_each(|byte| send(&mut client, byte)))
    };
    let mut server = fixture.accept();
    server.set_nodelay(true).unwrap();
    assert_eq!(Head::read(&mut server).line(), "POST /form HTTP/1.1");
    assert_eq!(chunks(&mut server).0, b"hello");
    join(writer);
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let writer = std::thread::spawn(move || answer.as_bytes().chunks(1).for_each(|byte| send(&mut server, byte)));
    let head = Head::read(&mut client);
    assert_eq!((head.status(), chunks(&mut client).0.as_slice()), (200, b"ok".as_slice()));
    join(writer);
}

/// Writes a byte every 50 ms until a response arrives. Returns the elapsed time.
fn write_slowly(client: &mut TcpStream, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    for byte in bytes {
        send(client, [*byte]);
        match client.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            answered => {
                assert_eq!(answered.unwrap(), 1);
                client.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
                return began.elapsed();
            }
        }
    }
    panic!("the relay waited for a slow head");
}

/// One deadline covers all bytes of a head: otherwise a client that sends single bytes would hold a session forever.
#[test]
fn slow_heads_return_408() {
    let mut fixture = Fixture::with(SHORT_HANDSHAKE);
    let head = fixture.get("/slow").repeat(4);
    let mut client = fixture.client();
    let span = write_slowly(&mut client, &head.as_bytes()[..40]);
    assert!(span >= Duration::from_millis(900), "{span:?}");
    expect_refusal(&mut client, 408, "a slow head");
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "handshake_timeout");
    fixture.assert_not_contacted("a slow head");

    let (mut client, _server) = fixture.keep_alive_pair();
    write_slowly(&mut client, &head.as_bytes()[..40]);
    expect_refusal(&mut client, 408, "a slow second head");
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "handshake_timeout");
    fixture.assert_not_contacted("a slow second head");
}

/// A client that sends nothing possibly does not speak HTTP, so the relay sends no response.
#[test]
fn silent_client_is_closed_without_a_response() {
    let mut fixture = Fixture::with(SHORT_HANDSHAKE);
    let mut client = fixture.client();
    assert_closed(&mut client);
    let closed = fixture.relay.closed();
    assert_eq!(closed["end"], "handshake_timeout");
    assert!(closed["seconds"].as_f64().unwrap() >= 1.0, "{closed}");
}

/// Bytes that cannot become a request are refused on arrival, and not at the handshake deadline of 10 s.
#[test]
fn garbage_is_refused_at_once() {
    let mut fixture =
        Fixture::with_listener("", "kind = \"auto\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n");
    for garbage in [
        b"\x16\x04\x01\x02\x00\x01\x00\x01\xfc".as_slice(),
        b"\x00",
        b"\xff\xfe",
        b"\n",
        b" GET",
        b"{\"a\"",
        b"<html>",
        b"SSH-2.0-x\r\n",
        b"GET http://a/ HTTP/3",
        b"GET http://a/\0",
        &[b'A'; 40],
    ] {
        for listener in 0..2 {
            let mut client = connect(fixture.relay.address_of(listener));
            send(&mut client, garbage);
            expect_refusal(&mut client, 400, &String::from_utf8_lossy(garbage));
            drop(client);
            let closed = fixture.relay.closed();
            assert_eq!(closed["end"], "bad_handshake", "{garbage:?}");
            assert!(closed["seconds"].as_f64().unwrap() < 8.0, "{closed}");
        }
    }
    let mut socks = connect(fixture.relay.address_of(1));
    send(&mut socks, [5, 1, 0]);
    expect_refusal(&mut socks, 400, "SOCKS on an HTTP listener");
}

/// Regression: the handshake deadline kept running while the relay waited for a refused client to close, and the
/// closing event reported a timeout.
#[test]
fn refused_client_that_stays_open_is_not_logged_as_timeout() {
    let mut fixture = Fixture::with(SHORT_HANDSHAKE);
    let mut client = fixture.client();
    send(&mut client, "GET / HTTP/7\r\n\r\n");
    expect_refusal(&mut client, 400, "a bad head");
    let closed = fixture.relay.closed();
    assert_eq!(closed["end"], "bad_handshake", "{closed}");
    drop(client);
}

#[test]
fn half_close_within_a_head_ends_the_session() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, &fixture.get("/")[..20]);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(fixture.relay.closed()["end"], "left_early");
    fixture.assert_not_contacted("half a head");
}

/// A fatal alert, handshake_failure (RFC 8446, 6.2), in a record of TLS 1.0, which clients of every version accept.
const ALERT: [u8; 7] = [0x15, 3, 1, 0, 2, 2, 40];

/// The beginning of a ClientHello: the header of a handshake record (RFC 8446, 5.1), as all clients send it.
const CLIENT_HELLO: [u8; 11] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];

const TLS_HINT: &str = "the client speaks TLS, and this listener does not: the URL of the proxy must begin with \
                        http:// or socks5://, not https://";

#[test]
fn client_hello_gets_a_tls_alert_and_is_logged() {
    for kind in ["auto", "http", "socks"] {
        let mut relay = Relay::listen(&[&format!("{kind}://127.0.0.1:0")]);
        let mut client = relay.connect();
        send(&mut client, CLIENT_HELLO);
        assert_eq!(read_all(&mut client), ALERT, "{kind}");
        drop(client);
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["detail"]), (&"bad_handshake".into(), &TLS_HINT.into()), "{kind}");
        assert!(closed["seconds"].as_f64().unwrap() < 8.0, "the relay waited for the handshake deadline: {closed}");
    }
}

/// The first byte of a ClientHello alone is not enough to recognise TLS.
#[test]
fn split_client_hello_is_recognised_and_similar_bytes_are_not() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let mut client = relay.connect();
    send(&mut client, &CLIENT_HELLO[..1]);
    wait_read(&client);
    send(&mut client, &CLIENT_HELLO[1..]);
    assert_eq!(read_all(&mut client), ALERT);
    drop(client);
    assert_eq!(relay.closed()["detail"], TLS_HINT);
    let mut client = relay.connect();
    send(&mut client, b"\x16\x04rest\r\n\r\n");
    expect_refusal(&mut client, 400, "no TLS record");
    drop(client);
    assert_eq!(relay.closed()["detail"], "control byte");
}

/// The URL of the proxy begins with https:// instead of http://, so curl speaks TLS to the proxy.
#[test]
fn curl_reports_a_failed_tls_handshake() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0"]);
    let proxy = format!("https://{}", relay.address());
    let output = Command::new("curl").args(["-q", "-sS", "-x", &proxy, "http://192.0.2.1/"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    // curl(1): 35 is "SSL connect error. The SSL handshaking failed."
    assert_eq!(output.status.code(), Some(35), "{printed}");
    assert!(printed.contains("alert handshake failure"), "{printed}");
    assert_eq!(relay.closed()["detail"], TLS_HINT);
}

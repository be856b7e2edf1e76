//! Request smuggling (RFC 9112, 11.2): requests with ambiguous framing do not reach a server.

use std::net::TcpStream;

use crate::exchange::*;
use crate::harness::*;

/// Field lines that make the end of a message ambiguous or hide a field, and are invalid in requests and responses.
pub const AMBIGUOUS_FIELDS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 5",
    "Content-Length: 5\r\ncontent-length: 6",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 5 5",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length: 0x5",
    "Content-Length: 9223372036854775808",
    "Content-Length: 18446744073709551621",
    "Content-Length:",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked;q=1",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked\u{b}",
    "Transfer-Encoding:\r\n chunked",
    "X: folded\r\n line",
    "X: folded\r\n\tline",
    "X: bare\rContent-Length: 5",
    "X: bare\nContent-Length: 5",
    "X: bare\n",
    "X: nothing\0",
    "X\0: nothing",
    "Content-Length : 5",
    "Content-Length\t: 5",
    "Transfer-Encoding : chunked",
    " Content-Length: 5",
    "no colon",
];

/// Returns bytes that a server would parse as a second request, if it found the end of the first request too early.
fn smuggled_request(fixture: &Fixture) -> String {
    format!("0\r\n\r\n{}", fixture.get("/smuggled"))
}

/// Asserts that the relay responds only with `status` and closes, and that it does not connect to the server.
fn assert_refused(fixture: &mut Fixture, request: &str, status: u16) {
    let mut client = fixture.client();
    send(&mut client, request);
    let shown: String = request.chars().take(200).collect();
    let (_, page) = expect_refusal(&mut client, status, &shown);
    assert!(!page.contains("HTTP/1.1"), "two responses to {shown:?}: {page}");
    drop(client);
    let closed = fixture.relay.closed();
    assert_eq!(closed["end"], "bad_handshake", "{shown:?}");
    assert!(closed["detail"].is_string(), "{shown:?}");
    fixture.assert_not_contacted(&shown);
}

#[test]
fn ambiguous_framing_in_requests_is_refused() {
    let mut fixture = Fixture::new();
    for trick in AMBIGUOUS_FIELDS {
        let request = fixture.post(&format!("{trick}\r\n")) + &smuggled_request(&fixture);
        assert_refused(&mut fixture, &request, 400);
    }
}

/// The second request of a connection is checked as strictly as the first.
#[test]
fn ambiguous_framing_in_a_later_request_is_refused() {
    let mut fixture = Fixture::new();
    for trick in AMBIGUOUS_FIELDS.iter().step_by(5) {
        let mut client = fixture.client();
        send(&mut client, fixture.get("/good") + &fixture.post(&format!("{trick}\r\n")) + &smuggled_request(&fixture));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, OK);
        expect_ok(&mut client);
        expect_refusal(&mut client, 400, trick);
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "bad_handshake", "{trick:?}");
        fixture.assert_not_contacted(trick);
    }
}

#[test]
fn invalid_proxy_requests_are_refused() {
    let mut fixture = Fixture::new();
    let server = fixture.server;
    let many = "X: y\r\n".repeat(101);
    for request in [
        format!("POST http://{server}/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\nHost: {server}\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\nHost: {server}\r\nhost: other.example\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\nHost: a, b\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\n{many}\r\n"),
        format!("GET  http://{server}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1 \r\n\r\n"),
        format!("GET\thttp://{server}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://{server}/a b HTTP/1.1\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\n\n"),
        format!("GET http://{server}/ HTTP/1.2\r\n\r\n"),
        format!("GET http://{server}/ HTTP/2.0\r\n\r\n"),
        format!("GET http://{server}/\r\n\r\n"),
        format!("GET http://me:secret@{server}/ HTTP/1.1\r\n\r\n"),
        format!("GET http://{server}/#part HTTP/1.1\r\n\r\n"),
        format!("CONNECT {server} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
        format!("CONNECT {server} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ] {
        assert_refused(&mut fixture, &request, 400);
    }
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let mut fixture = Fixture::new();
    let (server, long) = (fixture.server, "y".repeat(70_000));
    for request in [
        format!("GET http://{server}/ HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\nX: {long}"),
        format!("GET http://{server}/{long} HTTP/1.1\r\n\r\n"),
    ] {
        assert_refused(&mut fixture, &request, 431);
    }
    let mut fixture = Fixture::with("[limits]\nhead = \"4KiB\"\n");
    let server = fixture.server;
    let long = "y".repeat(4096 - 40);
    assert_refused(&mut fixture, &format!("GET http://{server}/ HTTP/1.1\r\nX: {long}\r\n\r\n"), 431);
}

/// Sends a POST with this chunked body. Returns the connections of the client and, after the head, of the server.
fn post_chunks(fixture: &Fixture, body: &str) -> (TcpStream, TcpStream) {
    let mut client = fixture.client();
    send(&mut client, fixture.post("Transfer-Encoding: chunked\r\n") + body);
    let mut server = fixture.accept();
    assert_eq!(Head::read(&mut server).get("Transfer-Encoding"), Some("chunked"));
    (client, server)
}

/// Invalid chunk-size lines, chunks that are longer than their size, and invalid trailers.
pub const BAD_CHUNKS: &[&str] = &[
    "0x5\r\nhello\r\n",
    "+5\r\nhello\r\n",
    "-5\r\nhello\r\n",
    " 5\r\nhello\r\n",
    "5 \r\nhello\r\n",
    "5\nhello\r\n",
    "5\rhello\r\n",
    "5\r\nhello\n",
    "5\r\nhello!\r\n",
    "5,5\r\nhello\r\n",
    "5;a\nhello\r\n",
    "g\r\n",
    "\r\n",
    "00000000000000005\r\nhello\r\n",
    "8000000000000000\r\n",
    "ffffffffffffffff\r\n",
    "10000000000000005\r\nhello\r\n",
    "0\n\n",
    "0\r\nX : y\r\n\r\n",
    "0\r\nX: y\n\r\n",
    "0\r\n folded\r\n\r\n",
];

#[test]
fn invalid_chunks_in_a_request_are_refused() {
    let mut fixture = Fixture::new();
    for bad in BAD_CHUNKS {
        let (mut client, mut server) =
            post_chunks(&fixture, &(format!("3\r\nabc\r\n{bad}") + &smuggled_request(&fixture)));
        let (received, _) = read_remaining(&mut server);
        let received = String::from_utf8_lossy(&received);
        assert!(!received.contains("0\r\n\r\n"), "{bad:?}: the server received a complete body: {received:?}");
        assert!(!received.contains("smuggled"), "{bad:?}: {received:?}");
        let (response, _) = read_remaining(&mut client);
        let response = String::from_utf8_lossy(&response);
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 400 "), "{bad:?}: {response}");
        drop(client);
        let closed = fixture.relay.closed();
        assert_eq!(closed["end"], "bad_handshake", "{bad:?}");
        assert_eq!(closed["detail"], "malformed chunked body", "{bad:?}");
        fixture.assert_not_contacted(bad);
    }
}

#[test]
fn request_chunk_extensions_and_forbidden_trailers_are_dropped() {
    let fixture = Fixture::new();
    let body = "5;a=b;c=\"d;e\"\r\nhello\r\n00006 ; x\r\n world\r\n0;last\r\n\
                X-Sum: 1\r\nContent-Length: 3\r\nhost: other\r\nTransfer-Encoding: gzip\r\nAuthorization: x\r\n\r\n";
    let (mut client, mut server) = post_chunks(&fixture, body);
    let expected = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(String::from_utf8(read_exactly(&mut server, expected.len())).unwrap(), expected);
    send(&mut server, OK);
    expect_ok(&mut client);
    // No byte is left over: the next request follows directly.
    fixture.exchange(&mut client, &mut server, "/next");
}

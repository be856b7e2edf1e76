//! Requests that two parsers could read in two ways (RFC 9112, 11.2): none of them reaches a server.

use std::net::TcpStream;

use crate::harness::*;
use crate::talk::*;

/// Field lines that make the end of a message ambiguous, or that hide a field. Responses may not have them either.
pub const TRICKS: &[&str] = &[
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

/// Bytes that a server would take for a second request, if it found the wrong end of the first.
fn smuggled(scene: &Scene) -> String {
    format!("0\r\n\r\n{}", scene.get("/smuggled"))
}

/// The relay's only response is `status`, it closes, and no server receives a byte.
fn assert_refused(scene: &mut Scene, request: &str, status: u16) {
    let mut client = scene.client();
    say(&mut client, request);
    let shown: String = request.chars().take(200).collect();
    let (_, page) = refused(&mut client, status, &shown);
    assert!(!page.contains("HTTP/1.1"), "{shown:?} has two answers: {page}");
    drop(client);
    let closed = scene.relay.closed();
    assert_eq!(closed["end"], "bad_handshake", "{shown:?}");
    assert!(closed["detail"].is_string(), "{shown:?}");
    scene.assert_untouched(&shown);
}

#[test]
fn no_trick_reaches_a_server() {
    let mut scene = Scene::new();
    for trick in TRICKS {
        let request = scene.post(&format!("{trick}\r\n")) + &smuggled(&scene);
        assert_refused(&mut scene, &request, 400);
    }
}

/// The second request of a connection is checked as strictly as the first.
#[test]
fn no_trick_reaches_a_server_behind_a_good_request() {
    let mut scene = Scene::new();
    for trick in TRICKS.iter().step_by(5) {
        let mut client = scene.client();
        say(&mut client, scene.get("/good") + &scene.post(&format!("{trick}\r\n")) + &smuggled(&scene));
        let mut server = scene.accept();
        Head::read(&mut server);
        say(&mut server, OK);
        answered_ok(&mut client);
        refused(&mut client, 400, trick);
        drop(client);
        assert_eq!(scene.relay.closed()["end"], "bad_handshake", "{trick:?}");
        scene.assert_untouched(trick);
    }
}

#[test]
fn what_is_no_request_for_a_proxy_is_refused() {
    let mut scene = Scene::new();
    let server = scene.server;
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
        assert_refused(&mut scene, &request, 400);
    }
}

#[test]
fn heads_that_are_too_long_are_refused() {
    let mut scene = Scene::new();
    let (server, long) = (scene.server, "y".repeat(70_000));
    for request in [
        format!("GET http://{server}/ HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("GET http://{server}/ HTTP/1.1\r\nX: {long}"),
        format!("GET http://{server}/{long} HTTP/1.1\r\n\r\n"),
    ] {
        assert_refused(&mut scene, &request, 431);
    }
    let mut scene = Scene::with("[limits]\nhead = \"4KiB\"\n");
    let server = scene.server;
    let long = "y".repeat(4096 - 40);
    assert_refused(&mut scene, &format!("GET http://{server}/ HTTP/1.1\r\nX: {long}\r\n\r\n"), 431);
}

/// A POST whose chunks the server parses itself.
fn post_chunks(scene: &Scene, body: &str) -> (TcpStream, TcpStream) {
    let mut client = scene.client();
    say(&mut client, scene.post("Transfer-Encoding: chunked\r\n") + body);
    let mut server = scene.accept();
    assert_eq!(Head::read(&mut server).get("Transfer-Encoding"), Some("chunked"));
    (client, server)
}

/// Invalid chunk-size lines, and data that is longer than its size.
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
fn a_body_of_bad_chunks_never_ends_well() {
    let mut scene = Scene::new();
    for bad in BAD_CHUNKS {
        let (mut client, mut server) = post_chunks(&scene, &(format!("3\r\nabc\r\n{bad}") + &smuggled(&scene)));
        let (heard, _) = hear_out(&mut server);
        let heard = String::from_utf8_lossy(&heard);
        assert!(!heard.contains("0\r\n\r\n"), "{bad:?}: the server heard a whole body: {heard:?}");
        assert!(!heard.contains("smuggled"), "{bad:?}: {heard:?}");
        let (told, _) = hear_out(&mut client);
        let told = String::from_utf8_lossy(&told);
        assert!(told.is_empty() || told.starts_with("HTTP/1.1 400 "), "{bad:?}: {told}");
        drop(client);
        let closed = scene.relay.closed();
        assert_eq!(closed["end"], "bad_handshake", "{bad:?}");
        assert_eq!(closed["detail"], "a chunked body that is none", "{bad:?}");
        scene.assert_untouched(bad);
    }
}

#[test]
fn chunks_lose_their_extensions_and_trailers_what_must_come_first() {
    let scene = Scene::new();
    let body = "5;a=b;c=\"d;e\"\r\nhello\r\n00006 ; x\r\n world\r\n0;last\r\n\
                X-Sum: 1\r\nContent-Length: 3\r\nhost: other\r\nTransfer-Encoding: gzip\r\nAuthorization: x\r\n\r\n";
    let (mut client, mut server) = post_chunks(&scene, body);
    let expected = "5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(String::from_utf8(read_exactly(&mut server, expected.len())).unwrap(), expected);
    say(&mut server, OK);
    answered_ok(&mut client);
    // No byte is left over: the next request follows directly.
    scene.exchange(&mut client, &mut server, "/next");
}

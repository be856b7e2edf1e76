//! Responses before the end of the request: 100 Continue, refusals, and early final responses.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::harness::*;
use crate::talk::*;

/// Asserts that the server has not received a byte yet.
fn hears_nothing_yet(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let heard = stream.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::WouldBlock));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

#[test]
fn a_client_waits_for_100_continue_and_gets_it() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.post("Content-Length: 5\r\nExpect: 100-continue\r\n"));
    let mut server = scene.accept();
    assert_eq!(Head::read(&mut server).get("Expect"), Some("100-continue"));
    hears_nothing_yet(&mut client);
    say(&mut server, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n");
    let hints = Head::read(&mut client);
    assert_eq!((hints.status(), hints.get("Link"), hints.get("Connection")), (103, Some("</a.css>"), None));
    say(&mut server, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(Head::read(&mut client).status(), 100);
    hears_nothing_yet(&mut server);
    say(&mut client, "hello");
    assert_eq!(read_exactly(&mut server, 5), b"hello");
    say(&mut server, OK);
    answered_ok(&mut client);
    assert_eq!(scene.request()["status"], 200);
    scene.exchange(&mut client, &mut server, "/next");
}

/// HTTP/1.0 clients do not support interim responses (RFC 9110, 15.2).
#[test]
fn an_http_1_0_client_is_spared_interim_answers() {
    let scene = Scene::new();
    let host = scene.server;
    let mut client = scene.client();
    say(&mut client, format!("POST http://{host}/ HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, format!("HTTP/1.1 100 Continue\r\n\r\n{OK}"));
    answered_ok(&mut client);
    assert_closed(&mut client);
}

/// The client was refused and withholds its body; the relay closes the connections, because the body may or may not
/// follow.
#[test]
fn a_refused_expectation_ends_the_exchange() {
    let mut scene = Scene::new();
    for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = scene.client();
        say(&mut client, scene.post(&format!("{framing}Expect: 100-continue\r\n")));
        let mut server = scene.accept();
        Head::read(&mut server);
        say(&mut server, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno");
        let (head, body) = answer(&mut client);
        assert_eq!((head.status(), body.as_slice()), (417, b"no".as_slice()));
        assert_closed(&mut client);
        assert_closed(&mut server);
        drop(client);
        assert_eq!(scene.request()["status"], 417);
        assert_eq!(scene.relay.closed()["end"], "finished");
    }
}

/// A response after which the connection closes says so (RFC 9112, 9.6), or the client loses its next request.
#[test]
fn an_early_answer_says_that_the_connection_ends() {
    let scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.post("Content-Length: 5\r\nExpect: 100-continue\r\n"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno");
    let (head, _) = answer(&mut client);
    assert_eq!(head.get("Connection"), Some("close"), "{}", head.0);
    assert_closed(&mut client);
}

/// Writes until a write fails.
fn pour(mut client: TcpStream) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let (block, mut written) = (pattern(1 << 16), 0);
        while written < 1 << 30 {
            match client.write(&block) {
                Ok(count) => written += count as u64,
                Err(_) => break,
            }
        }
        written
    })
}

/// The server refuses a body of 1 GB after its first bytes, and closes while the client is still sending.
#[test]
fn a_refused_upload_is_stopped_and_its_answer_delivered() {
    for framing in ["Content-Length: 1073741824\r\n", "Transfer-Encoding: chunked\r\n"] {
        for staying in [true, false] {
            let mut scene = Scene::new();
            let mut client = scene.client();
            say(&mut client, scene.post(framing));
            if framing.starts_with('T') {
                say(&mut client, "40000000\r\n");
            }
            let writer = pour(client.try_clone().unwrap());
            let mut server = scene.accept();
            Head::read(&mut server);
            read_exactly(&mut server, 100_000);
            say(&mut server, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
            let server = if staying { Some(server) } else { None };
            let (head, body) = answer(&mut client);
            assert_eq!((head.status(), body.as_slice()), (413, b"big".as_slice()), "{framing}");
            assert!(join(writer) < 1 << 29, "the whole gigabyte was taken");
            drop(client);
            let closed = scene.relay.closed();
            assert_eq!(closed["end"], "finished", "{framing}");
            assert_eq!(scene.request()["status"], 413);
            if let Some(mut server) = server {
                hear_out(&mut server);
            }
        }
    }
}

/// The complete response, the end of the server's connection, and only then the rest of the request.
#[test]
fn a_server_may_answer_and_close_before_it_has_read_all() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.post("Content-Length: 10\r\n") + "hello");
    let mut server = scene.accept();
    Head::read(&mut server);
    assert_eq!(read_exactly(&mut server, 5), b"hello");
    say(&mut server, "HTTP/1.1 200 OK\r\n\r\nenough");
    server.shutdown(Shutdown::Write).unwrap();
    let head = Head::read(&mut client);
    assert_eq!((head.status(), head.get("Connection")), (200, Some("close")));
    assert_eq!(read_all(&mut client), b"enough");
    // A reused connection would take the rest for a request.
    say(&mut client, scene.get("/smuggled"));
    drop(client);
    assert_eq!(scene.relay.closed()["end"], "finished");
    hear_out(&mut server);
    scene.assert_untouched("the rest of a body");
}

/// A response may begin before the end of the request, and both continue.
#[test]
fn both_bodies_go_at_once() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, scene.post("Transfer-Encoding: chunked\r\n"));
    let mut server = scene.accept();
    Head::read(&mut server);
    say(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    Head::read(&mut client);
    for round in 0..20 {
        let chunk = format!("2\r\n{round:02}\r\n");
        say(&mut client, &chunk);
        assert_eq!(read_exactly(&mut server, chunk.len()), chunk.as_bytes());
        say(&mut server, &chunk);
        assert_eq!(read_exactly(&mut client, chunk.len()), chunk.as_bytes());
    }
    say(&mut client, "0\r\n\r\n");
    assert_eq!(read_exactly(&mut server, 5), b"0\r\n\r\n");
    say(&mut server, "0\r\n\r\n");
    assert_eq!(read_exactly(&mut client, 5), b"0\r\n\r\n");
    drop(client);
    assert_eq!(scene.relay.closed()["end"], "finished");
}

//! Responses before the end of the request: 100 Continue, refusals, and early final responses.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use crate::exchange::*;
use crate::harness::*;

/// The first response that the client gets is the server's 103, so the relay has sent no 100 of its own.
#[test]
fn expect_and_100_continue_are_forwarded() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.post("Content-Length: 5\r\nExpect: 100-continue\r\n"));
    let mut server = fixture.accept();
    assert_eq!(Head::read(&mut server).get("Expect"), Some("100-continue"));
    send(&mut server, "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x\r\n\r\n");
    let hints = Head::read(&mut client);
    assert_eq!((hints.status(), hints.get("Link"), hints.get("Connection")), (103, Some("</a.css>"), None));
    send(&mut server, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(Head::read(&mut client).status(), 100);
    send(&mut client, "hello");
    assert_eq!(read_exactly(&mut server, 5), b"hello");
    send(&mut server, OK);
    expect_ok(&mut client);
    assert_eq!(fixture.request()["status"], 200);
    fixture.exchange(&mut client, &mut server, "/next");
}

/// HTTP/1.0 clients do not support interim responses (RFC 9110, 15.2).
#[test]
fn http_1_0_client_gets_no_interim_responses() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    send(&mut client, format!("POST http://{host}/ HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, format!("HTTP/1.1 100 Continue\r\n\r\n{OK}"));
    expect_ok(&mut client);
    assert_closed(&mut client);
}

/// After the refusal the client may or may not send its body, so the relay closes both connections.
#[test]
fn refused_expectation_closes_both_connections() {
    let mut fixture = Fixture::new();
    for framing in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut client = fixture.client();
        send(&mut client, fixture.post(&format!("{framing}Expect: 100-continue\r\n")));
        let mut server = fixture.accept();
        Head::read(&mut server);
        send(&mut server, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno");
        let (head, body) = read_response(&mut client);
        assert_eq!((head.status(), body.as_slice()), (417, b"no".as_slice()));
        assert_closed(&mut client);
        assert_closed(&mut server);
        drop(client);
        assert_eq!(fixture.request()["status"], 417);
        assert_eq!(fixture.relay.closed()["end"], "finished");
    }
}

/// A response before the close of the connection has `Connection: close` (RFC 9112, 9.6): without this field, the
/// client would send a next request, which would be lost.
#[test]
fn early_response_has_connection_close() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.post("Content-Length: 5\r\nExpect: 100-continue\r\n"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno");
    let (head, _) = read_response(&mut client);
    assert_eq!(head.get("Connection"), Some("close"), "{}", head.0);
    assert_closed(&mut client);
}

/// Writes until a write fails, 1 GiB at most. The thread returns the number of written bytes.
fn write_until_failure(mut client: TcpStream) -> std::thread::JoinHandle<u64> {
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

/// The server refuses a body of 1 GiB after the first 100,000 bytes, while the client is still sending.
#[test]
fn refused_upload_is_stopped_and_its_response_delivered() {
    for framing in ["Content-Length: 1073741824\r\n", "Transfer-Encoding: chunked\r\n"] {
        for staying in [true, false] {
            let mut fixture = Fixture::new();
            let mut client = fixture.client();
            send(&mut client, fixture.post(framing));
            if framing.starts_with('T') {
                send(&mut client, "40000000\r\n");
            }
            let writer = write_until_failure(client.try_clone().unwrap());
            let mut server = fixture.accept();
            Head::read(&mut server);
            read_exactly(&mut server, 100_000);
            send(&mut server, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig");
            // Closes the server's socket if the server does not stay. The unread bytes of the body make this a reset.
            let server = staying.then_some(server);
            let (head, body) = read_response(&mut client);
            assert_eq!((head.status(), body.as_slice()), (413, b"big".as_slice()), "{framing}");
            assert!(join(writer) < 1 << 29, "the relay read the whole gigabyte");
            drop(client);
            let closed = fixture.relay.closed();
            assert_eq!(closed["end"], "finished", "{framing}");
            assert_eq!(fixture.request()["status"], 413);
            if let Some(mut server) = server {
                read_remaining(&mut server);
            }
        }
    }
}

/// The server sends the complete response and closes before the client has sent the rest of the request.
#[test]
fn early_response_of_a_closing_server_is_delivered() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.post("Content-Length: 10\r\n") + "hello");
    let mut server = fixture.accept();
    Head::read(&mut server);
    assert_eq!(read_exactly(&mut server, 5), b"hello");
    send(&mut server, "HTTP/1.1 200 OK\r\n\r\nenough");
    server.shutdown(Shutdown::Write).unwrap();
    let head = Head::read(&mut client);
    assert_eq!((head.status(), head.get("Connection")), (200, Some("close")));
    assert_eq!(read_all(&mut client), b"enough");
    // If the relay reused the client's connection, it would treat the rest of the body as a request.
    send(&mut client, fixture.get("/smuggled"));
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "finished");
    read_remaining(&mut server);
    fixture.assert_not_contacted("the rest of a body");
}

/// A response may begin before the end of the request, and both continue.
#[test]
fn both_bodies_are_forwarded_concurrently() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.post("Transfer-Encoding: chunked\r\n"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    Head::read(&mut client);
    for round in 0..20 {
        let chunk = format!("2\r\n{round:02}\r\n");
        send(&mut client, &chunk);
        assert_eq!(read_exactly(&mut server, chunk.len()), chunk.as_bytes());
        send(&mut server, &chunk);
        assert_eq!(read_exactly(&mut client, chunk.len()), chunk.as_bytes());
    }
    send(&mut client, "0\r\n\r\n");
    assert_eq!(read_exactly(&mut server, 5), b"0\r\n\r\n");
    send(&mut server, "0\r\n\r\n");
    assert_eq!(read_exactly(&mut client, 5), b"0\r\n\r\n");
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "finished");
}

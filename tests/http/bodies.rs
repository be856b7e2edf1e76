//! Bodies that end by length, by chunks or with the connection, in both directions; and responses without a body.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use socket2::SockRef;

use crate::exchange::*;
use crate::harness::*;

const LARGE: usize = 10_000_000;

/// The framing of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    /// Chunks of this size, in bytes.
    Chunks(usize),
    Close,
}

impl Framing {
    fn field(self, size: usize) -> String {
        match self {
            Self::Length => format!("Content-Length: {size}\r\n"),
            Self::Chunks(_) => "Transfer-Encoding: chunked\r\n".to_owned(),
            Self::Close => String::new(),
        }
    }

    fn send(self, stream: &mut TcpStream, body: &[u8]) {
        match self {
            Self::Length => send(stream, body),
            Self::Chunks(size) => {
                for chunk in body.chunks(size) {
                    send(stream, [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
                }
                send(stream, "0\r\n\r\n");
            }
            Self::Close => {
                send(stream, body);
                stream.shutdown(Shutdown::Write).unwrap();
            }
        }
    }

    fn receive(self, stream: &mut TcpStream, size: usize) -> Vec<u8> {
        match self {
            Self::Length => read_exactly(stream, size),
            Self::Chunks(_) => chunks(stream).0,
            Self::Close => read_all(stream),
        }
    }
}

#[test]
fn request_bodies_arrive_unchanged() {
    for framing in [Framing::Length, Framing::Chunks(1_000), Framing::Chunks(300_000), Framing::Chunks(LARGE)] {
        for size in [0, 1, 5_000, LARGE] {
            let mut fixture = Fixture::new();
            let mut client = fixture.client();
            send(&mut client, fixture.post(&framing.field(size)));
            let mut server = fixture.accept();
            assert_eq!(Head::read(&mut server).0.matches(&framing.field(size)).count(), 1);
            let writer = {
                let mut client = client.try_clone().unwrap();
                std::thread::spawn(move || framing.send(&mut client, &pattern(size)))
            };
            assert!(framing.receive(&mut server, size) == pattern(size), "{framing:?} changed {size} bytes");
            join(writer);
            send(&mut server, OK);
            expect_ok(&mut client);
            let request = fixture.request();
            assert!(request["bytes_up"].as_u64().unwrap() >= size as u64, "{request}");
            // The server's connection is usable again.
            fixture.exchange(&mut client, &mut server, "/next");
            drop(client);
            let closed = fixture.relay.closed();
            assert_eq!(closed["end"], "finished");
            let spliced = closed["bytes_spliced"].as_u64().unwrap();
            let large = size == LARGE && framing != Framing::Chunks(1_000);
            assert_eq!(spliced > 0, large, "{spliced} bytes of {size} were spliced, {framing:?}");
        }
    }
}

#[test]
fn response_bodies_arrive_unchanged() {
    for framing in
        [Framing::Length, Framing::Chunks(1_000), Framing::Chunks(300_000), Framing::Chunks(LARGE), Framing::Close]
    {
        for size in [0, 1, 5_000, LARGE] {
            let mut fixture = Fixture::new();
            let mut client = fixture.client();
            send(&mut client, fixture.get("/"));
            let mut server = fixture.accept();
            Head::read(&mut server);
            let writer = std::thread::spawn(move || {
                send(&mut server, format!("HTTP/1.1 200 OK\r\n{}\r\n", framing.field(size)));
                framing.send(&mut server, &pattern(size));
                server
            });
            let head = Head::read(&mut client);
            let close = if framing == Framing::Close { Some("close") } else { None };
            assert_eq!((head.status(), head.get("Connection")), (200, close), "{framing:?}");
            assert!(framing.receive(&mut client, size) == pattern(size), "{framing:?} changed {size} bytes");
            let mut server = join(writer);
            if framing != Framing::Close {
                fixture.exchange(&mut client, &mut server, "/next");
            }
            drop(client);
            let request = fixture.request();
            assert_eq!(request["status"], 200);
            assert!(request["bytes_down"].as_u64().unwrap() >= size as u64, "{request}");
            let closed = fixture.relay.closed();
            assert_eq!(closed["end"], "finished");
            let spliced = closed["bytes_spliced"].as_u64().unwrap();
            let large = size == LARGE && framing != Framing::Chunks(1_000);
            assert_eq!(spliced > 0, large, "{spliced} bytes of {size} were spliced, {framing:?}");
        }
    }
}

/// Regression: each chunk was a flow of its own, too short for an assessment of the receiver, so the bytes that waited
/// for a slow client had no bound.
#[test]
fn chunks_in_flight_shrink_when_the_client_slows_down() {
    const SIZE: usize = 1 << 16;
    let fixture = Fixture::new();
    let mut client = fixture.client();
    send(&mut client, fixture.get("/"));
    let mut server = fixture.accept();
    Head::read(&mut server);
    // Small buffers at both ends, so that most bytes in flight are in the relay's buffers.
    SockRef::from(&client).set_recv_buffer_size(SIZE).unwrap();
    SockRef::from(&server).set_send_buffer_size(SIZE).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        send(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let chunk = [format!("{SIZE:x}\r\n").as_bytes(), &[7_u8; SIZE], b"\r\n"].concat();
        while server.write_all(&chunk).is_ok() {
            counted.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        }
    });
    let (mut read, mut buffer) = (0_u64, vec![0; SIZE]);
    // A fast reader makes the buffers grow.
    while read < 200_000_000 {
        read += client.read(&mut buffer).unwrap() as u64;
    }
    let deadline = Instant::now() + TEST_TIMEOUT;
    let mut waiting = u64::MAX;
    // The buffers are full again after the first 4 MB.
    while read < 204_000_000 || waiting >= 1_500_000 {
        assert!(Instant::now() < deadline, "{waiting} bytes wait");
        std::thread::sleep(Duration::from_millis(5));
        read += client.read(&mut buffer).unwrap() as u64;
        waiting = written.load(Ordering::Relaxed).saturating_sub(read);
    }
    drop(client);
    join(writer);
}

/// An HTTP/1.0 client supports neither chunks nor trailers: it gets the data, and the end of the connection as the end
/// of the body.
#[test]
fn an_http_1_0_client_gets_no_chunks() {
    for size in [0, 5_000, LARGE] {
        let mut fixture = Fixture::new();
        let host = fixture.server;
        let mut client = fixture.client();
        send(&mut client, format!("GET http://{host}/old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        let mut server = fixture.accept();
        let head = Head::read(&mut server);
        assert_eq!((head.line(), head.get("Host")), ("GET /old HTTP/1.1", Some(host.to_string().as_str())));
        let writer = std::thread::spawn(move || {
            send(&mut server, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            Framing::Chunks(30_000).send(&mut server, &pattern(size));
        });
        let head = Head::read(&mut client);
        assert_eq!((head.all("Transfer-Encoding").len(), head.all("Content-Length").len()), (0, 0), "{}", head.0);
        assert_eq!(head.get("Connection"), Some("close"));
        assert!(read_all(&mut client) == pattern(size), "{size} bytes were changed");
        join(writer);
        drop(client);
        assert_eq!(fixture.relay.closed()["end"], "finished");
    }
}

#[test]
fn http_1_0_keep_alive_works_with_known_lengths() {
    let fixture = Fixture::new();
    let host = fixture.server;
    let mut client = fixture.client();
    let ask = format!("GET http://{host}/old HTTP/1.0\r\nProxy-Connection: keep-alive\r\n\r\n");
    send(&mut client, &ask);
    let mut server = fixture.accept();
    Head::read(&mut server);
    send(&mut server, OK);
    let (head, body) = read_response(&mut client);
    assert_eq!((head.get("Connection"), body.as_slice()), (Some("keep-alive"), b"ok".as_slice()));
    send(&mut client, ask.replace("Proxy-Connection: keep-alive\r\n", ""));
    Head::read(&mut server);
    send(&mut server, OK);
    let (head, _) = read_response(&mut client);
    assert_eq!(head.get("Connection"), Some("close"));
    assert_closed(&mut client);
}

/// Responses without a body may have framing fields; the connections stay usable after the head.
#[test]
fn responses_without_a_body_end_with_their_head() {
    let mut fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    let host = fixture.server;
    for (method, head, kept_length) in [
        ("HEAD", "200 OK\r\nContent-Length: 1000", true),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked", false),
        ("HEAD", "200 OK", false),
        ("HEAD", "404 Not Found\r\nContent-Length: 7", true),
        ("GET", "204 No Content", false),
        ("GET", "204 No Content\r\nContent-Length: 1000", false),
        ("GET", "304 Not Modified", false),
        ("GET", "304 Not Modified\r\nContent-Length: 1000", true),
        ("OPTIONS", "204 No Content", false),
    ] {
        send(&mut client, format!("{method} http://{host}/x HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(Head::read(&mut server).line(), format!("{method} /x HTTP/1.1"));
        send(&mut server, format!("HTTP/1.1 {head}\r\n\r\n"));
        let response = Head::read(&mut client);
        assert_eq!(response.get("Content-Length").is_some(), kept_length, "{method} {head}: {}", response.0);
        assert_eq!((response.get("Transfer-Encoding"), response.get("Connection")), (None, None), "{method} {head}");
        fixture.exchange(&mut client, &mut server, "/next");
    }
    drop(client);
    assert_eq!(fixture.relay.closed()["end"], "finished");
}

/// A head and a body that arrive together are written together: a reader of the first byte can read all bytes.
#[test]
fn small_messages_are_sent_in_one_write() {
    let fixture = Fixture::new();
    let (mut client, mut server) = fixture.keep_alive_pair();
    let waiting = |stream: &TcpStream| {
        let mut bytes = [0; 4096];
        let count = stream.peek(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    // Two writes would also arrive together in some rounds, but not in all.
    for round in 0..20 {
        let (response, end) = if round % 2 == 0 { (OK, "\r\n\r\nok") } else { (chunked, "ok\r\n0\r\n\r\n") };
        send(&mut client, fixture.get("/"));
        Head::read(&mut server);
        send(&mut server, response);
        let available = waiting(&client);
        assert!(available.ends_with(end), "{available:?}");
        expect_ok(&mut client);
    }
    for _ in 0..20 {
        send(&mut client, fixture.post("Content-Length: 5\r\n") + "hello");
        let mut server = fixture.accept();
        let available = waiting(&server);
        assert!(available.ends_with("\r\n\r\nhello"), "{available:?}");
        send(&mut server, OK);
        expect_ok(&mut client);
    }
}

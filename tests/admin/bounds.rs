//! Limits of the admin listener: connections, time and size of request heads, and readers of the stream.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::fixture::{Fixture, Snapshots, TOKEN};
use crate::harness::{
    TEST_TIMEOUT, assert_took, connect, connect_from, connections_to, eventually, read_all, read_remaining,
};

/// Limits of the relay, equal to its constants: connections, stream readers, and time and size of a request head.
const MOST_CONNECTIONS: usize = 64;
const MOST_READERS: usize = 16;
const HEAD: Duration = Duration::from_secs(10);
const HEAD_BYTES: usize = 16 << 10;

/// Regression: silent connections occupied all places until their timeout of 10 s, and other requests had to wait.
#[test]
fn silent_connections_yield_to_new_connections() {
    for fixture in [Fixture::open(), Fixture::with_token("")] {
        let authorization = format!("Authorization: Bearer {TOKEN}");
        let clients: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| connect(fixture.admin)).collect();
        let asked = Instant::now();
        assert_eq!(fixture.get("/api/sessions", &[&authorization]).status, 200);
        assert!(asked.elapsed() < HEAD, "answered only after {:?}, by the timeout", asked.elapsed());
        drop(clients);
    }
}

/// Many connections from one address must not evict a connection from another address that has sent no request yet.
#[test]
fn source_with_the_most_connections_yields_first() {
    let fixture = Fixture::open();
    let mut early = connect(fixture.admin);
    let many = 0..4 * MOST_CONNECTIONS;
    let clients: Vec<TcpStream> = many.map(|_| connect_from([127, 0, 0, 2], fixture.admin)).collect();
    let before = Instant::now();
    assert_eq!(fixture.get("/api/sessions", &[]).status, 200, "all clients have been accepted by now");
    write!(early, "GET /api/access HTTP/1.0\r\n\r\n").unwrap();
    assert!(String::from_utf8(read_remaining(&mut early).0).unwrap().starts_with("HTTP/1.0 200"));
    assert!(before.elapsed() < HEAD);
    drop(clients);
}

/// Connections whose response is being sent are not evicted.
#[test]
fn connection_limit_holds_and_active_streams_continue() {
    let fixture = Fixture::open();
    let mut readers: Vec<Snapshots> = (0..MOST_READERS).map(|_| fixture.stream()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.next()["open"], 0));
    let clients: Vec<TcpStream> = (0..4 * MOST_CONNECTIONS).map(|_| connect(fixture.admin)).collect();
    assert_eq!(fixture.get("/api/sessions", &[]).status, 200);
    // The request has evicted one more connection, and its own connection has ended.
    eventually("the end of the evicted connections", || {
        (connections_to(fixture.admin) == MOST_CONNECTIONS - 1).then_some(())
    });
    for reader in &mut readers {
        let number = reader.next()["number"].as_u64().unwrap();
        assert!(reader.next()["number"].as_u64().unwrap() > number);
    }
    drop(clients);
}

#[test]
fn connections_without_a_complete_request_are_closed() {
    let fixture = Fixture::open();
    let began = Instant::now();
    let (silent, mut slow) = (connect(fixture.admin), connect(fixture.admin));
    write!(slow, "GET /api/access HTTP/1.1\r\nHost: local").unwrap();
    for mut client in [silent, slow] {
        assert_eq!(read_remaining(&mut client).0, b"", "an incomplete head gets no response");
        assert_took(began.elapsed(), HEAD, TEST_TIMEOUT);
    }
}

#[test]
fn oversized_request_head_is_refused() {
    let fixture = Fixture::open();
    let mut client = connect(fixture.admin);
    // Exactly as many bytes as the relay reads: a close with unread bytes sends a reset, and the response may be lost.
    let begin = "GET /api/access HTTP/1.1\r\nX-Long: ";
    write!(client, "{begin}{}", "a".repeat(HEAD_BYTES - begin.len())).unwrap();
    let answer = String::from_utf8(read_all(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
}

#[test]
fn stream_readers_are_limited_and_places_are_released() {
    let fixture = Fixture::open();
    let mut readers: Vec<Snapshots> = (0..MOST_READERS).map(|_| fixture.stream()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.next()["open"], 0));
    assert_eq!(fixture.stream().status(), 503);
    let refused = fixture.get("/api/stream", &[]);
    assert!(refused.head.contains("retry-after: 10") && refused.body.contains("/api/sessions"), "{}", refused.body);
    assert_eq!(fixture.get("/api/sessions", &[]).status, 200, "other requests are still answered");
    readers.pop();
    eventually("a free place for a reader", || (fixture.stream().status() == 200).then_some(()));
}

//! Limits for clients of the admin listener: connections, time, and readers of the stream.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::harness::{PATIENCE, connect, eventually, hear_out};
use crate::scene::{Scene, Snapshots, TOKEN};

/// The constant of the relay.
const MOST_CONNECTIONS: usize = 64;
const MOST_READERS: usize = 16;
const HEAD: Duration = Duration::from_secs(10);

/// A connection from a loopback address of the test's choice.
fn connect_from(source: &str, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source.parse::<IpAddr>().unwrap(), 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Silent connections used to hold all places until their time was up, 10 s, and every other request waited as long.
#[test]
fn silent_connections_yield_to_new_ones() {
    for scene in [Scene::open(), Scene::guarded("")] {
        let authorization = format!("Authorization: Bearer {TOKEN}");
        let crowd: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| connect(scene.admin)).collect();
        let asked = Instant::now();
        assert_eq!(scene.get("/api/sessions", &[&authorization]).status, 200);
        assert!(asked.elapsed() < HEAD, "answered after {:?}, when the crowd had to go", asked.elapsed());
        drop(crowd);
    }
}

/// The source with the most connections yields first, so that a crowd cannot push out a client of another address that
/// is about to send a request.
#[test]
fn a_crowd_from_one_address_pushes_out_itself() {
    let scene = Scene::open();
    let mut early = connect(scene.admin);
    let crowd: Vec<TcpStream> = (0..4 * MOST_CONNECTIONS).map(|_| connect_from("127.0.0.2", scene.admin)).collect();
    let before = Instant::now();
    assert_eq!(scene.get("/api/sessions", &[]).status, 200, "all of the crowd has been accepted by now");
    write!(early, "GET /api/access HTTP/1.0\r\n\r\n").unwrap();
    assert!(String::from_utf8(hear_out(&mut early).0).unwrap().starts_with("HTTP/1.0 200"));
    assert!(before.elapsed() < HEAD);
    drop(crowd);
}

/// The bound holds, and a connection whose request is being answered never yields.
#[test]
fn a_crowd_is_bounded_and_cuts_off_no_answer() {
    let scene = Scene::open();
    let mut readers: Vec<Snapshots> = (0..MOST_READERS).map(|_| scene.stream()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.next()["open"], 0));
    let before = scene.relay.descriptors();
    let crowd: Vec<TcpStream> = (0..4 * MOST_CONNECTIONS).map(|_| connect(scene.admin)).collect();
    assert_eq!(scene.get("/api/sessions", &[]).status, 200);
    let open = scene.relay.descriptors();
    // One connection more may be on its way in, and a scrape of /proc takes descriptors for a moment.
    assert!(open <= before + MOST_CONNECTIONS - MOST_READERS + 4, "{open} descriptors, {before} before");
    for reader in &mut readers {
        let number = reader.next()["number"].as_u64().unwrap();
        assert!(reader.next()["number"].as_u64().unwrap() > number);
    }
    drop(crowd);
}

#[test]
fn who_says_nothing_is_let_go() {
    let scene = Scene::open();
    let mut silent = connect(scene.admin);
    let mut slow = connect(scene.admin);
    write!(slow, "GET /api/access HTTP/1.1\r\nHost: local").unwrap();
    assert_eq!(hear_out(&mut slow).0, b"", "half a head is no request");
    hear_out(&mut silent);
}

#[test]
fn a_head_without_end_is_refused() {
    let scene = Scene::open();
    let mut talker = connect(scene.admin);
    // The answer may be lost: a connection that is closed with bytes unread is reset.
    let _ = write!(talker, "GET /api/access HTTP/1.1\r\nX-Long: {}\r\n\r\n", "a".repeat(64 << 10));
    let answer = String::from_utf8(hear_out(&mut talker).0).unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[test]
fn readers_of_the_stream_are_bounded_and_places_are_given_back() {
    let scene = Scene::open();
    let mut readers: Vec<Snapshots> = (0..MOST_READERS).map(|_| scene.stream()).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.next()["open"], 0));
    assert_eq!(scene.stream().status(), 503);
    let refused = scene.get("/api/stream", &[]);
    assert!(refused.head.contains("retry-after: 10") && refused.body.contains("/api/sessions"), "{}", refused.body);
    assert_eq!(scene.get("/api/sessions", &[]).status, 200, "the others are still answered");
    readers.pop();
    eventually("a place", || (scene.stream().status() == 200).then_some(()));
}

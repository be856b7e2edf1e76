//! What clients of the admin listener can take: connections, time, places at the stream.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{PATIENCE, connect, eventually, hear_out};
use crate::scene::{Scene, Snapshots};

/// As in the relay.
const MOST_CONNECTIONS: usize = 64;
const MOST_READERS: usize = 16;

#[test]
fn connections_are_bounded_and_places_are_given_back() {
    let scene = Scene::open();
    let mut waiting: Vec<TcpStream> = (0..MOST_CONNECTIONS).map(|_| connect(scene.admin)).collect();
    let mut last = connect(scene.admin);
    write!(last, "GET /api/access HTTP/1.0\r\n\r\n").unwrap();
    // No answer can come before there is a place; without the bound it comes within milliseconds.
    last.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let silence = last.read(&mut [0]).unwrap_err();
    assert!(matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silence}");
    last.set_read_timeout(Some(PATIENCE)).unwrap();
    waiting.clear();
    assert!(String::from_utf8(hear_out(&mut last).0).unwrap().starts_with("HTTP/1.0 200"));
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

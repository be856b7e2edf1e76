//! Heads that take their time, and what is no head at all.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::*;
use crate::talk::*;

const HURRIED: &str = "[timeouts]\nhandshake = \"1s\"\n";

#[test]
fn heads_may_come_byte_by_byte() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.set_nodelay(true).unwrap();
    let request = scene.post("Transfer-Encoding: chunked\r\n") + "5\r\nhello\r\n0\r\n\r\n";
    let writer = {
        let mut client = client.try_clone().unwrap();
        std::thread::spawn(move || request.as_bytes().chunks(1).for_each(|byte| say(&mut client, byte)))
    };
    let mut server = scene.accept();
    server.set_nodelay(true).unwrap();
    assert_eq!(Head::read(&mut server).line(), "POST /form HTTP/1.1");
    assert_eq!(chunks(&mut server).0, b"hello");
    join(writer);
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let writer = std::thread::spawn(move || answer.as_bytes().chunks(1).for_each(|byte| say(&mut server, byte)));
    let head = Head::read(&mut client);
    assert_eq!((head.status(), chunks(&mut client).0.as_slice()), (200, b"ok".as_slice()));
    join(writer);
}

/// Writes a byte every 50 ms, the time it waits for an answer, until there is one.
fn drip(client: &mut TcpStream, bytes: &[u8]) -> Duration {
    let began = Instant::now();
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    for byte in bytes {
        say(client, [*byte]);
        match client.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            answered => {
                assert_eq!(answered.unwrap(), 1);
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                return began.elapsed();
            }
        }
    }
    panic!("a slow head was waited for");
}

/// The deadline is one for all bytes together, or a byte now and then would hold a session for ever.
#[test]
fn slow_heads_are_told_so() {
    let mut scene = Scene::with(HURRIED);
    let head = scene.get("/slow").repeat(4);
    let mut client = scene.client();
    let span = drip(&mut client, &head.as_bytes()[..40]);
    assert!(span >= Duration::from_millis(900), "{span:?}");
    refused(&mut client, 408, "a slow head");
    drop(client);
    assert_eq!(scene.relay.closed()["end"], "handshake_timeout");
    scene.assert_untouched("a slow head");

    let (mut client, _server) = scene.acquainted();
    drip(&mut client, &head.as_bytes()[..40]);
    refused(&mut client, 408, "a slow second head");
    drop(client);
    assert_eq!(scene.relay.closed()["end"], "handshake_timeout");
    scene.assert_untouched("a slow second head");
}

/// A client that says nothing at all may not speak HTTP.
#[test]
fn silence_is_answered_with_silence() {
    let mut scene = Scene::with(HURRIED);
    let mut client = scene.client();
    assert_closed(&mut client);
    let closed = scene.relay.closed();
    assert_eq!(closed["end"], "handshake_timeout");
    assert!(closed["seconds"].as_f64().unwrap() >= 1.0, "{closed}");
}

/// The handshake deadline of ten seconds is not waited for: what cannot become a request is refused as it comes.
#[test]
fn garbage_is_refused_at_once() {
    let mut scene = Scene::listening("", "kind = \"auto\"\n[[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n");
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
            let mut client = connect(scene.relay.address_of(listener));
            say(&mut client, garbage);
            refused(&mut client, 400, &String::from_utf8_lossy(garbage));
            drop(client);
            let closed = scene.relay.closed();
            assert_eq!(closed["end"], "bad_handshake", "{garbage:?}");
            assert!(closed["seconds"].as_f64().unwrap() < 8.0, "{closed}");
        }
    }
    let mut socks = connect(scene.relay.address_of(1));
    say(&mut socks, [5, 1, 0]);
    refused(&mut socks, 400, "SOCKS on an HTTP listener");
}

/// While the relay waits for a refused client to hang up, the handshake deadline ran on, ended that wait as its own, and
/// the event told of a timeout.
#[test]
fn a_refusal_stays_one_however_long_the_client_holds_on() {
    let mut scene = Scene::with(HURRIED);
    let mut client = scene.client();
    say(&mut client, "GET / HTTP/7\r\n\r\n");
    refused(&mut client, 400, "a bad head");
    let closed = scene.relay.closed();
    assert_eq!(closed["end"], "bad_handshake", "{closed}");
    drop(client);
}

#[test]
fn a_client_that_leaves_within_a_head_is_let_go() {
    let mut scene = Scene::new();
    let mut client = scene.client();
    say(&mut client, &scene.get("/")[..20]);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    assert_eq!(scene.relay.closed()["end"], "left_early");
    scene.assert_untouched("half a head");
}

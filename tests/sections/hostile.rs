//! Foreign protocols at a section listener, and foreign servers in place of a relay: the connection is closed and opens
//! no session.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::channel;

use serde_json::Value;

use crate::harness::*;
use crate::interceptor::*;
use crate::relays::*;
use crate::streams::*;

/// A relay that receives hostile connections, and an admitted home relay, whose sessions must continue to work.
struct Fixture {
    relay: Relay,
    home: Relay,
    site: Site,
    _home: Site,
}

impl Fixture {
    fn new() -> Self {
        let (site, home) = (Site::new(), Site::new());
        let peers = site.admit(&[(&home.key.public, "home")]);
        let relay = site.relay("[timeouts]\nhandshake = \"1s\"\n", &format!("peers = {peers:?}\n"));
        let relay_at_home = home.home(&format!("forward = [\"{}\"]\n", site.url()), AUTO);
        Self { relay, home: relay_at_home, site, _home: home }
    }

    /// Sends `words`, and FIN if `hang_up`. Checks that the relay closes the connection, with `end` in the closing event,
    /// and continues to serve the home relay.
    fn check_rejected(&mut self, words: &[u8], hang_up: bool, end: &str) {
        let mut stranger = connect(self.site.address);
        let own = stranger.local_addr().unwrap().to_string();
        // The relay may close the connection before it has read all bytes.
        let _ = stranger.write_all(words);
        if hang_up {
            let _ = stranger.shutdown(Shutdown::Write);
        }
        read_remaining(&mut stranger);
        // A client of the home relay may have had the same port; the event of its session has a `peer`.
        let of_stranger =
            |event: &Value| event["event"] == "closed" && event["client"] == own && event["peer"].is_null();
        let closed = self.relay.next(of_stranger);
        assert_eq!(closed["end"], end, "{} bytes, hang_up = {hang_up}: {closed}", words.len());
        assert_echo(&mut socks5(self.home.address(), echo_server()).unwrap());
    }
}

#[test]
fn clients_of_other_protocols_are_rejected() {
    let mut fixture = Fixture::new();
    let http: &[u8] = b"GET / HTTP/1.1\r\nHost: relay.example\r\nAccept: */*\r\n\r\n";
    let tls: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for words in [http, tls, b"SSH-2.0-OpenSSH_9.9\r\n", b"\x05\x01\x00", b"EHLO mail.example\r\n", b"\r\n"] {
        fixture.check_rejected(words, false, "bad_handshake");
        fixture.check_rejected(words, true, "bad_handshake");
    }
}

#[test]
fn noise_of_all_lengths_is_rejected() {
    let mut fixture = Fixture::new();
    fixture.check_rejected(&[], true, "left_early");
    for length in [1, 9, 10, 11, 100, 70_000] {
        fixture.check_rejected(&pattern(length), length % 2 == 0, "bad_handshake");
        fixture.check_rejected(&vec![0; length], true, "bad_handshake");
        fixture.check_rejected(&vec![0xff; length], true, "bad_handshake");
    }
}

/// Records one session of a real home relay: its hello, then its records.
fn record_session() -> (Fixture, Vec<Vec<u8>>, SocketAddr, std::net::TcpListener) {
    let fixture = Fixture::new();
    let (sender, frames) = channel();
    let middle = start_interceptor(fixture.site.address, Framed::Encrypted, move |frame| {
        let _ = sender.send(frame.clone());
        forward_unchanged(frame)
    });
    let hop = fixture.site.url_at(middle);
    let home = start(&fixture._home.write_home(&format!("forward = [\"{hop}&encrypt=true\"]\n"), AUTO));
    let (listener, target) = server();
    let mut client = socks5(home.address(), target).unwrap();
    let mut server = accept(&listener);
    exchange_messages(&mut client, &mut server);
    drop((client, server, home));
    let all: Vec<Frame> = frames.try_iter().filter(|frame| frame.direction == Direction::Up).collect();
    let session = all.iter().find(|frame| frame.number == 1).expect("an OPEN").connection;
    let words = all.into_iter().filter(|frame| frame.connection == session).map(|frame| frame.bytes).collect();
    (fixture, words, target, listener)
}

#[test]
fn truncated_oversized_and_altered_hellos_are_rejected() {
    let (mut fixture, words, ..) = record_session();
    let hello = &words[0];
    for length in [1, 9, 10, 11, hello.len() / 2, hello.len() - 1] {
        fixture.check_rejected(&hello[..length], false, "handshake_timeout");
        fixture.check_rejected(&hello[..length], true, "left_early");
    }
    // The header states the maximum length, first with fewer bytes after it, then with all of them.
    let mut endless = hello.clone();
    endless[8..10].copy_from_slice(&[0xff, 0xff]);
    fixture.check_rejected(&endless, false, "bad_handshake");
    endless.extend(pattern(65_535));
    fixture.check_rejected(&endless, false, "bad_handshake");
    // One bit of every field.
    for at in (0..10).chain((10..hello.len()).step_by(7)) {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        // With a larger length, FIN arrives before the end of the message.
        let end = if changed[8..10] > hello[8..10] { "left_early" } else { "bad_handshake" };
        fixture.check_rejected(&changed, true, end);
    }
}

/// All bytes of a session are sent again. The relay answers the hello with new keys, so the records after it do not
/// decrypt.
#[test]
fn replayed_bytes_open_no_session() {
    let (mut fixture, words, _, listener) = record_session();
    assert!(words.len() >= 3, "a hello, an OPEN and a record");
    fixture.check_rejected(&words.concat(), false, "bad_handshake");
    // The same bytes in the order of a real session: records only after the relay's hello.
    let mut stranger = connect(fixture.site.address);
    stranger.write_all(&words[0]).unwrap();
    try_read_hello(&mut stranger).expect("an answer");
    stranger.write_all(&words[1..].concat()).unwrap();
    read_remaining(&mut stranger);
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached a second time");
    assert_echo(&mut socks5(fixture.home.address(), echo_server()).unwrap());
}

/// Checks that an OPEN that `change` alters between the relays opens no session.
fn check_altered_open(change: fn(Vec<u8>) -> Vec<u8>, encrypt: bool) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let fixture = Fixture::new();
    let armed = Arc::new(AtomicBool::new(true));
    let is_armed = Arc::clone(&armed);
    let framed = if encrypt { Framed::Encrypted } else { Framed::Plain };
    let middle = start_interceptor(fixture.site.address, framed, move |frame| {
        let opening = frame.direction == Direction::Up && frame.number == 1;
        FrameAction::Send(if opening && is_armed.load(Ordering::Relaxed) { change(frame.bytes) } else { frame.bytes })
    });
    let hop = fixture.site.url_at(middle);
    let home = start(&fixture._home.write_home(&format!("forward = [\"{hop}&encrypt={encrypt}\"]\n"), AUTO));
    let (listener, target) = server();
    assert_eq!(socks5(home.address(), target).map(|_| ()), Err(1));
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "the target was reached");
    armed.store(false, Ordering::Relaxed);
    assert_echo(&mut socks5(home.address(), echo_server()).unwrap());
}

#[test]
fn altered_open_opens_no_session() {
    let changes: [fn(Vec<u8>) -> Vec<u8>; 6] = [
        |_| b"GET / HTTP/1.1\r\nHost: relay.example\r\n\r\n".to_vec(),
        |record| [&record[..2], &vec![7; record.len() - 2]].concat(),
        |mut record| {
            record[2] ^= 1;
            record
        },
        |mut record| {
            *record.last_mut().unwrap() ^= 0x80;
            record
        },
        |_| vec![0, 0],
        |_| vec![0, 15].into_iter().chain([9; 15]).collect(),
    ];
    for change in changes {
        check_altered_open(change, false);
        check_altered_open(change, true);
    }
}

/// Runs a session through a section hop whose address is served by `handle`. Returns the SOCKS reply code and `end` of
/// the closing event.
fn session_through_hop(handle: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> (u8, String) {
    let (meant, home) = (Site::new(), Site::new());
    let settings = meant.table_at(serve(handle), "meant", "") + &route_all_through("way", &["meant".to_owned()]);
    let mut relay = home.home(&settings, AUTO);
    let code = socks5(relay.address(), echo_server()).map(|_| ()).unwrap_err();
    let closed = relay.closed();
    assert!(closed["detail"].as_str().unwrap().contains("meant"), "{closed}");
    (code, closed["end"].as_str().unwrap().to_owned())
}

#[test]
fn hop_with_another_protocol_is_reported() {
    let web = session_through_hop(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    assert_eq!(web, (1, "hop_protocol".into()));
    let mail = session_through_hop(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        let _ = stream.read(&mut [0; 1024]);
    });
    assert_eq!(mail, (1, "hop_protocol".into()));
    let echo = session_through_hop(|mut stream| {
        let mut bytes = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..count]);
        }
    });
    assert_eq!(echo, (1, "hop_protocol".into()));
    assert_eq!(session_through_hop(drop).0, 1);
}

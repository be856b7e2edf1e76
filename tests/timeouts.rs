//! Timeouts of sessions: handshake, BIND, idle, half-closed and drain.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use harness::*;

#[test]
fn handshake_timeout_ends_silent_and_slow_clients() {
    const HANDSHAKE: Duration = Duration::from_millis(400);
    let folder = Folder::new();
    let text = "version = 1\n[timeouts]\nhandshake = \"400ms\"\n[[listener]]\nbind = \"127.0.0.1:0\"\n";
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let mut silent = relay.connect();
    assert!(is_closed(&mut silent));
    let closed = relay.closed();
    assert_eq!(closed["end"], "handshake_timeout");
    assert_took(span_of(&closed["seconds"]), HANDSHAKE, TEST_TIMEOUT);

    // The timeout applies to the whole handshake, so single bytes at intervals do not extend it.
    let mut dripping = relay.connect();
    dripping.write_all(&[5]).unwrap();
    let writer = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        let mut writer = writer;
        // The method list has up to 255 bytes (RFC 1928, 3), sent here one by one.
        while writer.write_all(&[255]).is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    assert!(is_closed(&mut dripping));
    let closed = relay.closed();
    assert_eq!(closed["end"], "handshake_timeout");
    assert_took(span_of(&closed["seconds"]), HANDSHAKE, Duration::from_millis(1600));
    drop(dripping);
    join(drip);
}

#[test]
fn socks5_bind_waits_one_minute_for_the_peer() {
    const ACCEPT: Duration = Duration::from_secs(60);
    let mut relay = Relay::listen(&["socks://127.0.0.1:0?socks_bind=true"]);
    let mut client = relay.connect();
    client.set_read_timeout(Some(ACCEPT + TEST_TIMEOUT)).unwrap();
    client.write_all(&[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 21]).unwrap();
    assert_eq!(read_exactly(&mut client, 12)[..4], [5, 0, 5, 0]);
    let asked = Instant::now();
    assert_eq!(read_exactly(&mut client, 10)[..2], [5, 6], "TTL expired");
    assert_took(asked.elapsed(), ACCEPT, TEST_TIMEOUT);
    drop(client);
    assert_eq!(relay.closed()["end"], "timed_out");
}

#[test]
fn idle_timeouts_end_a_session_on_time() {
    let folder = Folder::new();
    let (listener, address) = server();
    // The other timeout is long, so that it cannot end the session first.
    let start = |timeouts: &str| {
        let text = format!(
            "version = 1\n[timeouts]\n{timeouts}\n\
             [[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{address}\"\n"
        );
        let file = folder.write("ekiden.toml", text);
        Relay::run(&["-c", file.to_str().unwrap()], 1)
    };
    let mut relay = start("idle = \"300ms\"\nhalf_close_idle = \"1h\"");
    let _client = relay.connect();
    let _server = accept(&listener);
    let closed = relay.closed();
    assert_eq!(closed["end"], "idle");
    assert_took(span_of(&closed["seconds"]), Duration::from_millis(300), TEST_TIMEOUT);

    let mut relay = start("idle = \"1h\"\nhalf_close_idle = \"600ms\"");
    let client = relay.connect();
    let _server = accept(&listener);
    client.shutdown(Shutdown::Write).unwrap();
    let closed = relay.closed();
    assert_eq!(closed["end"], "half_close_idle");
    assert_took(span_of(&closed["seconds"]), Duration::from_millis(600), TEST_TIMEOUT);
}

#[test]
fn drain_deadline_aborts_and_logs_remaining_sessions() {
    let folder = Folder::new();
    let (listener, target) = server();
    let text = format!(
        "version = 1\n[timeouts]\ndrain = \"200ms\"\n\
         [[listener]]\nbind = \"127.0.0.1:0\"\nkind = \"tcp\"\ntarget = \"{target}\"\n"
    );
    let file = folder.write("ekiden.toml", text);
    let mut relay = Relay::run(&["-c", file.to_str().unwrap()], 1);
    let mut client = relay.connect();
    let _server = accept(&listener);
    let asked = Instant::now();
    relay.signal("TERM");
    assert!(client.read(&mut [0]).is_err(), "a cut-off session must not look finished");
    assert_took(asked.elapsed(), Duration::from_millis(200), TEST_TIMEOUT / 2);
    assert_eq!(relay.exit_code(), Some(0));
    let events = relay.remaining_events();
    let closed: Vec<_> = events.iter().filter(|event| event["event"] == "closed").collect();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0]["end"], "drained");
}

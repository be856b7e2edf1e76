//! `connect = "hold"`: how long a transparent relay holds the SYN of a client.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "harness/mod.rs"]
mod harness;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "transparent/network.rs"]
mod network;
#[path = "clients/programs.rs"]
mod programs;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "transparent/relays.rs"]
mod relays;
#[allow(dead_code, reason = "these tests use their own parts of it")]
#[path = "sections/streams.rs"]
mod streams;

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use harness::*;
use network::*;
use relays::*;
use streams::*;

/// The relay answers the client's SYN only after the server has answered the SYN of the relay.
#[test]
fn client_syn_is_not_answered_before_the_server() {
    each_kind(PairOptions { settings: "[timeouts]\nhold = \"20s\"\n", ..PairOptions::default() }, |pair, family| {
        let server = &pair.row["server"];
        server.nft(DROP_ALL_SYNS);
        let (listener, address) = pair.row.server(family);
        let client = pair.row["client"].try_connecting(address);
        eventually("a repeated SYN of the relay at the server", || {
            (server.counter("silence", "others") > 1).then_some(())
        });
        assert_eq!(server.counter("silence", "clients"), 0, "the first packet was not held");
        let states = pair.row["client"].run("ss", &["-Htan"], "");
        assert!(states.contains("SYN-SENT") && !states.contains("ESTAB"), "{states}");
        server.nft("delete table inet silence");
        let mut client = join(client).unwrap();
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        assert!(is_relayed(&server));
    });
}

const HOLD: Duration = Duration::from_millis(300);

/// A SYN is retransmitted after 1 s (RFC 6298, 2.1).
const RETRANSMISSION: Duration = Duration::from_secs(1);

/// Resolution of kernel timers with timeouts of 0.5 to 4 s, at 1000 Hz (kernel/time/timer.c).
const TIMER_WHEEL: Duration = Duration::from_millis(64);

#[test]
fn packets_to_a_silent_server_bypass_the_relay_after_hold() {
    each_kind(PairOptions { settings: "[timeouts]\nhold = \"300ms\"\n", ..PairOptions::default() }, |pair, family| {
        pair.row["server"].nft(DROP_RELAY_SYNS);
        if pair.kind == Far::Router {
            pair.row["client"].nft(DROP_RETRANSMISSIONS);
        }
        let (listener, address) = pair.row.server(family);
        // After the first timeout the relay has recorded the server as silent, and holds no further SYN to it.
        for is_held in [true, false] {
            let began = Instant::now();
            let (mut client, mut server) = pair.connect_to(&listener, address);
            let took = began.elapsed();
            // The client has to retransmit its SYN if it reaches the far relay before the far relay detects that the
            // near relay has given up.
            let is_retransmitted = pair.kind != Far::Router && took >= RETRANSMISSION;
            let exact = match (is_held, is_retransmitted) {
                (true, false) => HOLD..=HOLD + TIMER_RESOLUTION,
                (true, true) => RETRANSMISSION..=RETRANSMISSION + TIMER_WHEEL,
                (false, _) => Duration::ZERO..=TIMER_RESOLUTION,
            };
            assert_within(took, exact, Duration::ZERO..=Duration::from_secs(5));
            assert!(!is_relayed(&server), "far: {:?}", pair.kind);
            exchange_messages(&mut client, &mut server);
        }
        assert_eq!(pair.near.relay.next(|event| event["event"] == "closed")["end"], "timed_out");
        assert!(pair.near.relay.sessions().is_empty());
    });
}

/// If the server never answers, the relay forwards the client's SYN after `hold`, and the client remains in SYN-SENT.
#[test]
fn unanswered_syn_leaves_the_client_in_syn_sent() {
    let Some(mut pair) =
        Pair::new(Far::Router, PairOptions { settings: "[timeouts]\nhold = \"200ms\"\n", ..PairOptions::default() })
    else {
        return;
    };
    pair.row["server"].nft("table inet silence { chain input { type filter hook input priority 0; drop; }; }");
    let address = SocketAddr::new(pair.row.left("server", Family::V4), 9);
    let attempt = pair.row["client"].try_connecting(address);
    for closed in pair.closed(address) {
        assert_eq!(closed["end"], "timed_out", "{closed}");
        assert_took(span_of(&closed["seconds"]), Duration::from_millis(200), TEST_TIMEOUT);
    }
    let passed = |metrics: &str| metrics.lines().any(|line| line.contains("passed") && line.contains("silent"));
    eventually("the bypass of the packet", || passed(&pair.near.relay.ask("/metrics")).then_some(()));
    assert!(!attempt.is_finished());
    assert!(pair.row["client"].run("ss", &["-Htan"], "").contains("SYN-SENT"));
    // The server answers the next SYN with a reset, which ends the attempt of the client.
    pair.row["server"].nft("delete table inet silence");
    assert_eq!(join(attempt).expect_err("no listener").kind(), ErrorKind::ConnectionRefused);
}

/// If a client aborts its attempt while its SYN is held, the relay resets the connection to the server and releases the
/// place of the session.
#[test]
fn aborted_client_releases_its_held_connection() {
    let settings = "[limits]\nsessions = 1\n[timeouts]\nhold = \"20s\"\nhandshake = \"1s\"\n";
    let Some(mut pair) = Pair::new(Far::Router, PairOptions { settings, ..PairOptions::default() }) else { return };
    let server = &pair.row["server"];
    server.nft(DROP_ALL_SYNS);
    let (listener, address) = pair.row.server(Family::V4);
    let time_limit = Duration::from_millis(100);
    let attempt = pair.row["client"].inside(|| TcpStream::connect_timeout(&address, time_limit));
    assert_eq!(attempt.expect_err("silence").kind(), ErrorKind::TimedOut);
    server.nft("delete table inet silence");
    let mut server = accept(&listener);
    assert!(is_reset(&mut server));
    assert_eq!(pair.closed(address)[0]["end"], "left_early");
    // The only place for a session is free again.
    assert!(is_relayed(&pair.connect(Family::V6).1));
}

//! Early mode: the client is told "connected" at once, and a failure becomes a reset.

use std::io::Write;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

fn early(relays: usize, encrypt: bool) -> Chain {
    let entrance = "kind = \"auto\"\nconnect = \"early\"\n".to_owned();
    Layout { relays, encrypt, entrance, ..Layout::default() }.start()
}

#[test]
fn success_comes_before_the_failure_and_the_failure_is_a_reset() {
    for (relays, encrypt) in [(1, false), (3, false), (3, true)] {
        let mut chain = early(relays, encrypt);
        let target = nobody();
        let mut client = socks5(chain.home.address(), target).expect("success at once");
        assert!(is_reset(&mut client));
        assert_eq!(chain.home.closed()["end"], "refused");

        let mut client = chain.home.connect();
        write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nhello").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert!(is_reset(&mut client));
        assert_eq!(chain.home.closed()["end"], "refused");
    }
}

/// Also without any relay behind the one the client talks to.
#[test]
fn a_listener_is_early_also_where_the_way_is_direct() {
    let mut relay = Relay::listen(&["auto://127.0.0.1:0?connect=early"]);
    let mut client = socks5(relay.address(), nobody()).expect("success at once");
    assert!(is_reset(&mut client));
    assert_eq!(relay.closed()["end"], "refused");
    echoes(&mut socks5(relay.address(), parrot()).unwrap());
}

/// The relay cannot have asked anybody yet: the only relay behind it is stopped.
#[test]
fn success_does_not_wait_for_anybody() {
    let mut chain = early(1, false);
    chain.relays[0].stop();
    let (listener, address) = server();
    let mut client = socks5(chain.home.address(), address).expect("success at once");
    client.write_all(b"question").unwrap();
    chain.relays[0].signal("CONT");
    let mut server = accept(&listener);
    assert_eq!(read_exactly(&mut server, 8), b"question");
    server.write_all(b"answer").unwrap();
    assert_eq!(read_exactly(&mut client, 6), b"answer");
    drop((client, server));
    assert_eq!(chain.home.closed()["bytes_up"], 8);
}

/// What was said into an early session arrives whole, in order and once.
#[test]
fn first_words_arrive_once() {
    for encrypt in [false, true] {
        let chain = early(2, encrypt);
        for size in [1, 5_000, 500_000] {
            let (client, server) = chain.pair();
            exchange(client, server, size, 10);
        }
    }
}

/// A strict listener beside it stays strict.
#[test]
fn the_mode_is_the_listeners() {
    let settings = "[[listener]]\nbind = \"127.0.0.1:0\"\nconnect = \"early\"\n".to_owned();
    let chain = Layout { home: settings, ..Layout::default() }.start();
    let doors = [chain.home.address_of(0), chain.home.address_of(1)];
    let outcomes = doors.map(|door| socks5(door, nobody()).map(|mut client| is_reset(&mut client)));
    assert_eq!(outcomes, [Ok(true), Err(5)]);
}

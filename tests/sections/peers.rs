//! Permissions of a peer: the targets and the relays that its line in the peers file, and the relay's own file, allow.

use std::net::{SocketAddr, TcpListener};

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A server of the test, which checks that no client has connected.
struct WatchedServer(TcpListener, SocketAddr);

impl WatchedServer {
    fn new() -> Self {
        let (listener, address) = server();
        listener.set_nonblocking(true).unwrap();
        Self(listener, address)
    }

    fn assert_not_contacted(&self) {
        assert!(self.0.accept().is_err(), "the target was reached");
    }
}

/// A home relay with `limits` in its line of the far relay's peers file, and the far relay.
fn limited(limits: &str, listener_keys: &str) -> (Relay, Relay, [Site; 2]) {
    let (far, home) = (Site::new(), Site::new());
    let peers = far.admit(&[(&Key::new().public, "other"), (&home.key.public, &format!("home {limits}"))]);
    let far_relay = far.relay("", &format!("peers = {peers:?}\n{listener_keys}"));
    let settings = far.table("far", "") + &route_all_through("way", &["far".to_owned()]);
    (home.home(&settings, AUTO), far_relay, [far, home])
}

#[test]
fn peer_reaches_only_its_allowed_targets() {
    let (mine, others) = (echo_server(), WatchedServer::new());
    let (mut home, mut far, _sites) = limited(&format!("to=192.0.2.0/24,127.0.0.1:{}", mine.port()), "");
    assert_echo(&mut socks5(home.address(), mine).unwrap());
    assert_eq!(home.closed()["end"], "finished");
    session_closed(&mut far);
    assert_eq!(socks5(home.address(), others.1).map(|_| ()), Err(2));
    assert_eq!(home.closed()["end"], "denied");
    let closed = session_closed(&mut far);
    assert_eq!(closed["end"], "denied");
    assert!(closed.to_string().contains("home"), "the peer is not named: {closed}");
    // The rules also apply to the address of a target that is requested by name.
    assert_eq!(socks5_by_name(home.address(), "localhost", others.1.port()).map(|_| ()), Err(2));
    others.assert_not_contacted();
}

#[test]
fn peer_targets_do_not_override_the_deny_of_the_listener() {
    let target = WatchedServer::new();
    let (mut home, _far, _sites) = limited("to=127.0.0.0/8", "deny = [\"127.0.0.0/8\"]\n");
    assert_eq!(socks5(home.address(), target.1).map(|_| ()), Err(2));
    assert_eq!(home.closed()["end"], "denied");
    target.assert_not_contacted();
}

/// A relay in the middle, two relays behind it, and for each of these a home relay whose path ends there.
struct Fork {
    homes: [Relay; 2],
    _relays: [Relay; 3],
    _sites: [Site; 4],
}

/// `limits` are options in the line of the home relays in the middle relay's peers file. `known` are the relays, of
/// `west` and `east`, for which the middle relay has a `[[relay]]` table.
fn fork(limits: &str, known: &[&str]) -> Fork {
    let [home, middle, west, east] = [Site::new(), Site::new(), Site::new(), Site::new()];
    let admit = |site: &Site, key: &Key, rest: &str| format!("peers = {:?}\n", site.admit(&[(&key.public, rest)]));
    let tables = [("west", west.table("west", "")), ("east", east.table("east", ""))];
    let all: String = tables.iter().map(|(_, table)| table.as_str()).collect();
    let next_relays: String =
        tables.iter().filter(|(name, _)| known.contains(name)).map(|(_, table)| table.as_str()).collect();
    let relays = [
        west.relay("", &admit(&west, &middle.key, "middle")),
        east.relay("", &admit(&east, &middle.key, "middle")),
        middle.relay(&next_relays, &admit(&middle, &home.key, &format!("home {limits}"))),
    ];
    let start_home = |relay: &str| {
        let settings = middle.table("middle", "") + &all;
        home.home(&(settings + &route_all_through("way", &["middle".to_owned(), relay.to_owned()])), AUTO)
    };
    Fork { homes: [start_home("west"), start_home("east")], _relays: relays, _sites: [home, middle, west, east] }
}

#[test]
fn peer_is_forwarded_only_through_its_allowed_relays() {
    let target = WatchedServer::new();
    let mut fork = fork("through=west", &["west", "east"]);
    assert_echo(&mut socks5(fork.homes[0].address(), echo_server()).unwrap());
    assert_eq!(socks5(fork.homes[1].address(), target.1).map(|_| ()), Err(2));
    let closed = fork.homes[1].closed();
    assert_eq!(closed["end"], "denied");
    assert!(closed["detail"].as_str().unwrap().contains("middle"), "{closed}");
    target.assert_not_contacted();
}

#[test]
fn unrestricted_peer_is_forwarded_only_through_configured_relays() {
    let target = WatchedServer::new();
    let mut fork = fork("", &["east"]);
    assert_echo(&mut socks5(fork.homes[1].address(), echo_server()).unwrap());
    assert_eq!(socks5(fork.homes[0].address(), target.1).map(|_| ()), Err(2));
    let closed = fork.homes[0].closed();
    assert_eq!(closed["end"], "denied");
    assert!(closed["detail"].as_str().unwrap().contains("middle"), "{closed}");
    target.assert_not_contacted();
}

#[test]
fn listener_with_encrypt_refuses_plain_sessions() {
    let target = WatchedServer::new();
    let (mut home, mut far, sites) = limited("", "encrypt = true\n");
    assert_eq!(socks5(home.address(), target.1).map(|_| ()), Err(2));
    let closed = home.closed();
    assert_eq!(closed["end"], "denied");
    assert_eq!(session_closed(&mut far)["end"], "denied");
    target.assert_not_contacted();
    let [far, home] = &sites;
    let encrypted = far.table("far", "encrypt = true\n") + &route_all_through("way", &["far".to_owned()]);
    let home = home.home(&encrypted, AUTO);
    assert_echo(&mut socks5(home.address(), echo_server()).unwrap());
}

//! Session places: unproven connections of relays take no place and are closed after a time, a failed handshake
//! releases no place, and sessions of a peer count against the limit of the peer.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::wire::section::{NoiseInitiator, Versions};
use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

const LOCAL: [u8; 4] = [127, 0, 0, 1];

/// A relay with an HTTP listener, and a section listener that admits one peer.
struct Fixture {
    relay: Relay,
    site: Site,
    peer: Site,
    /// The first message of a handshake of the peer, as an eavesdropper records it.
    hello: Vec<u8>,
    target: SocketAddr,
}

impl Fixture {
    /// `settings` are tables of the relay's configuration.
    fn new(settings: &str) -> Self {
        Self::started(settings, start)
    }

    fn started(settings: &str, start: impl FnOnce(&Path) -> Relay) -> Self {
        let (site, peer) = (Site::new(), Site::new());
        let file = Self::write(&site, &peer, settings);
        let own = PrivateKey::from_file(&peer.key.private).unwrap();
        let key: PublicKey = site.key.public.parse().unwrap();
        let (_, hello) = NoiseInitiator::begin(&own, &key, Versions::SUPPORTED);
        Self { relay: start(&file), site, peer, hello, target: echo_server() }
    }

    fn write(site: &Site, peer: &Site, settings: &str) -> PathBuf {
        let peers = site.admit(&[(&peer.key.public, "home")]);
        let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\nkind = \"http\"\n";
        site.write(&format!("{settings}{door}"), &format!("peers = {peers:?}\n"))
    }

    fn reload(&mut self, settings: &str) {
        Self::write(&self.site, &self.peer, settings);
        self.relay.signal("HUP");
        self.relay.next(|event| event["event"] == "reloaded");
        // Workers answer this request after they have switched to the new configuration.
        self.relay.sessions();
    }

    /// A session of the HTTP listener, for a client at this address.
    fn session_from(&self, source: [u8; 4]) -> TcpStream {
        let mut client = connect_from(source, self.relay.address());
        let target = self.target;
        write!(client, "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").unwrap();
        assert!(read_head(&mut client).starts_with("HTTP/1.1 200 "));
        assert_echo(&mut client);
        client
    }

    /// Checks that the HTTP listener rejects a client that uses all its places.
    fn check_rejected(&mut self, source: [u8; 4]) {
        // On one CPU the reset may arrive before connect(2) returns, which then returns the error. There is no write,
        // because it could return the error before the read does.
        match try_connect_from(source, self.relay.address()) {
            Ok(mut client) => assert!(is_reset(&mut client), "a session above `sessions_per_client` was accepted"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
        }
        assert_eq!(self.closed_of("door")["end"], "client_limit");
    }

    fn closed_of(&mut self, listener: &str) -> Value {
        self.relay.next(|event| event["event"] == "closed" && event["listener"] == listener)
    }

    /// Sends the recorded hello from this address.
    fn replay_from(&self, source: [u8; 4]) -> TcpStream {
        let mut stream = connect_from(source, self.site.address);
        stream.write_all(&self.hello).unwrap();
        stream
    }

    /// Like `replay_from`, and reads the answer.
    fn answered_replay_from(&self, source: [u8; 4]) -> TcpStream {
        let mut stream = self.replay_from(source);
        wait_answered(&mut stream);
        stream
    }

    /// Waits until `count` connections of relays wait for a session.
    fn wait_sections_waiting(&self, count: u64) {
        eventually(&format!("{count} waiting connections"), || (self.waiting() == Some(count)).then_some(()));
    }

    fn waiting(&self) -> Option<u64> {
        self.relay.metric("ekiden_sections_waiting{listener=\"section\"}")
    }

    /// Starts the relay that is the admitted peer.
    fn home(&self) -> Relay {
        self.home_with("")
    }

    /// Like `home`, with these tables in the configuration.
    fn home_with(&self, settings: &str) -> Relay {
        let route = route_all_through("way", &["far".to_owned()]);
        self.peer.home(&format!("{settings}{}{route}", self.site.table("far", "")), AUTO)
    }
}

fn wait_answered(stream: &mut TcpStream) {
    try_read_hello(stream).expect("an answer");
}

/// Number of ready connections of the home relay.
fn ready(home: &Relay) -> Option<u64> {
    home.metric("ekiden_ready{relay=\"far\"}")
}

fn wait_ready(home: &Relay, count: u64) {
    eventually("ready connections", || (ready(home) == Some(count)).then_some(()));
}

/// Regression: each replay of a recorded hello held a place of `limits.sessions` for an hour, so fifty replays blocked
/// the HTTP listener of the same relay.
#[test]
fn replayed_hellos_take_no_session_places() {
    let fixture = Fixture::new("[limits]\nsessions = 2\n");
    let mut replays: Vec<_> = (0..50).map(|_| fixture.replay_from(LOCAL)).collect();
    replays[..2].iter_mut().for_each(wait_answered);
    let session = fixture.session_from(LOCAL);
    replays[2..].iter_mut().for_each(wait_answered);
    drop(session);
    drop(fixture.session_from(LOCAL));
    fixture.wait_sections_waiting(50);
}

/// The dialler keeps a ready connection for `ready_age`; the listener closes a connection that has no session long
/// after that time.
#[test]
fn unproven_connection_is_closed_after_ready_age() {
    let fixture = Fixture::new("[timeouts]\nready_age = \"100ms\"\nhandshake = \"2s\"\n");
    let mut replay = fixture.answered_replay_from(LOCAL);
    assert_eq!(read_remaining(&mut replay), (Vec::new(), Ending::Clean));
    fixture.wait_sections_waiting(0);
}

/// `sessions_per_client` also limits unproven connections, once the handshake timeout has passed without a session. The
/// oldest connection is closed, so that a peer behind the same address can still connect.
#[test]
fn unproven_connections_are_limited_per_source_address() {
    let fixture = Fixture::new("[limits]\nsessions_per_client = 2\n[timeouts]\nhandshake = \"2s\"\n");
    let elsewhere = fixture.answered_replay_from([127, 0, 0, 2]);
    let mut replays: Vec<_> = (0..5).map(|_| fixture.answered_replay_from(LOCAL)).collect();
    for replay in &mut replays[..3] {
        assert_eq!(read_remaining(replay), (Vec::new(), Ending::Clean));
    }
    fixture.wait_sections_waiting(3);
    assert_eq!(fixture.relay.evictions("section"), 3);
    // Session places are counted separately: both are free.
    let sessions = [fixture.session_from(LOCAL), fixture.session_from(LOCAL)];
    assert_echo(&mut socks5(fixture.home().address(), fixture.target).unwrap());
    drop((sessions, elsewhere, replays));
}

/// Without `sessions_per_client`, descriptors limit unproven connections: of 128 descriptors 16 are reserved for the
/// admin listener, and one eighth of the other 112 is available to unproven connections. The source address with the
/// most of them loses its oldest.
#[test]
fn unproven_connections_leave_descriptors_for_sessions() {
    let fixture = Fixture::started("", |file| {
        let mut command = Command::new("sh");
        let script = "ulimit -n 128; exec \"$0\" run -c \"$@\"";
        Relay::start(command.args(["-c", script, env!("CARGO_BIN_EXE_ekiden")]).arg(file), 2)
    });
    let elsewhere = fixture.answered_replay_from([127, 0, 0, 2]);
    let replays: Vec<_> = (0..100).map(|_| fixture.answered_replay_from(LOCAL)).collect();
    fixture.wait_sections_waiting(14);
    elsewhere.set_nonblocking(true).unwrap();
    assert_eq!(elsewhere.peek(&mut [0]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
    drop(fixture.session_from(LOCAL));
    assert_echo(&mut socks5(fixture.home().address(), fixture.target).unwrap());
    drop(replays);
}

/// Regression: each failed handshake released a session place of its source address that it had not taken.
#[test]
fn failed_handshakes_release_no_session_place() {
    let mut fixture = Fixture::new("[limits]\nsessions_per_client = 2\n");
    let sessions = [fixture.session_from(LOCAL), fixture.session_from(LOCAL)];
    fixture.check_rejected(LOCAL);
    for _ in 0..3 {
        let mut stranger = connect(fixture.site.address);
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        read_remaining(&mut stranger);
        assert_eq!(fixture.closed_of("section")["end"], "bad_handshake");
    }
    fixture.check_rejected(LOCAL);
    drop(sessions);
}

/// The client address of a session that a relay opens is a claim of that relay.
#[test]
fn claimed_client_address_does_not_count_against_that_client() {
    let mut fixture = Fixture::new("[limits]\nsessions_per_client = 2\n");
    let home = fixture.home();
    let mut claimed = [(); 2].map(|()| socks5_from(LOCAL, home.address(), fixture.target).unwrap());
    claimed.iter_mut().for_each(assert_echo);
    let sessions = [fixture.session_from(LOCAL), fixture.session_from(LOCAL)];
    fixture.check_rejected(LOCAL);
    drop((claimed, sessions));
}

/// A peer has as many places as a client, independent of the number of client addresses that it claims. The relay
/// answers a session that gets no place, so the peer does not report the relay as unreachable.
#[test]
fn peer_sessions_are_limited_per_peer() {
    let mut fixture = Fixture::new("[limits]\nsessions_per_client = 2\n");
    let mut home = fixture.home();
    let client = |last: u8| socks5_from([127, 0, 0, last], home.address(), fixture.target);
    let mut sessions = [client(1).unwrap(), client(2).unwrap()];
    sessions.iter_mut().for_each(assert_echo);
    assert_eq!(client(3).map(drop), Err(1));
    let closed = fixture.relay.closed();
    assert_eq!((&closed["end"], &closed["peer"]), (&"client_limit".into(), &"home".into()), "{closed}");
    let [first, second] = sessions;
    drop(first);
    assert_eq!(fixture.closed_of("section")["end"], "finished");
    assert_echo(&mut socks5_from([127, 0, 0, 4], home.address(), fixture.target).unwrap());
    drop(second);
    let closed = home.next(|event| event["event"] == "closed" && event["end"] != "finished");
    assert_eq!((&closed["end"], &closed["detail"]), (&"exhausted".into(), &"reported by far".into()), "{closed}");
    home.signal("TERM");
    assert!(home.remaining_events().iter().all(|event| event["event"] != "relay_unreachable"));
}

/// Without `peers` a relay can use a new key each time, so its sessions count against its source address.
#[test]
fn sessions_of_unknown_relays_are_limited_per_address() {
    let (site, homes) = (Site::new(), [Site::new(), Site::new()]);
    let mut relay = site.relay("[limits]\nsessions_per_client = 2\n", "allow_open = true\n");
    let target = echo_server();
    let homes =
        homes.map(|home| home.home(&(site.table("far", "") + &route_all_through("way", &["far".to_owned()])), AUTO));
    let mut sessions = [
        socks5_from([127, 0, 0, 5], homes[0].address(), target).unwrap(),
        socks5_from([127, 0, 0, 6], homes[1].address(), target).unwrap(),
    ];
    sessions.iter_mut().for_each(assert_echo);
    assert_eq!(socks5_from([127, 0, 0, 7], homes[1].address(), target).map(drop), Err(1));
    assert_eq!(relay.closed()["end"], "client_limit");
}

/// A session that a relay opens on a ready connection waits for a place, as a client does, and is not refused at once.
#[test]
fn peer_session_waits_for_a_place() {
    let mut fixture = Fixture::new("[limits]\nsessions = 1\n");
    let home = fixture.home_with("[limits]\nready_connections = 1\n");
    wait_ready(&home, 1);
    let session = fixture.session_from(LOCAL);
    let paused = fixture.relay.next(|event| event["event"] == "accept_paused");
    assert_eq!(paused["reason"], "session_limit");
    let (address, target) = (home.address(), fixture.target);
    let waiting = std::thread::spawn(move || socks5(address, target).map(|mut session| assert_echo(&mut session)));
    // The home relay replaces the connection that the session takes. When OPEN has arrived, only the new one waits.
    eventually("OPEN at the relay", || {
        let is_replaced = connections_to(fixture.site.address) == 2 && ready(&home) == Some(1);
        (is_replaced && fixture.waiting() == Some(1)).then_some(())
    });
    assert_eq!(fixture.relay.sessions().len(), 1);
    drop(session);
    assert_eq!(join(waiting), Ok(()));
}

/// The relay that has opened the session receives an answer, and the listener continues to serve.
#[test]
fn peer_session_without_a_place_is_refused_at_the_deadline() {
    let mut fixture = Fixture::new("[limits]\nsessions = 1\n[timeouts]\nconnect = \"2s\"\n");
    let mut home = fixture.home();
    wait_ready(&home, 2);
    let session = fixture.session_from(LOCAL);
    assert_eq!(socks5(home.address(), fixture.target).map(drop), Err(1));
    let closed = fixture.closed_of("section");
    assert_eq!((&closed["end"], &closed["peer"]), (&"exhausted".into(), &"home".into()), "{closed}");
    let closed = home.closed();
    assert_eq!((&closed["end"], &closed["detail"]), (&"exhausted".into(), &"reported by far".into()), "{closed}");
    drop(session);
    assert_eq!(fixture.closed_of("door")["end"], "finished");
    assert_echo(&mut socks5(home.address(), fixture.target).unwrap());
}

/// A limit that a reload removes must leave no stale count.
#[test]
fn limit_set_by_a_reload_counts_running_sessions() {
    let mut fixture = Fixture::new("");
    let sessions = [fixture.session_from(LOCAL), fixture.session_from(LOCAL)];
    fixture.reload("[limits]\nsessions_per_client = 2\n");
    fixture.check_rejected(LOCAL);
    fixture.reload("");
    let third = fixture.session_from(LOCAL);
    fixture.reload("[limits]\nsessions_per_client = 3\n");
    fixture.check_rejected(LOCAL);
    drop(sessions);
    for _ in 0..2 {
        assert_eq!(fixture.closed_of("door")["end"], "finished");
    }
    let more = [fixture.session_from(LOCAL), fixture.session_from(LOCAL)];
    fixture.check_rejected(LOCAL);
    drop((third, more));
}

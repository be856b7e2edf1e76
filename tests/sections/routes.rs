//! Named paths and routes: selection, failover, and detection of loops by the trace ID or the hop count.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::harness::*;
use super::relays::*;
use super::streams::*;

/// A home relay with the relays `west` and `east`, the paths `by-west` and `by-east` through them, and the routes of
/// the test.
struct TwoRelayFixture {
    home: Relay,
    relays: [Option<Relay>; 2],
    sites: [Site; 3],
    peers: [String; 2],
}

impl TwoRelayFixture {
    fn new(routes: &str) -> Self {
        Self::with_west(routes, "")
    }

    /// `west` are further lines of the listener of the relay `west`.
    fn with_west(routes: &str, west: &str) -> Self {
        let settings = [west, ""];
        let sites = [Site::new(), Site::new(), Site::new()];
        let [west, east, home] = &sites;
        let mut peers = [west, east].map(|site| format!("peers = {:?}\n", site.admit(&[(&home.key.public, "home")])));
        peers.iter_mut().zip(settings).for_each(|(lines, more)| lines.push_str(more));
        let relays = [west.relay("", &peers[0]), east.relay("", &peers[1])].map(Some);
        let paths: String =
            ["west", "east"].map(|name| format!("[[path]]\nname = \"by-{name}\"\nrelays = [\"{name}\"]\n")).concat();
        let home = home.home(&(west.table("west", "") + &east.table("east", "") + &paths + routes), AUTO);
        Self { home, relays, sites, peers }
    }

    /// Opens a session to `target`, which must succeed. Returns its path.
    fn path_of(&mut self, target: SocketAddr) -> String {
        assert_echo(&mut socks5(self.home.address(), target).expect("a tunnel"));
        self.closed_path()
    }

    fn closed_path(&mut self) -> String {
        let closed = self.home.closed();
        assert_eq!(closed["end"], "finished", "{closed}");
        closed["path"].as_str().unwrap().to_owned()
    }

    fn kill(&mut self, at: usize) {
        self.relays[at] = None;
    }

    fn restart(&mut self, at: usize) {
        self.relays[at] = Some(self.sites[at].relay("", &self.peers[at]));
    }
}

fn route(to: &[String], path: &[&str]) -> String {
    format!("[[route]]\nto = {to:?}\npath = {path:?}\n")
}

#[test]
fn first_matching_route_is_used() {
    let [by_port, by_network, other] = [echo_server(), echo_server(), echo_server()];
    let routes = [
        route(&[format!("*:{}", by_port.port())], &["by-west"]),
        route(&[format!("127.0.0.0/8:{}", by_network.port()), "198.51.100.0/24".to_owned()], &["by-east"]),
        route(&["localhost".to_owned()], &["by-west"]),
        route(&["127.0.0.0/8".to_owned()], &["direct"]),
        "[[route]]\npath = [\"by-east\"]\n".to_owned(),
    ]
    .concat();
    let mut fixture = TwoRelayFixture::new(&routes);
    assert_eq!(fixture.path_of(by_port), "by-west");
    assert_eq!(fixture.path_of(by_network), "by-east");
    assert_eq!(fixture.path_of(other), "direct");
    // A request for a name is routed by that name, which the last relay of the path resolves.
    assert_echo(&mut socks5_by_name(fixture.home.address(), "localhost", other.port()).unwrap());
    assert_eq!(fixture.closed_path(), "by-west");
    assert_echo(&mut socks5_by_name(fixture.home.address(), "localhost", by_port.port()).unwrap());
    assert_eq!(fixture.closed_path(), "by-west");
    assert!(socks5_by_name(fixture.home.address(), "nosuch.invalid", 80).is_err());
    assert_eq!(fixture.home.closed()["path"], "by-east");
}

#[test]
fn targets_without_a_route_use_forward_or_direct() {
    let (routed, other) = (echo_server(), echo_server());
    let mut fixture = TwoRelayFixture::new(&route(&[format!("*:{}", routed.port())], &["by-east"]));
    assert_eq!(fixture.path_of(routed), "by-east");
    assert_eq!(fixture.path_of(other), "direct");

    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let hop = format!("socks5://{}", proxy.address());
    let routes = route(&[format!("*:{}", routed.port())], &["direct"]);
    let mut relay = Site::new().home(&format!("forward = [\"{hop}\"]\n{routes}"), AUTO);
    for (target, path) in [(routed, "direct"), (other, hop.as_str())] {
        assert_echo(&mut socks5(relay.address(), target).unwrap());
        assert_eq!(relay.closed()["path"], path);
    }
}

#[test]
fn unreachable_path_is_skipped_until_recovery() {
    let target = echo_server();
    let mut fixture = TwoRelayFixture::new("[[route]]\npath = [\"by-west\", \"by-east\", \"direct\"]\n");
    assert_eq!(fixture.path_of(target), "by-west");
    fixture.kill(0);
    for _ in 0..5 {
        assert_eq!(fixture.path_of(target), "by-east");
    }
    fixture.kill(1);
    for _ in 0..5 {
        assert_eq!(fixture.path_of(target), "direct");
    }
    fixture.restart(1);
    eventually("the second path", || (fixture.path_of(target) == "by-east").then_some(()));
    fixture.restart(0);
    eventually("the first path", || (fixture.path_of(target) == "by-west").then_some(()));
    assert_eq!(fixture.path_of(target), "by-west");
}

/// Regression: only a group tried another relay after the answer that a relay has no room.
#[test]
fn path_with_a_full_relay_is_skipped() {
    let mut fixture = TwoRelayFixture::with_west(&route(&["*".to_owned()], &["by-west", "by-east"]), "sessions = 1\n");
    let echo = echo_server();
    let mut first = socks5(fixture.home.address(), echo).expect("a tunnel");
    assert_echo(&mut first);
    assert_eq!(fixture.path_of(echo), "by-east");
    drop(first);
    assert_eq!(fixture.closed_path(), "by-west");
}

/// A target that refuses has been reached, so no other path is tried.
#[test]
fn refused_target_is_not_retried_on_another_path() {
    let mut fixture = TwoRelayFixture::new("[[route]]\npath = [\"by-west\", \"by-east\", \"direct\"]\n");
    for _ in 0..3 {
        assert_eq!(socks5(fixture.home.address(), unused_address()).map(|_| ()), Err(5));
        let closed = fixture.home.closed();
        assert_eq!((&closed["path"], &closed["end"]), (&"by-west".into(), &"refused".into()), "{closed}");
    }
    assert_eq!(fixture.path_of(echo_server()), "by-west", "a refused target has changed the path");
}

#[test]
fn failure_of_every_path_is_reported_to_the_client() {
    let mut fixture = TwoRelayFixture::new("[[route]]\npath = [\"by-west\", \"by-east\"]\n");
    fixture.kill(0);
    fixture.kill(1);
    assert_eq!(socks5(fixture.home.address(), echo_server()).map(|_| ()), Err(1));
    assert_eq!(fixture.home.closed()["end"], "refused");
    fixture.restart(1);
    eventually("the second path", || socks5(fixture.home.address(), echo_server()).ok());
}

#[test]
fn check_rejects_invalid_routes_paths_and_relays() {
    let site = Site::new();
    for (tables, key) in [
        ("[[path]]\nname = \"a\"\nrelays = [\"nobody\"]\n", "path[1].relays"),
        ("[[path]]\nname = \"a\"\nrelays = []\n", "path[1].relays"),
        ("[[path]]\nname = \"direct\"\nrelays = [\"x\"]\n", "path[1].name"),
        ("[[route]]\npath = [\"nowhere\"]\n", "route[1].path"),
        ("[[route]]\npath = []\n", "route[1].path"),
        ("[[route]]\nto = [\"!\"]\npath = [\"direct\"]\n", "route[1].to"),
        ("[[relay]]\nname = \"x\"\naddress = \"127.0.0.1:1\"\nkey = \"short\"\n", "relay[1].key"),
        ("[[relay]]\nname = \"x\"\naddress = \"127.0.0.1:1\"\n", "relay[1].key"),
    ] {
        let file = site.write_home(tables, AUTO);
        let output = ekiden().arg("check").arg(&file).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{tables}");
        assert!(message.contains(key), "{key} is not named in:\n{message}");
    }
}

/// A `[[relay]]` with `url` is a foreign proxy, and can be part of a path.
#[test]
fn path_through_a_foreign_proxy_works() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let tables = format!("[[relay]]\nname = \"corp\"\nurl = \"socks5://{}\"\n", proxy.address());
    let mut relay = Site::new().home(&(tables + &route_all_through("by-corp", &["corp".to_owned()])), AUTO);
    assert_echo(&mut socks5(relay.address(), echo_server()).unwrap());
    assert_eq!(relay.closed()["path"], "by-corp");
}

/// Longest time until a loop is reported. An undetected loop ends at the deadline of the first relay, after 15 s.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(5);

fn peers(site: &Site, callers: &[&Site]) -> String {
    let names = ["first-caller", "second-caller"];
    let lines: Vec<(&str, &str)> = callers.iter().map(|caller| caller.key.public.as_str()).zip(names).collect();
    format!("peers = {:?}\n", site.admit(&lines))
}

#[test]
fn mutual_forwarding_is_detected_as_a_loop() {
    for encrypt in [false, true] {
        let [home, one, two] = [Site::new(), Site::new(), Site::new()];
        let forward = |site: &Site| format!("forward = [\"{}&encrypt={encrypt}\"]\n", site.url());
        let mut first = one.relay(&forward(&two), &peers(&one, &[&home, &two]));
        let _second = two.relay(&forward(&one), &peers(&two, &[&one]));
        let mut relay = home.home(&forward(&one), AUTO);
        let asked = Instant::now();
        assert_eq!(socks5(relay.address(), echo_server()).map(|_| ()), Err(1));
        assert!(asked.elapsed() < DETECTION_TIMEOUT, "{:?}", asked.elapsed());
        assert_eq!(session_closed(&mut relay)["end"], "loop");
        // The first relay has two sessions: it was still opening the first one when the loop led back to it.
        let ends = [session_closed(&mut first), session_closed(&mut first)]
            .map(|closed| closed["end"].as_str().unwrap().to_owned());
        assert!(ends.iter().all(|end| end == "loop"), "{ends:?}");
        // The first relay detects the loop by the trace ID of the second session, before the hop count is used up.
        first.signal("TERM");
        let more = first.remaining_events().iter().filter(|event| event["target"].is_string()).count();
        assert_eq!(more, 0, "the session has passed the loop more than once");
    }
}

/// A ring of three relays, one of which also has a listener for clients.
#[test]
fn forwarding_ring_is_detected_as_a_loop() {
    let ring = [Site::new(), Site::new(), Site::new()];
    let settings = |at: usize| format!("forward = [\"{}\"]\n", ring[(at + 1) % 3].url());
    let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n";
    let listener_keys = |at: usize| peers(&ring[at], &[&ring[(at + 2) % 3]]);
    let mut first = ring[0].relay(&(settings(0) + door), &listener_keys(0));
    let _others = [1, 2].map(|at| ring[at].relay(&settings(at), &listener_keys(at)));
    let asked = Instant::now();
    assert_eq!(socks5(first.address(), echo_server()).map(|_| ()), Err(1));
    assert!(asked.elapsed() < DETECTION_TIMEOUT, "{:?}", asked.elapsed());
    assert_eq!(first.next(|event| event["event"] == "closed" && event["listener"] == "door")["end"], "loop");
}

#[test]
fn loop_is_reported_in_proxy_status() {
    use std::io::Write;
    let [home, one] = [Site::new(), Site::new()];
    let forward = format!("forward = [\"{}\"]\n", one.url());
    let two = Site::new();
    let _one = one.relay(&format!("forward = [\"{}\"]\n", two.url()), &peers(&one, &[&home, &two]));
    let _two = two.relay(&forward, &peers(&two, &[&one]));
    let home = home.home(&forward, AUTO);
    let mut client = home.connect();
    write!(client, "CONNECT 127.0.0.1:9 HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n").unwrap();
    let head = read_head(&mut client);
    assert!(head.starts_with("HTTP/1.1 502 ") && head.contains("error=proxy_loop_detected"), "{head}");
}

/// A relay is identified by its key, so a path must not contain a relay twice, under one name or under two names.
#[test]
fn check_rejects_a_path_with_a_repeated_relay() {
    let [home, one, two] = [Site::new(), Site::new(), Site::new()];
    let tables = one.table("one", "") + &two.table("two", "");
    let again = one.table("again", "");
    for (tables, names, key) in [
        (tables.clone(), ["one", "two", "one"], "path[1].relays"),
        (tables + &again, ["one", "two", "again"], "relay[3].key"),
    ] {
        let file = home.write_home(&(tables + &route_all_through("way", &names.map(str::to_owned))), AUTO);
        let checked = ekiden().arg("check").arg(&file).output().unwrap();
        let message = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(2), "{names:?}: {message}");
        assert!(message.contains(key), "{key} is not named in:\n{message}");
    }
}

/// No false positives: many concurrent sessions cross the same relays.
#[test]
fn many_sessions_on_one_path_are_not_a_loop() {
    let chain = Chain::start(2);
    let mut pairs: Vec<_> = (0..20).map(|_| chain.pair()).collect();
    for (client, server) in &mut pairs {
        exchange_messages(client, server);
    }
}

#[test]
fn relay_with_itself_as_next_hop_fails_to_start() {
    let site = Site::new();
    let file = site.write(&format!("forward = [\"{}\"]\n", site.url()), "");
    let output = ekiden().args(["run", "--admin", "off", "-c"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

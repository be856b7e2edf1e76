//! Named paths and routes: selection, failover, and loops, which are refused at once by the trace or the hop count.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::harness::*;
use super::relays::*;
use super::streams::*;

/// A home relay that knows `west` and `east`, by paths `by-west` and `by-east`, and the routes of the test.
struct Crossing {
    home: Relay,
    relays: [Option<Relay>; 2],
    sites: [Site; 3],
    peers: [String; 2],
}

impl Crossing {
    fn new(routes: &str) -> Self {
        let sites = [Site::new(), Site::new(), Site::new()];
        let [west, east, home] = &sites;
        let peers = [west, east].map(|site| format!("peers = {:?}\n", site.admit(&[(&home.key.public, "home")])));
        let relays = [west.relay("", &peers[0]), east.relay("", &peers[1])].map(Some);
        let paths: String =
            ["west", "east"].map(|name| format!("[[path]]\nname = \"by-{name}\"\nrelays = [\"{name}\"]\n")).concat();
        let home = home.home(&(west.table("west", "") + &east.table("east", "") + &paths + routes), AUTO);
        Self { home, relays, sites, peers }
    }

    /// Which way a session to `target` went; it has worked.
    fn way(&mut self, target: SocketAddr) -> String {
        echoes(&mut socks5(self.home.address(), target).expect("a tunnel"));
        self.closed_way()
    }

    fn closed_way(&mut self) -> String {
        let closed = self.home.closed();
        assert_eq!(closed["end"], "finished", "{closed}");
        closed["path"].as_str().unwrap().to_owned()
    }

    fn kill(&mut self, at: usize) {
        self.relays[at] = None;
    }

    fn revive(&mut self, at: usize) {
        self.relays[at] = Some(self.sites[at].relay("", &self.peers[at]));
    }
}

fn route(to: &[String], path: &[&str]) -> String {
    format!("[[route]]\nto = {to:?}\npath = {path:?}\n")
}

#[test]
fn the_first_route_that_matches_counts() {
    let [by_port, by_network, other] = [parrot(), parrot(), parrot()];
    let routes = [
        route(&[format!("*:{}", by_port.port())], &["by-west"]),
        route(&[format!("127.0.0.0/8:{}", by_network.port()), "198.51.100.0/24".to_owned()], &["by-east"]),
        route(&["localhost".to_owned()], &["by-west"]),
        route(&["127.0.0.0/8".to_owned()], &["direct"]),
        "[[route]]\npath = [\"by-east\"]\n".to_owned(),
    ]
    .concat();
    let mut crossing = Crossing::new(&routes);
    assert_eq!(crossing.way(by_port), "by-west");
    assert_eq!(crossing.way(by_network), "by-east");
    assert_eq!(crossing.way(other), "direct");
    // A name is routed by the name, and resolved by the relay at the end of its way.
    echoes(&mut socks5_by_name(crossing.home.address(), "localhost", other.port()).unwrap());
    assert_eq!(crossing.closed_way(), "by-west");
    echoes(&mut socks5_by_name(crossing.home.address(), "localhost", by_port.port()).unwrap());
    assert_eq!(crossing.closed_way(), "by-west");
    assert!(socks5_by_name(crossing.home.address(), "nosuch.invalid", 80).is_err());
    assert_eq!(crossing.home.closed()["path"], "by-east");
}

/// Targets without a route go by `forward`, or direct.
#[test]
fn other_targets_go_as_if_there_were_no_routes() {
    let (routed, other) = (parrot(), parrot());
    let mut crossing = Crossing::new(&route(&[format!("*:{}", routed.port())], &["by-east"]));
    assert_eq!(crossing.way(routed), "by-east");
    assert_eq!(crossing.way(other), "direct");

    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let hop = format!("socks5://{}", proxy.address());
    let routes = route(&[format!("*:{}", routed.port())], &["direct"]);
    let mut relay = Site::new().home(&format!("forward = [\"{hop}\"]\n{routes}"), AUTO);
    for (target, way) in [(routed, "direct"), (other, hop.as_str())] {
        echoes(&mut socks5(relay.address(), target).unwrap());
        assert_eq!(relay.closed()["path"], way);
    }
}

#[test]
fn a_way_that_is_down_gives_place_to_the_next_and_comes_back() {
    let target = parrot();
    let mut crossing = Crossing::new("[[route]]\npath = [\"by-west\", \"by-east\", \"direct\"]\n");
    assert_eq!(crossing.way(target), "by-west");
    crossing.kill(0);
    for _ in 0..5 {
        assert_eq!(crossing.way(target), "by-east");
    }
    crossing.kill(1);
    for _ in 0..5 {
        assert_eq!(crossing.way(target), "direct");
    }
    crossing.revive(1);
    eventually("the second way", || (crossing.way(target) == "by-east").then_some(()));
    crossing.revive(0);
    eventually("the first way", || (crossing.way(target) == "by-west").then_some(()));
    assert_eq!(crossing.way(target), "by-west");
}

/// A target that refuses has been reached: no other way is tried, or a refused target would not stay refused.
#[test]
fn a_refused_target_is_not_tried_again_by_another_way() {
    let mut crossing = Crossing::new("[[route]]\npath = [\"by-west\", \"by-east\", \"direct\"]\n");
    for _ in 0..3 {
        assert_eq!(socks5(crossing.home.address(), nobody()).map(|_| ()), Err(5));
        let closed = crossing.home.closed();
        assert_eq!((&closed["path"], &closed["end"]), (&"by-west".into(), &"refused".into()), "{closed}");
    }
    assert_eq!(crossing.way(parrot()), "by-west", "a refused target is no reason to leave a way");
}

#[test]
fn when_every_way_is_down_the_client_is_told_so() {
    let mut crossing = Crossing::new("[[route]]\npath = [\"by-west\", \"by-east\"]\n");
    crossing.kill(0);
    crossing.kill(1);
    assert_eq!(socks5(crossing.home.address(), parrot()).map(|_| ()), Err(1));
    assert_eq!(crossing.home.closed()["end"], "refused");
    crossing.revive(1);
    eventually("the second way", || socks5(crossing.home.address(), parrot()).ok());
}

/// A mistake in a route or a path is found by `check`, not by a client.
#[test]
fn routes_and_paths_that_lead_nowhere_are_mistakes() {
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
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{tables}");
        assert!(said.contains(key), "no word of {key} in:\n{said}");
    }
}

/// A relay with a URL is a foreign proxy, and may be in a path like any.
#[test]
fn a_path_may_go_through_a_foreign_proxy() {
    let proxy = Relay::listen(&["auto://127.0.0.1:0"]);
    let tables = format!("[[relay]]\nname = \"corp\"\nurl = \"socks5://{}\"\n", proxy.address());
    let mut relay = Site::new().home(&(tables + &everything_by("by-corp", &["corp".to_owned()])), AUTO);
    echoes(&mut socks5(relay.address(), parrot()).unwrap());
    assert_eq!(relay.closed()["path"], "by-corp");
}

/// An undetected loop ends at the deadline of the first relay, 15 s; this is well before.
const AT_ONCE: Duration = Duration::from_secs(5);

fn peers(site: &Site, callers: &[&Site]) -> String {
    let names = ["first-caller", "second-caller"];
    let lines: Vec<(&str, &str)> = callers.iter().map(|caller| caller.key.public.as_str()).zip(names).collect();
    format!("peers = {:?}\n", site.admit(&lines))
}

#[test]
fn two_relays_that_forward_to_each_other_notice() {
    for encrypt in [false, true] {
        let [home, one, two] = [Site::new(), Site::new(), Site::new()];
        let forward = |site: &Site| format!("forward = [\"{}&encrypt={encrypt}\"]\n", site.url());
        let mut first = one.relay(&forward(&two), &peers(&one, &[&home, &two]));
        let _second = two.relay(&forward(&one), &peers(&two, &[&one]));
        let mut relay = home.home(&forward(&one), AUTO);
        let asked = Instant::now();
        assert_eq!(socks5(relay.address(), parrot()).map(|_| ()), Err(1));
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
        assert_eq!(session_closed(&mut relay)["end"], "loop");
        // Its first session was on the way when the second one came.
        let ends = [session_closed(&mut first), session_closed(&mut first)]
            .map(|closed| closed["end"].as_str().unwrap().to_owned());
        assert!(ends.iter().all(|end| end == "loop"), "{ends:?}");
        // It knew the session when it came back, and did not wait until its hops were used up.
        first.signal("TERM");
        let more = first.rest().iter().filter(|event| event["target"].is_string()).count();
        assert_eq!(more, 0, "it went round and round");
    }
}

/// A ring of three, and clients at one of the relays in it: it has a listener of each kind.
#[test]
fn a_ring_is_noticed_by_the_relay_it_comes_back_to() {
    let ring = [Site::new(), Site::new(), Site::new()];
    let settings = |at: usize| format!("forward = [\"{}\"]\n", ring[(at + 1) % 3].url());
    let door = "[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n";
    let entrance = |at: usize| peers(&ring[at], &[&ring[(at + 2) % 3]]);
    let mut first = ring[0].relay(&(settings(0) + door), &entrance(0));
    let _others = [1, 2].map(|at| ring[at].relay(&settings(at), &entrance(at)));
    let asked = Instant::now();
    assert_eq!(socks5(first.address(), parrot()).map(|_| ()), Err(1));
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(first.next(|event| event["event"] == "closed" && event["listener"] == "door")["end"], "loop");
}

/// The HTTP client of a loop is told so, too.
#[test]
fn a_loop_has_a_word_in_proxy_status() {
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

/// A relay is known by its key, so it cannot be on a path twice, neither by its name nor by another one.
#[test]
fn a_path_that_leads_back_is_a_mistake() {
    let [home, one, two] = [Site::new(), Site::new(), Site::new()];
    let tables = one.table("one", "") + &two.table("two", "");
    let again = one.table("again", "");
    for (tables, names, key) in [
        (tables.clone(), ["one", "two", "one"], "path[1].relays"),
        (tables + &again, ["one", "two", "again"], "relay[3].key"),
    ] {
        let file = home.write_home(&(tables + &everything_by("way", &names.map(str::to_owned))), AUTO);
        let checked = ekiden().arg("check").arg(&file).output().unwrap();
        let said = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(2), "{names:?}: {said}");
        assert!(said.contains(key), "no word of {key} in:\n{said}");
    }
}

/// No false positives: the same relays, one after the other, for many sessions at once.
#[test]
fn many_sessions_by_one_way_are_no_loop() {
    let chain = Chain::of(2);
    let mut pairs: Vec<_> = (0..20).map(|_| chain.pair()).collect();
    for (client, server) in &mut pairs {
        talk(client, server);
    }
}

#[test]
fn a_relay_that_is_its_own_next_hop_is_refused_at_the_start() {
    let site = Site::new();
    let file = site.write(&format!("forward = [\"{}\"]\n", site.url()), "");
    let output = ekiden().args(["run", "--admin", "off", "-c"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}

//! Datagrams through relays: delivery, and the rules and limits of each relay.

use std::net::SocketAddr;

use serde_json::Value;

use crate::client::*;
use crate::harness::*;
use crate::relays::*;

/// Waits for the `closed` event of the association on a relay of a chain.
fn association_closed(relay: &mut Relay, path: &str) -> Value {
    relay.next(|event| event["event"] == "closed" && event["path"] == path)
}

#[test]
fn datagrams_cross_chains_of_one_to_three_relays_and_back() {
    let (v4, v6) = (udp_echo_server("127.0.0.1"), udp_echo_server("::1"));
    for routing in [Routing::Path, Routing::Forward] {
        for relays in 1..=3 {
            let mut chain = Layout { relays, routing, ..Layout::default() }.start();
            let client = Client::new(chain.home.address());
            client.assert_echo(v4, b"one");
            client.assert_echo(v6, b"");
            client.assert_echo(v4, &pattern(1400));
            client.send(&name_header("a.localhost", v4.port()), b"name");
            assert_eq!(client.receive(10), (header(v4), b"re:name".to_vec()), "the last relay resolves the name");
            let shown = &chain.home.sessions()[0];
            assert_eq!((&shown["bytes_up"], &shown["up"]["congestion"].is_string()), (&1407.into(), &true), "{shown}");
            drop(client);
            let path = shown["path"].as_str().unwrap().to_owned();
            let home = association_closed(&mut chain.home, &path);
            assert_closed_by(&path, &home, "finished", 1407, 1419, 0);
            for (at, relay) in chain.relays.iter_mut().enumerate() {
                let closed = relay.closed();
                assert_eq!((&closed["end"], &closed["trace"]), (&"finished".into(), &home["trace"]), "{at}: {closed}");
                assert_eq!(
                    (&closed["bytes_up"], &closed["bytes_down"]),
                    (&1407.into(), &1419.into()),
                    "{at}: {closed}"
                );
                let is_last = at + 1 == relays;
                assert_eq!(closed["path"] == "udp", is_last, "{relays} relays by {routing:?}: {closed}");
            }
        }
    }
}

/// Each of the three relays denies a different server.
#[test]
fn rules_of_every_relay_apply() {
    let servers: Vec<SocketAddr> = (0..4).map(|_| udp_echo_server("127.0.0.1")).collect();
    let denies = |at: usize| format!("deny = [\"*:{}\"]\n", servers[at].port());
    let sites: Vec<Site> = (0..3).map(|_| Site::new()).collect();
    let far = sites[2].relay("", &format!("allow_open = true\n{}", denies(2)));
    let middle = sites[1].relay(&sites[2].table("far", ""), &format!("allow_open = true\n{}", denies(1)));
    let tables = sites[1].table("middle", "") + &sites[2].table("far", "");
    let way = route_all_through("way", &["middle".to_owned(), "far".to_owned()]);
    let mut home = sites[0].home(&(tables + &way), &(AUTO.to_owned() + &denies(0)));
    let client = Client::new(home.address());
    for denied in &servers[..3] {
        client.send(&header(*denied), b"no");
    }
    client.assert_echo(servers[3], b"yes");
    for (name, relay, listener) in [("home", &home, "door"), ("middle", &middle, "section"), ("far", &far, "section")] {
        assert_eq!(dropped(relay, listener, "denied"), 1, "{name}");
    }
    drop(client);
    assert_closed_by("way", &home.closed(), "finished", 7, 6, 1);
}

/// The last relay accepts datagrams only from addresses to which the client has sent.
#[test]
fn unsolicited_datagrams_are_dropped_by_the_last_relay() {
    let chain = Chain::start(2);
    let server = socket("127.0.0.1".parse().unwrap());
    let client = Client::new(chain.home.address());
    client.send(&header(server.local_addr().unwrap()), b"hello");
    let (_, relayed_from) = server.recv_from(&mut [0; 16]).unwrap();
    let at = SocketAddr::new("127.0.0.1".parse().unwrap(), relayed_from.port());
    socket("127.0.0.2".parse().unwrap()).send_to(b"stranger", at).unwrap();
    server.send_to(b"welcome", at).unwrap();
    assert_eq!(client.receive(10), (header(server.local_addr().unwrap()), b"welcome".to_vec()));
    assert_eq!(dropped(&chain.relays[1], "section", "stranger"), 1);
    assert_eq!(dropped(&chain.home, "door", "stranger"), 0);
}

/// The routes apply to each target: one server is reached directly, the other through a relay.
#[test]
fn one_association_uses_several_routes() {
    let (near, far) = (udp_echo_server("127.0.0.1"), udp_echo_server("127.0.0.1"));
    let (site, at_home) = (Site::new(), Site::new());
    let mut relay = site.relay("", "allow_open = true\n");
    let routes = format!(
        "{}[[route]]\nto = [\"*:{}\"]\npath = [\"direct\"]\n{}",
        site.table("far", ""),
        near.port(),
        route_all_through("way", &["far".to_owned()])
    );
    let home = at_home.home(&routes, AUTO);
    let client = Client::new(home.address());
    client.assert_echo(near, b"near");
    client.assert_echo(far, b"far");
    drop(client);
    let closed = relay.closed();
    assert_eq!((&closed["bytes_up"], &closed["path"]), (&3.into(), &"udp".into()), "{closed}");
}

#[test]
fn refusal_by_the_last_relay_is_reported_with_its_cause() {
    for (listener_keys, cause, detail) in
        [("udp = false\n", "denied", "reported by relay-2"), ("sessions = 1\n", "session_limit", "reported by relay-2")]
    {
        let mut chain = Layout { relays: 2, far_listener_keys: listener_keys.to_owned(), ..Layout::default() }.start();
        let _first = (cause == "session_limit").then(|| Client::new(chain.home.address()));
        let (mut tcp, reply, _) = request_association(chain.home.address(), &ANY_ADDRESS);
        assert_eq!(reply, 2, "not allowed by the rules: {listener_keys}");
        assert!(is_closed(&mut tcp));
        let closed = association_closed(&mut chain.home, "way");
        assert_eq!(closed["end"], cause, "{closed}");
        assert!(closed["detail"].as_str().unwrap().contains(detail), "{closed}");
    }
}

/// The last relay has `sessions = 1`, so each association has to release the only session for the next one.
#[test]
fn closed_association_releases_its_place() {
    let server = udp_echo_server("127.0.0.1");
    let chain = Layout { far_listener_keys: "sessions = 1\n".to_owned(), ..Layout::default() }.start();
    for _ in 0..3 {
        let client = Client::new(chain.home.address());
        client.assert_echo(server, b"mine");
        drop(client);
        eventually("the end of the association", || chain.relays[0].sessions().is_empty().then_some(()));
    }
}

/// The relay that is configured with the rate drops the datagram; the relay before it does not.
#[test]
fn datagrams_above_the_rate_are_dropped_by_the_last_relay() {
    let server = udp_echo_server("127.0.0.1");
    let chain = Layout { far_listener_keys: "rate = \"8kbit/s\"\n".to_owned(), ..Layout::default() }.start();
    let client = Client::new(chain.home.address());
    client.assert_echo(server, &pattern(1400));
    // The tokens for one datagram arrive in 1.4 s, so that a datagram may pass on a busy machine.
    eventually("a dropped datagram", || {
        client.send(&header(server), &pattern(1400));
        (dropped(&chain.relays[0], "section", "over_limit") > 0).then_some(())
    });
    assert_eq!(dropped(&chain.home, "door", "over_limit"), 0);
}

/// Regression: a relay that only forwards records noticed its used up quota after the idle timeout, and dropped all
/// datagrams until then.
#[test]
fn used_up_quota_of_a_middle_relay_ends_the_association() {
    let server = udp_echo_server("127.0.0.1");
    let sites: Vec<Site> = (0..3).map(|_| Site::new()).collect();
    let _far = sites[2].relay("", "allow_open = true\n");
    let usage = format!("[limits]\nusage_file = {:?}\n", sites[1].folder.0.join("usage.db"));
    let quota = "allow_open = true\nquota = \"4000B/day\"\n";
    let mut middle = sites[1].relay(&(usage + &sites[2].table("far", "")), quota);
    let tables = sites[1].table("middle", "") + &sites[2].table("far", "");
    let way = route_all_through("way", &["middle".to_owned(), "far".to_owned()]);
    let home = sites[0].home(&(tables + &way), AUTO);
    let client = Client::new(home.address());
    client.assert_echo(server, b"one");
    eventually("the end of the association", || {
        client.send(&header(server), &pattern(1400));
        middle.sessions().is_empty().then_some(())
    });
    let closed = middle.closed();
    assert_eq!(closed["end"], "over_quota", "{closed}");
}

/// The kill of the relay ends the lane. The association remains, and a later datagram opens another lane. Regression:
/// the session kept the socket of its first lane.
#[test]
fn an_association_survives_a_restart_of_the_relay() {
    let server = udp_echo_server("127.0.0.1");
    let (site, at_home) = (Site::new(), Site::new());
    let mut relay = site.relay("", "allow_open = true\n");
    let mut home = at_home.home(&(site.table("far", "") + &route_all_through("way", &["far".to_owned()])), AUTO);
    let client = Client::new(home.address());
    client.assert_echo(server, b"before");
    let has_upstream = |home: &Relay| home.sessions()[0]["up"].is_object();
    assert!(has_upstream(&home));
    relay.signal("KILL");
    relay.exit_code();
    home.next(|event| {
        event["event"] == "warning" && event.to_string().contains("datagrams of a UDP association are dropped")
    });
    assert!(!has_upstream(&home));
    let _relay = site.relay("", "allow_open = true\n");
    client.wait_echo(server);
}

/// `timeouts.idle` of the last relay ends the association there, and the client's association remains.
#[test]
fn an_idle_association_ends_on_the_last_relay() {
    let mut chain = Layout { far: "[timeouts]\nidle = \"300ms\"\n".to_owned(), relays: 2, ..Layout::default() }.start();
    let client = Client::new(chain.home.address());
    let closed = chain.relays[1].closed();
    assert_eq!((&closed["end"], &closed["path"]), (&"finished".into(), &"udp".into()), "{closed}");
    client.wait_echo(udp_echo_server("127.0.0.1"));
}

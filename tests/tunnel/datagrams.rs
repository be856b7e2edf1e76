//! Lanes carry packets other than TCP between the sites, in both directions and unchanged.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use serde_json::Value;

use crate::harness::*;
use crate::lanes::*;
use crate::network::*;
use crate::programs::is_any_missing;
use crate::relays::RunningRelay;
use crate::sites::*;

/// Starts the sites after `change` has modified the configurations. `None` without ping(8) or network namespaces.
fn sites(change: impl FnOnce(&mut BoxConfigs)) -> Option<Sites> {
    if is_any_missing(&["ping"]) {
        return None;
    }
    let row = hosts(&BOTH)?;
    let mut configs = BoxConfigs::new(&row, "");
    change(&mut configs);
    Some(Sites::start(row, configs))
}

#[test]
fn pings_cross_in_both_directions() {
    let Some(mut sites) = sites(|_| ()) else { return };
    for family in BOTH {
        for (from, to) in [("client", "server"), ("server", "client")] {
            let address = sites.address(to, family);
            wait_reachable(&sites.row[from], address);
            check_answered(&sites.boxes(), &sites.row[from], address, 20, &["-s", "1000"]);
        }
    }
    // No packet is lost between the relays: each relay has received as many packets as the other has sent.
    let total = |running, what: &str| lanes(running).iter().map(|lane| lane[what].as_u64().unwrap()).sum::<u64>();
    for (from, to) in [(&sites.left, &sites.right), (&sites.right, &sites.left)] {
        let both = || (total(from, "packets_sent"), total(to, "packets_received"));
        eventually("the arrival of all sent packets", || {
            Some(both()).filter(|(sent, received)| sent == received && *sent >= 80)
        });
    }
    let lane = &lanes(&sites.left)[0];
    assert_eq!((&lane["stands"], &lane["waiting"]), (&true.into(), &0.into()), "{lane}");
    assert!(lane["packets_sent"].as_u64() >= Some(60) && lane["packets_received"].as_u64() >= Some(60), "{lane}");
    assert!(lane["bytes_sent"].as_u64() > Some(60_000), "{lane}");
    let sent = |running: &RunningRelay| {
        let series = |listener| format!("ekiden_tunnel_packets_total{{listener=\"{listener}\",direction=\"up\"}}");
        ["tunnel", "section"].map(|listener| running.relay.metric(&series(listener)).unwrap_or(0)).iter().sum::<u64>()
    };
    assert!(sent(&sites.left) >= 60 && sent(&sites.right) >= 60);
    let table = sites.left.relay.status(&[]);
    assert!(table.contains("LANE BY") && table.contains("long"), "{table}");

    // A lane that the other relay has dialled is reported as a session, with bytes in both directions.
    let dialled = lanes(&sites.left).iter().any(|lane| lane["dialled"] == true);
    assert!(dialled, "{:?}", lanes(&sites.left));
    sites.left.relay.signal("TERM");
    let closed = sites.right.relay.next(|event| event["event"] == "closed" && event["target"].is_null());
    assert_eq!((&closed["peer"], &closed["listener"]), (&"other".into(), &"section".into()), "{closed}");
    assert!(closed["bytes_up"].as_u64() > Some(30_000) && closed["bytes_down"].as_u64() > Some(30_000), "{closed}");
}

#[test]
fn one_dialling_box_is_sufficient() {
    let Some(mut sites) = sites(|configs| disable_dialling(&mut configs.right)) else { return };
    let (client, server) = (sites.address("client", Family::V4), sites.address("server", Family::V4));
    assert_eq!(pings(&sites.row["server"], client, 2, &[]), 0, "a ping without a lane was answered");
    assert!(wait_warning(&mut sites.right, "no lane by long").contains("refused"));
    wait_reachable(&sites.row["client"], server);
    // The lane carries both directions.
    check_answered(&sites.boxes(), &sites.row["server"], client, 20, &[]);
    assert!(dropped(&sites.right, "tunnel", "no_lane") + dropped(&sites.right, "tunnel", "late") > 0);
    assert_eq!(lanes(&sites.right).iter().filter(|lane| lane["dialled"] == false).count(), 1);
}

#[test]
fn answer_only_box_uses_the_lane_of_the_other_box() {
    let only_answers = |configs: &mut BoxConfigs| {
        let (before, rest) = configs.right.split_once("[[route]]").unwrap();
        let (_, behind) = rest.split_once("[[listener]]").unwrap();
        configs.right = format!("{before}[[listener]]{behind}answer_only = true\n");
    };
    let Some(mut sites) = sites(only_answers) else { return };
    let (client, server) = (sites.address("client", Family::V4), sites.address("server", Family::V4));
    assert_eq!(pings(&sites.row["server"], client, 2, &[]), 0, "a ping without a lane was answered");
    wait_reachable(&sites.row["client"], server);
    // The lane carries both directions.
    check_answered(&sites.boxes(), &sites.row["server"], client, 20, &[]);
    let (mut near, mut far) = sites.connect("client", "server", Family::V4);
    exchange(&mut near, &mut far);
    let refused = sites.row["server"].try_connect(SocketAddr::new(client, 9)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::HostUnreachable);
    let closed = sites.right.relay.next(|event| event["event"] == "closed" && event["listener"] == "tunnel");
    assert_eq!(closed["end"], "unreachable", "{closed}");
}

#[test]
fn datagrams_of_all_lengths_cross_unchanged() {
    let Some(sites) = sites(|_| ()) else { return };
    for family in BOTH {
        let echo = Echo::start(&sites.row["server"], sites.address("server", family));
        let lengths: Vec<usize> = (1..1400).step_by(97).chain([1399, 1400]).collect();
        check_echoes(&sites.row["client"], &echo, &lengths);
        // These datagrams are sent in fragments, which the relays do not reassemble.
        check_echoes(&sites.row["client"], &echo, &[1453, 1473, 2000, 4000, 9000]);
    }
}

/// Packets longer than the MTU of the device cause ICMP errors, from which the senders discover the path MTU.
#[test]
fn smaller_tunnel_mtu_is_discovered() {
    let Some(row) = hosts(&BOTH) else { return };
    let mut configs = BoxConfigs::new(&row, "mtu = 1300");
    configs.left += "source = \"10.0.0.2\"\n";
    let sites = Sites::start(row, configs);
    for family in BOTH {
        let echo = Echo::start(&sites.row["server"], sites.address("server", family));
        check_echoes(&sites.row["client"], &echo, &[100, 1272, 1400, 3000]);
    }
}

/// Each box replies with ICMP Time Exceeded, so traceroute(8) finds both.
#[test]
fn ttl_expires_at_each_box() {
    let Some(sites) = sites(|configs| {
        configs.left += "source = \"10.0.0.2\"\n";
        configs.right += "source = \"10.0.2.1\"\n";
    }) else {
        return;
    };
    let server = sites.address("server", Family::V4);
    wait_reachable(&sites.row["client"], server);
    let server = server.to_string();
    for (lifetime, reply) in [("1", "From 10.0.0.2 "), ("2", "From 10.0.2.1 "), ("3", "from 10.0.2.2")] {
        let arguments = ["-n", "-c", "1", "-W", "1", "-t", lifetime, &server];
        let answered = || stdout_of(&sites.row["client"], "ping", &arguments).contains(reply).then_some(());
        eventually(&format!("{reply:?} for a packet of {lifetime} hops"), answered);
    }
}

#[test]
fn spoofed_source_is_dropped_and_counted() {
    let Some(sites) = sites(|_| ()) else { return };
    let server = sites.address("server", Family::V4);
    wait_reachable(&sites.row["client"], server);
    sites.row["client"].ip("address add 10.9.9.9/32 dev right\n");
    let forged = Ping { host: &sites.row["client"], address: server, more: &["-I", "10.9.9.9"] };
    check_dropped(&sites.boxes(), &forged, &sites.right, "section", "spoofed", 3);
    // The lane still works.
    check_answered(&sites.boxes(), &sites.row["client"], server, 20, &[]);
}

/// Starts the sites; the right relay denies the server to the left relay.
fn sites_with_denied_server() -> Option<Sites> {
    sites(|configs| {
        configs.right = configs.right.replace("allow_private = true", "allow_private = true\ndeny = [\"10.0.2.2\"]");
    })
}

/// Regression: the rules did not apply to packets in the lane that the right relay has dialled, and dropped answers in
/// the lane that the left relay has dialled.
#[test]
fn destinations_denied_by_the_far_side_are_dropped() {
    for dialler in ["client", "server"] {
        let Some(sites) = sites_with_denied_server() else { return };
        let (client, server) = (sites.address("client", Family::V4), sites.address("server", Family::V4));
        // The first packet decides which relay dials the lane of all further packets.
        let (first, listener) = match dialler {
            "client" => (sites.row.right("right", Family::V4), "section"),
            _ => (client, "tunnel"),
        };
        wait_reachable(&sites.row[dialler], first);
        let denied = Ping { host: &sites.row["client"], address: server, more: &[] };
        check_dropped(&sites.boxes(), &denied, &sites.right, listener, "denied", 3);
        check_answered(&sites.boxes(), &sites.row["server"], client, 20, &[]);
        let echo = Echo::start(&sites.row["client"], client);
        check_echoes(&sites.row["server"], &echo, &[1, 1400, 4000]);
    }
}

/// Regression: the ICMP error about a packet of the server was denied, because the server is its destination.
#[test]
fn icmp_errors_about_packets_of_a_denied_host_arrive() {
    let Some(sites) = sites_with_denied_server() else { return };
    let (client, server) = (sites.address("client", Family::V4), &sites.row["server"]);
    wait_reachable(&sites.row["client"], sites.row.right("right", Family::V4));
    let socket = server.inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    socket.connect((client, CLOSED_PORT)).unwrap();
    socket.set_read_timeout(Some(RETRY_INTERVAL)).unwrap();
    eventually("port unreachable", || {
        // Fails with the error of an earlier datagram.
        let sent = socket.send(b"anybody there?");
        let received = socket.recv(&mut [0; 16]);
        [sent.err(), received.err()].into_iter().flatten().find(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
}

#[test]
fn missing_tunnel_at_the_far_side_is_reported() {
    let Some(mut sites) = sites(|configs| {
        let (before, _) = configs.right.split_once("[[listener]]\nname = \"tunnel\"").unwrap();
        configs.right = before.to_owned();
    }) else {
        return;
    };
    assert_eq!(pings(&sites.row["client"], sites.address("server", Family::V4), 5, &[]), 0);
    let warning = wait_warning(&mut sites.left, "no lane by long");
    assert!(warning.contains("other has no tunnel"), "{warning}");
    let closed = sites.right.relay.closed();
    assert_eq!(closed["end"], "unreachable");
    assert!(closed["detail"].as_str().unwrap().contains("kind = \"tun\""), "{closed}");
}

/// The middle relay has no tunnel, and only forwards packets to the far relay. `from=` of the middle relay in the peers
/// file of the far relay lists the networks of the site behind it, and its own peers file binds these networks to the
/// site.
#[test]
fn middle_relay_forwards_packets_and_applies_its_rules() {
    let Some(row) = hosts(&BOTH) else { return };
    let (mut configs, middle, folder) = (BoxConfigs::new(&row, ""), Key::new(), Folder::new());
    let line = |name: &str| configs.left.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let (far, at) = (line("key = "), line("address = "));
    let public = |file: &str| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().find_map(|line| line.strip_prefix("public-key: ")).unwrap().to_owned()
    };
    let own_file = line("private_key = ").split('"').nth(1).unwrap().to_owned();
    let peers = folder.write("peers", format!("{} left from=10.0.0.0/24,fd00:0:0:0::/64\n", public(&own_file)));
    let next = format!("[[relay]]\nname = \"other\"\n{at}\n{far}\nencrypt = true\n");
    let text = |rules: &str| {
        format!(
            "private_key = {:?}\n{next}[[listener]]\nname = \"section\"\nkind = \"section\"\nbind = \"[::]:7002\"\n\
             peers = {peers:?}\n{rules}\n",
            middle.file
        )
    };
    // The far relay admits only the middle relay.
    let peers_of_right = configs.right.lines().find(|line| line.starts_with("peers = ")).unwrap();
    std::fs::write(
        peers_of_right.split('"').nth(1).unwrap(),
        format!("{} middle from=10.0.0.0/24,fd00:0:0:0::/64\n", middle.public),
    )
    .unwrap();
    let table = format!(
        "[[relay]]\nname = \"middle\"\naddress = \"127.0.0.1:7002\"\nkey = \"{}\"\nencrypt = true\n[[relay]]",
        middle.public
    );
    configs.left = configs.left.replacen("[[relay]]", &table, 1).replacen("[\"other\"]", "[\"middle\", \"other\"]", 1);
    let rules = "allow = [\"10.0.2.2\", \"fd00:0:0:2::2\"]";
    let mut running = RunningRelay::start(&row["left"], &text(rules));
    let sites = Sites::start(row, configs);
    for family in BOTH {
        let echo = Echo::start(&sites.row["server"], sites.address("server", family));
        check_echoes(&sites.row["client"], &echo, &[1, 100, 1400, 4000]);
    }
    // The access rules of the middle relay apply to packets as well.
    let boxes = [&sites.left, &running, &sites.right];
    let denied = Ping { host: &sites.row["client"], address: sites.row.right("right", Family::V4), more: &[] };
    check_dropped(&boxes, &denied, &running, "section", "denied", 3);
    assert_eq!(lanes(&running).len(), 2, "{:?}", lanes(&running));
    // The middle relay drops packets from addresses outside the networks of its peer.
    sites.row["client"].ip("address add 10.9.9.9/32 dev right\n");
    let forged =
        Ping { host: &sites.row["client"], address: sites.address("server", Family::V4), more: &["-I", "10.9.9.9"] };
    check_dropped(&boxes, &forged, &running, "section", "wrong_peer", 3);
    wait_counted_once(&running);
    drop(sites);
    let closed = running.relay.closed();
    assert!(closed["bytes_up"].as_u64() > Some(10_000) && closed["bytes_down"].as_u64() > Some(10_000), "{closed}");
}

/// Waits until the session of a forwarded lane, and the listener `section`, have counted the packets that the lane to
/// the previous relay has carried. They counted each packet twice, at both connections of the lane.
fn wait_counted_once(running: &RunningRelay) {
    eventually("equal counts of the lane, its session and the listener", || {
        let lane = lanes(running).into_iter().find(|lane| lane["dialled"] == false)?;
        let packets = running.relay.metric("ekiden_tunnel_packets_total{listener=\"section\",direction=\"up\"}");
        let is_counted = |session: &Value| {
            session["bytes_up"] == lane["bytes_received"] && session["bytes_down"] == lane["bytes_sent"]
        };
        let is_once = packets == lane["packets_received"].as_u64() && running.relay.sessions().iter().any(is_counted);
        is_once.then_some(())
    });
}

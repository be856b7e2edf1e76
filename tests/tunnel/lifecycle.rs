//! Kill, restart, reload, drain and upgrade of the relays of a tunnel with open connections.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::harness::*;
use super::lanes::*;
use super::network::*;
use super::relays::RunningRelay;
use super::sites::*;

/// Drops incoming resets, as if they were lost on the path.
const DROP_RESETS: &str =
    "table inet deaf { chain input { type filter hook input priority 0; tcp flags & rst == rst drop; }; }";

#[test]
fn a_killed_daemon_leaves_no_device_and_no_route() {
    let Some(row) = hosts(&BOTH) else { return };
    // An operator's route that discards packets while the tunnel is down.
    row["left"].ip("route add unreachable 10.0.2.0/24 metric 9999\n");
    let configs = BoxConfigs::new(&row, "");
    let sites = Sites::start(row, configs);
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        exchange(client, server);
    }
    assert_eq!(tunnel_devices(&sites.row["left"]), [DEVICE; 3]);
    let site = sites.left.kill();
    assert_eq!(tunnel_devices(&sites.row["left"]), Vec::<String>::new());
    for (client, server) in &mut flows {
        assert_eq!((read_remaining(client).1, read_remaining(server).1), (Ending::Reset, Ending::Reset));
    }
    let left = site.start(&sites.row["left"]);
    let sites = Sites { left, ..sites };
    for family in BOTH {
        let (mut client, mut server) = sites.connect("client", "server", family);
        exchange(&mut client, &mut server);
    }
}

/// The reset of the kill is lost, so the next packet of the client has to cause another reset.
#[test]
fn flow_from_before_a_restart_is_reset_at_its_next_packet() {
    for from in ["client", "left"] {
        let Some(sites) = Sites::new("") else { return };
        let mut flows = BOTH.map(|family| sites.connect(from, "server", family));
        for (client, server) in &mut flows {
            exchange(client, server);
        }
        sites.row[from].nft(DROP_RESETS);
        let left = sites.left.kill().start(&sites.row["left"]);
        sites.row[from].nft("delete table inet deaf");
        for (client, _) in &mut flows {
            client.write_all(b"anybody there?").unwrap();
            assert_eq!(read_remaining(client), (Vec::new(), Ending::Reset), "{from}");
        }
        let ended = sites.row["left"].counter("ekiden", "ended");
        assert!((2..10).contains(&ended), "{ended} resets by the rules, expected 2 to 9");
        let sites = Sites { left, ..sites };
        for family in BOTH {
            let (mut client, mut server) = sites.connect(from, "server", family);
            exchange(&mut client, &mut server);
        }
    }
}

#[test]
fn far_end_restart_resets_flows_and_accepts_new_flows() {
    let Some(sites) = Sites::new("") else { return };
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        exchange(client, server);
    }
    let site = sites.right.kill();
    for (client, server) in &mut flows {
        assert_eq!((read_remaining(client).1, read_remaining(server).1), (Ending::Reset, Ending::Reset));
    }
    let (listener, address) = sites.row.server(Family::V4);
    for from in ["client", "left"] {
        let error = sites.row[from].try_connect(address).expect_err("the far end is down");
        assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{from}: no failure is reported at once");
    }
    let right = site.start(&sites.row["right"]);
    let client =
        eventually("a connection through the restarted relay", || sites.row["client"].try_connect(address).ok());
    let (mut client, mut server) = (client, accept(&listener));
    exchange(&mut client, &mut server);
    drop(right);
}

/// Sets the flag on drop, so that the other thread ends even after a failed assertion.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Packets of the box's own programs go through the device, so their length changes with its MTU.
#[test]
fn transfers_survive_mtu_changes() {
    let Some(sites) = Sites::new("mtu = 1400") else { return };
    let (mut client, mut server) = sites.connect("left", "server", Family::V4);
    let (mut guest, mut host) = sites.connect("client", "server", Family::V4);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                check_transfer(&mut client, &mut server);
                check_transfer(&mut guest, &mut host);
            }
            check_transfer(&mut client, &mut server);
        });
        let _done = SetOnDrop(&done);
        for mtu in ["600", "9000", "576", "65535", "1280", "1500"] {
            let before = sent_into(&sites.row["left"]);
            sites.row["left"].ip(&format!("link set {DEVICE} mtu {mtu}\n"));
            eventually("packets of the expected length", || {
                (sent_into(&sites.row["left"]) > before + 200).then_some(())
            });
            // A new connection sends packets of the maximum length.
            let (mut fresh, mut fresh_server) = sites.connect("left", "server", Family::V4);
            check_transfer(&mut fresh, &mut fresh_server);
        }
    });
}

/// Number of packets that the host has sent to the device.
fn sent_into(host: &Host) -> u64 {
    let shown = host.run("ip", &["-s", "-j", "link", "show", DEVICE], "");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["stats64"]["tx"]["packets"].as_u64().expect("a count")
}

#[test]
fn reload_changes_the_networks_of_a_device_and_keeps_flows() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right, configs } = sites;
    let (mut client, mut server) = {
        let (listener, address) = row.server(Family::V4);
        (row["left"].connect(address), accept(&listener))
    };
    exchange(&mut client, &mut server);
    let shown = || row["left"].run("ip", &["route", "show", "dev", DEVICE], "");
    let wider = configs.left.replace("\"10.0.2.0/24\"", "\"10.0.2.0/24\", \"198.51.100.0/24\"");
    left.reload(&wider);
    assert!(shown().contains("10.0.2.0/24") && shown().contains("198.51.100.0/24"), "{}", shown());
    exchange(&mut client, &mut server);

    // A network of a local interface, and a second device whose name is in use: each reload is rejected without effect.
    let here = wider.replace("198.51.100.0/24", "10.0.0.0/25");
    let taken = "[[route]]\nto = [\"192.0.2.0/24\"]\npath = [\"long\"]\n\
        [[listener]]\nname = \"second\"\nkind = \"tun\"\ndevice = \"left\"\nnet = [\"192.0.2.0/24\"]\n";
    for (bad, text) in [
        (here, "10.0.0.0/25 is a part of 10.0.0.0/24"),
        (wider.clone() + taken, "tunnel left: cannot create the device"),
    ] {
        left.try_reload(&bad.replace("10.0.2.0/24", "203.0.113.0/24"));
        let rejected = left.relay.next(|event| event["event"] == "reload_rejected");
        assert!(rejected["mistakes"][0].as_str().unwrap().contains(text), "{rejected}");
        assert!(shown().contains("10.0.2.0/24") && shown().contains("198.51.100.0/24"), "{}", shown());
        assert!(!shown().contains("203.0.113.0/24"), "{}", shown());
        exchange(&mut client, &mut server);
    }

    left.reload(&configs.left);
    assert!(shown().contains("10.0.2.0/24") && !shown().contains("198.51.100.0/24"), "{}", shown());
    exchange(&mut client, &mut server);
    drop(right);
}

/// A reload with a wrong `source` removed the route, and a reload did not add a route that others had removed: packets
/// took the default route.
#[test]
fn reload_keeps_and_restores_the_routes_of_a_tunnel() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right: _right, configs } = sites;
    let shown = || row["left"].run("ip", &["route", "show", "dev", DEVICE], "");
    let first = shown();
    let with_source = |source: &str| format!("{}source = \"{source}\"\n", configs.left);
    left.try_reload(&with_source("10.0.9.9"));
    let rejected = left.relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("is source an address of this host?"), "{rejected}");
    assert_eq!(shown(), first);

    left.reload(&with_source("10.0.0.2"));
    assert!(shown().contains("10.0.2.0/24") && shown().contains("src 10.0.0.2"), "{}", shown());
    left.reload(&configs.left);
    assert_eq!(shown(), first);

    row["left"].ip(&format!("route del 10.0.2.0/24 dev {DEVICE}\n"));
    left.reload(&configs.left);
    assert_eq!(shown(), first);
    row["left"].ip(&format!("link set {DEVICE} down\nlink set {DEVICE} up\n"));
    assert!(!shown().contains("10.0.2.0/24"), "the kernel removes the routes of an interface that is down");
    left.reload(&configs.left);
    assert_eq!(shown(), first);
}

#[test]
fn reload_removes_and_creates_tunnels() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right: _right, configs } = sites;
    left.reload(&configs.left.replace(DEVICE, "other0"));
    assert_eq!(tunnel_devices(&row["left"]), ["other0"; 3]);
    let (listener, address) = row.server(Family::V4);
    let mut client = row["left"].connect(address);
    exchange(&mut client, &mut accept(&listener));
    left.reload("[[listener]]\nbind = \":0\"\n");
    assert_eq!(tunnel_devices(&row["left"]), Vec::<String>::new());
    left.reload(&configs.left);
    assert_eq!(tunnel_devices(&row["left"]), [DEVICE; 3]);
    let mut client = row["left"].connect(address);
    exchange(&mut client, &mut accept(&listener));
}

/// The deletion of a device is logged, and a reload creates the device again.
#[test]
fn reload_recreates_a_deleted_device() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right: _right, configs } = sites;
    row["left"].ip(&format!("link del {DEVICE}\n"));
    let warning = left.relay.next(|event| event["event"] == "warning");
    assert!(warning["message"].as_str().unwrap().contains("reload (SIGHUP) to create the device again"), "{warning}");
    left.reload(&configs.left);
    let (listener, address) = row.server(Family::V4);
    let mut client = row["client"].connect(address);
    exchange(&mut client, &mut accept(&listener));
}

/// After SIGTERM, open connections continue and new connections are rejected at once. The device and its routes are
/// gone after the exit of the relay.
#[test]
fn draining_relay_keeps_flows_and_rejects_new_flows() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, left, right: _right, .. } = sites;
    let RunningRelay { mut relay, .. } = left;
    let (listener, address) = row.server(Family::V4);
    let mut client = row["left"].connect(address);
    let mut server = accept(&listener);
    exchange(&mut client, &mut server);
    relay.signal("TERM");
    relay.next(|event| event["event"] == "draining");
    exchange(&mut client, &mut server);
    let error = row["client"].try_connect(address).expect_err("the relay drains");
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    // The counter includes retransmitted SYNs.
    assert!(row["left"].counter("ekiden", "unserved") >= 1, "not rejected at once");
    drop((client, server));
    assert_eq!(relay.exit_code(), Some(0));
    assert_eq!(tunnel_devices(&row["left"]), Vec::<String>::new());
}

#[test]
fn upgrade_keeps_the_device_its_routes_and_flows() {
    let Some(mut sites) = Sites::new("") else { return };
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        exchange(client, server);
    }
    for family in BOTH {
        wait_reachable(&sites.row["client"], sites.address("server", family));
    }
    // The line begins with the interface index, which would change with a new device.
    let index = |sites: &Sites, host: &str| {
        let shown = sites.row[host].run("ip", &["-o", "link", "show", "dev", DEVICE], "");
        shown.split(':').next().unwrap().to_owned()
    };
    for host in ["left", "right"] {
        let before = (index(&sites, host), tunnel_devices(&sites.row[host]));
        let running = if host == "left" { &mut sites.left } else { &mut sites.right };
        running.relay.signal("USR2");
        running.relay.upgraded();
        assert_eq!((index(&sites, host), tunnel_devices(&sites.row[host])), before, "{host}");
        for (client, server) in &mut flows {
            exchange(client, server);
            check_transfer(client, server);
        }
        for family in BOTH {
            wait_reachable(&sites.row["client"], sites.address("server", family));
            let (mut client, mut server) = sites.connect("client", "server", family);
            exchange(&mut client, &mut server);
        }
    }
    drop(flows);
    let (first, serving) = (sites.left.relay.id(), sites.left.serving_process());
    signal(first, "TERM");
    wait_process_end(first);
    assert!(!tunnel_devices(&sites.row["left"]).is_empty(), "the device has ended with the first process");
    signal(serving, "TERM");
    wait_process_end(serving);
    assert_eq!(tunnel_devices(&sites.row["left"]), Vec::<String>::new());
}

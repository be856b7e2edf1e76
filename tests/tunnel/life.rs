//! Relays of a tunnel start, stop, reload and are upgraded while flows run.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::boxes::Station;
use super::harness::*;
use super::lanes::*;
use super::network::*;
use super::sites::*;

/// Nothing that resets a connection gets in, as if it were lost on the way.
const DEAF: &str =
    "table inet deaf { chain input { type filter hook input priority 0; tcp flags & rst == rst drop; }; }";

#[test]
fn a_killed_daemon_leaves_no_device_and_no_route() {
    let Some(row) = hosts(&BOTH) else { return };
    // An operator's route that discards packets while the tunnel is down.
    row["left"].ip("route add unreachable 10.0.2.0/24 metric 9999\n");
    let texts = Texts::new(&row, "");
    let sites = Sites::start(row, texts);
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        talk(client, server);
    }
    assert_eq!(traces(&sites.row["left"]), [DEVICE; 3]);
    let site = sites.left.kill();
    assert_eq!(traces(&sites.row["left"]), Vec::<String>::new());
    for (client, server) in &mut flows {
        assert_eq!((hear_out(client).1, hear_out(server).1), (Ending::Reset, Ending::Reset));
    }
    let left = site.start(&sites.row["left"]);
    let sites = Sites { left, ..sites };
    for family in BOTH {
        let (mut client, mut server) = sites.connect("client", "server", family);
        talk(&mut client, &mut server);
    }
}

/// The reset is lost, so the client notices at its next write.
#[test]
fn a_flow_from_before_a_restart_is_told_that_it_is_over() {
    for from in ["client", "left"] {
        let Some(sites) = Sites::new("") else { return };
        let mut flows = BOTH.map(|family| sites.connect(from, "server", family));
        for (client, server) in &mut flows {
            talk(client, server);
        }
        sites.row[from].nft(DEAF);
        let left = sites.left.kill().start(&sites.row["left"]);
        sites.row[from].nft("delete table inet deaf");
        for (client, _) in &mut flows {
            client.write_all(b"anybody there?").unwrap();
            assert_eq!(hear_out(client), (Vec::new(), Ending::Reset), "{from}");
        }
        let ended = sites.row["left"].counter("ekiden", "ended");
        assert!((2..10).contains(&ended), "{ended}: that was no loop, and nobody else's answer");
        let sites = Sites { left, ..sites };
        for family in BOTH {
            let (mut client, mut server) = sites.connect(from, "server", family);
            talk(&mut client, &mut server);
        }
    }
}

#[test]
fn the_far_end_restarts_with_flows_running() {
    let Some(sites) = Sites::new("") else { return };
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        talk(client, server);
    }
    let site = sites.right.kill();
    for (client, server) in &mut flows {
        assert_eq!((hear_out(client).1, hear_out(server).1), (Ending::Reset, Ending::Reset));
    }
    let (listener, address) = sites.row.server(Family::V4);
    for from in ["client", "left"] {
        let error = sites.row[from].try_connect(address).expect_err("nobody carries it there");
        assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{from}: a failure that is told, and at once");
    }
    let right = site.start(&sites.row["right"]);
    let client = eventually("the other end to be found again", || sites.row["client"].try_connect(address).ok());
    let (mut client, mut server) = (client, accept(&listener));
    talk(&mut client, &mut server);
    drop(right);
}

/// Tells another thread that this one has done its part, or has failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Packets of the box's own programs go through the device, so their length changes with its MTU.
#[test]
fn the_mtu_changes_while_a_transfer_runs() {
    let Some(sites) = Sites::new("mtu = 1400") else { return };
    let (mut client, mut server) = sites.connect("left", "server", Family::V4);
    let (mut guest, mut host) = sites.connect("client", "server", Family::V4);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                cross(&mut client, &mut server);
                cross(&mut guest, &mut host);
            }
            cross(&mut client, &mut server);
        });
        let _told = Done(&done);
        for mtu in ["600", "9000", "576", "65535", "1280", "1500"] {
            let before = sent_into(&sites.row["left"]);
            sites.row["left"].ip(&format!("link set {DEVICE} mtu {mtu}\n"));
            eventually("packets of that length", || (sent_into(&sites.row["left"]) > before + 200).then_some(()));
            // One that begins now sends the longest there are.
            let (mut fresh, mut its_server) = sites.connect("left", "server", Family::V4);
            cross(&mut fresh, &mut its_server);
        }
    });
}

/// How many packets the host has sent into the device.
fn sent_into(host: &Host) -> u64 {
    let shown = host.run("ip", &["-s", "-j", "link", "show", DEVICE], "");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    shown[0]["stats64"]["tx"]["packets"].as_u64().expect("a count")
}

#[test]
fn a_reload_changes_what_is_behind_the_device_and_keeps_the_rest() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right, texts } = sites;
    let (mut client, mut server) = {
        let (listener, address) = row.server(Family::V4);
        (row["left"].connect(address), accept(&listener))
    };
    talk(&mut client, &mut server);
    let shown = || row["left"].run("ip", &["route", "show", "dev", DEVICE], "");
    let wider = texts.left.replace("\"10.0.2.0/24\"", "\"10.0.2.0/24\", \"198.51.100.0/24\"");
    left.reload(&wider);
    assert!(shown().contains("10.0.2.0/24") && shown().contains("198.51.100.0/24"), "{}", shown());
    talk(&mut client, &mut server);

    // A network that is here, and a second device whose name is taken: all stays as it was.
    let here = wider.replace("198.51.100.0/24", "10.0.0.0/25");
    let taken = "[[route]]\nto = [\"192.0.2.0/24\"]\npath = [\"long\"]\n\
        [[listener]]\nname = \"second\"\nkind = \"tun\"\ndevice = \"left\"\nnet = [\"192.0.2.0/24\"]\n";
    for (bad, says) in [(here, "10.0.0.0/25 is a part of 10.0.0.0/24"), (wider.clone() + taken, "tunnel left: no such")]
    {
        left.try_reload(&bad.replace("10.0.2.0/24", "203.0.113.0/24"));
        let rejected = left.relay.next(|event| event["event"] == "reload_rejected");
        assert!(rejected["mistakes"][0].as_str().unwrap().contains(says), "{rejected}");
        assert!(shown().contains("10.0.2.0/24") && shown().contains("198.51.100.0/24"), "{}", shown());
        assert!(!shown().contains("203.0.113.0/24"), "{}", shown());
        talk(&mut client, &mut server);
    }

    left.reload(&texts.left);
    assert!(shown().contains("10.0.2.0/24") && !shown().contains("198.51.100.0/24"), "{}", shown());
    talk(&mut client, &mut server);
    drop(right);
}

#[test]
fn a_reload_takes_a_tunnel_away_and_makes_another() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right: _right, texts } = sites;
    left.reload(&texts.left.replace(DEVICE, "other0"));
    assert_eq!(traces(&row["left"]), ["other0"; 3]);
    let (listener, address) = row.server(Family::V4);
    let mut client = row["left"].connect(address);
    talk(&mut client, &mut accept(&listener));
    left.reload("[[listener]]\nbind = \":0\"\n");
    assert_eq!(traces(&row["left"]), Vec::<String>::new());
    left.reload(&texts.left);
    assert_eq!(traces(&row["left"]), [DEVICE; 3]);
    let mut client = row["left"].connect(address);
    talk(&mut client, &mut accept(&listener));
}

/// The device is deleted: that is logged, and a reload creates it again.
#[test]
fn a_device_that_was_deleted_comes_back_with_a_reload() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, mut left, right: _right, texts } = sites;
    row["left"].ip(&format!("link del {DEVICE}\n"));
    let told = left.relay.next(|event| event["event"] == "warning");
    assert!(told["message"].as_str().unwrap().contains("a reload (SIGHUP) creates the device again"), "{told}");
    left.reload(&texts.left);
    let (listener, address) = row.server(Family::V4);
    let mut client = row["client"].connect(address);
    talk(&mut client, &mut accept(&listener));
}

/// SIGTERM: running flows continue, new ones are refused at once, and then the device and its routes are gone.
#[test]
fn a_relay_that_drains_carries_on_what_runs() {
    let Some(sites) = Sites::new("") else { return };
    let Sites { row, left, right: _right, .. } = sites;
    let Station { mut relay, .. } = left;
    let (listener, address) = row.server(Family::V4);
    let mut client = row["left"].connect(address);
    let mut server = accept(&listener);
    talk(&mut client, &mut server);
    relay.signal("TERM");
    relay.next(|event| event["event"] == "draining");
    talk(&mut client, &mut server);
    let error = row["client"].try_connect(address).expect_err("it drains");
    assert_eq!(error.kind(), ErrorKind::HostUnreachable);
    // A first packet that is sent again is counted again.
    assert!(row["left"].counter("ekiden", "unserved") >= 1, "at once");
    drop((client, server));
    assert_eq!(relay.exit_code(), Some(0));
    assert_eq!(traces(&row["left"]), Vec::<String>::new());
}

#[test]
fn the_device_stays_with_everything_that_goes_through() {
    let Some(mut sites) = Sites::new("") else { return };
    let mut flows = BOTH.map(|family| sites.connect("client", "server", family));
    for (client, server) in &mut flows {
        talk(client, server);
    }
    for family in BOTH {
        reaches(&sites.row["client"], sites.address("server", family));
    }
    // Its number comes first: another device would have another.
    let index = |sites: &Sites, host: &str| {
        let shown = sites.row[host].run("ip", &["-o", "link", "show", "dev", DEVICE], "");
        shown.split(':').next().unwrap().to_owned()
    };
    for host in ["left", "right"] {
        let before = (index(&sites, host), traces(&sites.row[host]));
        let station = if host == "left" { &mut sites.left } else { &mut sites.right };
        station.relay.signal("USR2");
        station.relay.upgraded();
        assert_eq!((index(&sites, host), traces(&sites.row[host])), before, "{host}");
        for (client, server) in &mut flows {
            talk(client, server);
            cross(client, server);
        }
        for family in BOTH {
            reaches(&sites.row["client"], sites.address("server", family));
            let (mut client, mut server) = sites.connect("client", "server", family);
            talk(&mut client, &mut server);
        }
    }
    drop(flows);
    let (first, serving) = (sites.left.relay.id(), sites.left.serves());
    signal(first, "TERM");
    ended(first);
    assert!(!traces(&sites.row["left"]).is_empty(), "the device is the other process's");
    signal(serving, "TERM");
    ended(serving);
    assert_eq!(traces(&sites.row["left"]), Vec::<String>::new());
}

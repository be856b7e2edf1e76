//! Several daemons on one box, one that may not, and one that changes its mind.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::programs::missing;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

fn instance(number: u8, interface: &str, more: &str) -> String {
    let listener = catching(more).replace("left", interface).replace("7001", &format!("70{number:02}"));
    format!("[transparent]\ninstance = {number}\n{listener}")
}

/// A connection that works, from one host to another.
fn works(row: &Row, from: &str, to: &str, family: Family) -> (TcpStream, TcpStream) {
    let (listener, port) = row[to].listen();
    let ip = if to == "client" { row.right(to, family) } else { row.left(to, family) };
    let mut client = row[from].connect(SocketAddr::new(ip, port));
    let mut server = accept(&listener);
    talk(&mut client, &mut server);
    assert_eq!(plain(server.peer_addr().unwrap()), client.local_addr().unwrap());
    (client, server)
}

/// One for each direction.
#[test]
fn two_on_one_box() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut first = Station::start(&row["near"], &instance(1, "left", ""));
    let mut second = Station::start(&row["near"], &instance(2, "right", ""));
    for family in BOTH {
        let right = works(&row, "client", "server", family);
        let left = works(&row, "server", "client", family);
        assert_eq!([&first, &second].map(|station| station.relay.sessions().len()), [1, 1]);
        drop((left, right));
        for station in [&mut first, &mut second] {
            assert_eq!(station.relay.closed()["end"], "finished");
        }
    }
    // One goes, and takes nothing of the other's with it.
    let (mut client, mut server) = works(&row, "server", "client", Family::V4);
    first.relay.signal("TERM");
    assert_eq!(first.relay.exit_code(), Some(0));
    talk(&mut client, &mut server);
    works(&row, "server", "client", Family::V6);
    assert_eq!(second.relay.closed()["end"], "finished");
    let (_client, server) = works(&row, "client", "server", Family::V4);
    assert!(!is_cut(&server));
}

/// Both at the same interface, each for clients of its own.
#[test]
fn two_for_different_clients() {
    let Some(row) = Row::new(NAMES) else { return };
    let clients = |family| format!("clients = [\"{}\"]", row.right("client", family));
    let stations = [
        Station::start(&row["near"], &instance(1, "left", &clients(Family::V4))),
        Station::start(&row["near"], &instance(2, "left", &clients(Family::V6))),
    ];
    for (mut station, family) in stations.into_iter().zip(BOTH) {
        let (_client, server) = works(&row, "client", "server", family);
        assert!(is_cut(&server));
        assert_eq!(station.relay.sessions().len(), 1, "{family:?}");
        drop((_client, server));
        station.relay.closed();
    }
}

/// The message of `ekiden run` when it fails.
fn fails(host: &Host, command: &mut Command) -> String {
    let output = host.inside(|| command.output()).expect("it runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn the_same_one_twice() {
    let Some(row) = Row::new(NAMES) else { return };
    let first = Station::start(&row["near"], &instance(1, "left", ""));
    let second = site(&instance(1, "right", "").replace("7001", "7002"));
    let said = fails(&row["near"], &mut second.command());
    assert!(said.contains("instance") && said.contains(&first.relay.id().to_string()), "{said}");
    let (_client, server) = works(&row, "client", "server", Family::V4);
    assert!(is_cut(&server), "the first one has lost its rules");
    assert_eq!(first.relay.sessions().len(), 1);
}

#[test]
fn one_that_may_not() {
    if missing(&["setpriv"]) {
        return;
    }
    let Some(row) = Row::new(NAMES) else { return };
    let site = site(&catching(""));
    let command = site.command();
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"]);
    without.arg(command.get_program()).args(command.get_args());
    let said = fails(&row["near"], &mut without);
    assert!(said.contains("CAP_NET_ADMIN") && said.contains("AmbientCapabilities"), "{said}");
    let (_client, server) = works(&row, "client", "server", Family::V4);
    assert!(!is_cut(&server));
}

#[test]
fn listeners_come_and_go_while_sessions_run() {
    const OTHER: &str = "[[listener]]\nname = \"door\"\nkind = \"socks\"\nbind = \"127.0.0.1:1080\"\n";
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], OTHER);
    let (mut before, mut server_before) = works(&row, "client", "server", Family::V4);
    assert!(!is_cut(&server_before));
    near.reload(&format!("{OTHER}{}", catching("")));
    let mut running = BOTH.map(|family| works(&row, "client", "server", family));
    assert!(running.iter().all(|(_, server)| is_cut(server)));
    assert_eq!(near.relay.sessions().len(), 2);
    near.reload(OTHER);
    for family in BOTH {
        let (_client, server) = works(&row, "client", "server", family);
        assert!(!is_cut(&server));
    }
    for (client, server) in &mut running {
        talk(client, server);
    }
    near.reload(&format!("{OTHER}{}", catching("")));
    let (_client, server) = works(&row, "client", "server", Family::V4);
    assert!(is_cut(&server));
    for (client, server) in running {
        exchange(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "finished");
    }
    talk(&mut before, &mut server_before);
}

/// A listener that cannot be had is no reason to lose those that run.
#[test]
fn a_reload_that_cannot_be() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = Station::start(&row["near"], &catching(""));
    let _taken = row["near"].inside(|| TcpListener::bind("[::]:7009")).unwrap();
    near.try_reload(&catching("").replace("7001", "7009"));
    near.relay.next(|event| event["event"] == "reload_rejected");
    let (_client, server) = works(&row, "client", "server", Family::V4);
    assert!(is_cut(&server));
}

/// The gate of before gives the verdict.
#[test]
fn a_reload_while_a_packet_waits() {
    let Some(row) = Row::new(NAMES) else { return };
    let text = format!("[timeouts]\nhold = \"20s\"\n{}", catching(""));
    let mut near = Station::start(&row["near"], &text);
    row["server"].nft(NO_FIRST_PACKETS);
    let (listener, address) = row.server(Family::V4);
    let client = row["client"].try_connecting(address);
    eventually("it to be held", || row["near"].run("ss", &["-Htan"], "").contains("SYN-SENT").then_some(()));
    near.reload(&format!("{text}profile = \"longhaul\"\n"));
    row["server"].nft("delete table inet silence");
    let (mut client, mut server) = (join(client).unwrap(), accept(&listener));
    talk(&mut client, &mut server);
    assert!(is_cut(&server));
    let (mut next, mut to) = works(&row, "client", "server", Family::V6);
    assert!(is_cut(&to));
    talk(&mut next, &mut to);
    assert_eq!(near.relay.sessions().len(), 2);
}

//! Several daemons on one host, a daemon without CAP_NET_ADMIN, and reloads.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use crate::harness::*;
use crate::network::*;
use crate::programs::is_any_missing;
use crate::relays::*;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

fn instance(number: u8, interface: &str, more: &str) -> String {
    let listener = intercepting_listener(more).replace("left", interface).replace("7001", &format!("70{number:02}"));
    format!("[transparent]\ninstance = {number}\n{listener}")
}

/// Opens a connection from one host to another, and checks that it works.
pub fn check_connection(row: &Row, from: &str, to: &str, family: Family) -> (TcpStream, TcpStream) {
    let (listener, port) = row[to].listen();
    let ip = if to == "client" { row.right(to, family) } else { row.left(to, family) };
    let mut client = row[from].connect(SocketAddr::new(ip, port));
    let mut server = accept(&listener);
    exchange_messages(&mut client, &mut server);
    assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
    (client, server)
}

/// Each daemon intercepts one direction.
#[test]
fn two_daemons_on_one_box_are_independent() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut first = RunningRelay::start(&row["near"], &instance(1, "left", ""));
    let mut second = RunningRelay::start(&row["near"], &instance(2, "right", ""));
    for family in BOTH {
        let right = check_connection(&row, "client", "server", family);
        let left = check_connection(&row, "server", "client", family);
        assert_eq!([&first, &second].map(|daemon| daemon.relay.sessions().len()), [1, 1]);
        drop((left, right));
        for daemon in [&mut first, &mut second] {
            assert_eq!(daemon.relay.closed()["end"], "finished");
        }
    }
    // One daemon exits without effect on the other.
    let (mut client, mut server) = check_connection(&row, "server", "client", Family::V4);
    first.relay.signal("TERM");
    assert_eq!(first.relay.exit_code(), Some(0));
    exchange_messages(&mut client, &mut server);
    check_connection(&row, "server", "client", Family::V6);
    assert_eq!(second.relay.closed()["end"], "finished");
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(!is_relayed(&server));
}

#[test]
fn two_daemons_share_an_interface_for_different_clients() {
    let Some(row) = Row::new(NAMES) else { return };
    let clients = |family| format!("clients = [\"{}\"]", row.right("client", family));
    let daemons = [
        RunningRelay::start(&row["near"], &instance(1, "left", &clients(Family::V4))),
        RunningRelay::start(&row["near"], &instance(2, "left", &clients(Family::V6))),
    ];
    for (mut daemon, family) in daemons.into_iter().zip(BOTH) {
        let (_client, server) = check_connection(&row, "client", "server", family);
        assert!(is_relayed(&server));
        assert_eq!(daemon.relay.sessions().len(), 1, "{family:?}");
        drop((_client, server));
        daemon.relay.closed();
    }
}

/// The message of `ekiden run` when it fails.
fn run_failing(host: &Host, command: &mut Command) -> String {
    let output = host.inside(|| command.output()).expect("the program runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn second_daemon_with_the_same_instance_is_rejected() {
    let Some(row) = Row::new(NAMES) else { return };
    let first = RunningRelay::start(&row["near"], &instance(1, "left", ""));
    let second = site(&instance(1, "right", "").replace("7001", "7002"));
    let stderr = run_failing(&row["near"], &mut second.command());
    assert!(stderr.contains("instance") && stderr.contains(&first.relay.id().to_string()), "{stderr}");
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(is_relayed(&server), "the first daemon has lost its rules");
    assert_eq!(first.relay.sessions().len(), 1);
}

#[test]
fn daemon_without_net_admin_fails_with_a_remedy() {
    if is_any_missing(&["setpriv"]) {
        return;
    }
    let Some(row) = Row::new(NAMES) else { return };
    let site = site(&intercepting_listener(""));
    let command = site.command();
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin", "--"]);
    unprivileged.arg(command.get_program()).args(command.get_args());
    let stderr = run_failing(&row["near"], &mut unprivileged);
    assert!(stderr.contains("CAP_NET_ADMIN") && stderr.contains("AmbientCapabilities"), "{stderr}");
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(!is_relayed(&server));
}

#[test]
fn reloads_add_and_remove_listeners_while_sessions_run() {
    const OTHER: &str = "[[listener]]\nname = \"door\"\nkind = \"socks\"\nbind = \"127.0.0.1:1080\"\n";
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], OTHER);
    let (mut before, mut server_before) = check_connection(&row, "client", "server", Family::V4);
    assert!(!is_relayed(&server_before));
    near.reload(&format!("{OTHER}{}", intercepting_listener("")));
    let mut running = BOTH.map(|family| check_connection(&row, "client", "server", family));
    assert!(running.iter().all(|(_, server)| is_relayed(server)));
    assert_eq!(near.relay.sessions().len(), 2);
    near.reload(OTHER);
    for family in BOTH {
        let (_client, server) = check_connection(&row, "client", "server", family);
        assert!(!is_relayed(&server));
    }
    for (client, server) in &mut running {
        exchange_messages(client, server);
    }
    near.reload(&format!("{OTHER}{}", intercepting_listener("")));
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(is_relayed(&server));
    for (client, server) in running {
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "finished");
    }
    exchange_messages(&mut before, &mut server_before);
}

/// A listener that cannot be bound does not stop the running listeners.
#[test]
fn rejected_reload_keeps_the_running_listener() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    let _taken = row["near"].inside(|| TcpListener::bind("[::]:7009")).unwrap();
    near.try_reload(&intercepting_listener("").replace("7001", "7009"));
    near.relay.next(|event| event["event"] == "reload_rejected");
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(is_relayed(&server));
}

/// Bug: the rules of the previous instance were removed before the new rules failed, so nothing was intercepted.
#[test]
fn rejected_reload_with_another_instance_keeps_the_rules() {
    let Some(row) = Row::new(NAMES) else { return };
    let programs = Folder::new();
    let nft = "#!/bin/sh\nrules=$(cat)\ncase \"$rules\" in *ekiden-2*) echo 'no luck today' >&2; exit 1;; esac\n\
        PATH=/usr/sbin:/sbin:/usr/bin:/bin\nprintf '%s\\n' \"$rules\" | exec nft \"$@\"\n";
    programs.program("nft", nft);
    let path = format!("{}:{}", programs.0.display(), std::env::var("PATH").unwrap());
    let mut near = site(&instance(1, "left", ""));
    let mut relay = row["near"].inside(|| Relay::start(near.command().env("PATH", &path), 1));
    near.write(&instance(2, "left", ""));
    relay.signal("HUP");
    let rejected = relay.next(|event| event["event"] == "reload_rejected");
    assert!(rejected["mistakes"][0].as_str().unwrap().contains("no luck today"), "{rejected}");
    let (_client, server) = check_connection(&row, "client", "server", Family::V4);
    assert!(is_relayed(&server));
}

/// The gate of the previous configuration gives the verdict. Regression: every reload replaced the nftables table, and
/// the kernel dropped the held packet, so that the client connected only after its retransmission.
#[test]
fn reload_keeps_a_held_packet() {
    let Some(row) = Row::new(NAMES) else { return };
    row["client"].nft(DROP_RETRANSMISSIONS);
    let text = format!("[timeouts]\nhold = \"20s\"\n{}", intercepting_listener(""));
    let mut near = RunningRelay::start(&row["near"], &text);
    row["server"].nft(DROP_ALL_SYNS);
    let (listener, address) = row.server(Family::V4);
    let client = row["client"].try_connecting(address);
    eventually("the first packet to be held", || {
        row["near"].run("ss", &["-Htan"], "").contains("SYN-SENT").then_some(())
    });
    near.reload(&format!("{text}profile = \"longhaul\"\n"));
    row["server"].nft("delete table inet silence");
    let (mut client, mut server) = (join(client).unwrap(), accept(&listener));
    exchange_messages(&mut client, &mut server);
    assert!(is_relayed(&server));
    let (mut next, mut to) = check_connection(&row, "client", "server", Family::V6);
    assert!(is_relayed(&to));
    exchange_messages(&mut next, &mut to);
    assert_eq!(near.relay.sessions().len(), 2);
}

/// A reload keeps rules that are unchanged, but not if another program has removed a part of them.
#[test]
fn reload_restores_removed_rules() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    // The first line of the table has its handle, which the kernel never uses again.
    let table = || {
        let shown = row["near"].run("nft", &["-a", "list", "table", "inet", "ekiden"], "");
        shown.lines().next().expect("a table").to_owned()
    };
    let first = table();
    assert!(first.contains(" # handle "), "{first}");
    near.reload(&intercepting_listener(""));
    assert_eq!(table(), first);
    for family in ["-4", "-6"] {
        row["near"].run("ip", &[family, "rule", "del", "pref", "184"], "");
    }
    near.reload(&intercepting_listener(""));
    assert_eq!(table(), first);
    for family in BOTH {
        assert!(is_relayed(&check_connection(&row, "client", "server", family).1));
    }
    row["near"].nft("delete table inet ekiden");
    near.reload(&intercepting_listener(""));
    assert!(is_relayed(&check_connection(&row, "client", "server", Family::V4).1));
}

/// Regression: the reload removed the IPv6 routing that delivers the packets of running sessions.
#[test]
fn reload_without_ipv6_keeps_ipv6_sessions() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    let (client, server) = check_connection(&row, "client", "server", Family::V6);
    assert!(is_relayed(&server));
    let target = server.local_addr().unwrap().to_string();
    near.reload(&intercepting_listener("").replace("[::]:7001", "0.0.0.0:7002"));
    assert!(!is_relayed(&check_connection(&row, "client", "server", Family::V6).1));
    assert!(is_relayed(&check_connection(&row, "client", "server", Family::V4).1));
    transfer_both_ways(client, server, 2_000_000, 2_000_000);
    let closed = near.relay.next(|event| event["event"] == "closed" && event["target"] == target);
    assert_eq!(closed["end"], "finished", "{closed}");
}

//! Fail open: while the relay is at a limit, drains or is down, new connections bypass it; without the kernel's packet
//! queue the relay still works.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};

use super::daemons;
use super::harness::*;
use super::network::*;
use super::programs::{run_successfully, run_to_end};
use super::relays::*;
use super::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

/// A row of hosts, with an intercepting relay on `near`.
struct Fixture {
    row: Row,
    near: RunningRelay,
}

impl Fixture {
    fn new(settings: &str) -> Option<Self> {
        let row = Row::new(NAMES)?;
        let near = RunningRelay::start(&row["near"], &format!("{settings}\n{}", intercepting_listener("")));
        Some(Self { row, near })
    }
}

/// Opens a connection, and checks that it works: through a relay if `relayed`, else directly.
fn check_connection(row: &Row, family: Family, relayed: bool) -> (std::net::TcpStream, std::net::TcpStream) {
    let (client, server) = daemons::check_connection(row, "client", "server", family);
    assert_eq!(is_relayed(&server), relayed, "{family:?}");
    (client, server)
}

/// The rules and routes of ekiden in the kernel; the policy-routing table of ekiden is 573.
fn rules(host: &Host) -> Vec<String> {
    let is_ours = |line: &str| line.to_lowercase().contains("ekiden") || line.contains("lookup 573");
    let asked = [
        host.run("nft", &["list", "ruleset"], ""),
        host.run("ip", &["-4", "rule"], ""),
        host.run("ip", &["-6", "rule"], ""),
        host.run("iptables-save", &[], ""),
        host.run("ip6tables-save", &[], ""),
        host.run("ip", &["-4", "route", "show", "table", "all"], "").replace("table 573", "lookup 573"),
        host.run("ip", &["-6", "route", "show", "table", "all"], "").replace("table 573", "lookup 573"),
    ];
    asked.iter().flat_map(|text| text.lines()).filter(|line| is_ours(line)).map(str::to_owned).collect()
}

#[test]
fn connections_bypass_at_the_session_limit() {
    let Some(Fixture { row, mut near }) = Fixture::new("[limits]\nsessions = 2") else { return };
    let mut running = [check_connection(&row, Family::V4, true), check_connection(&row, Family::V6, true)];
    for family in BOTH {
        check_connection(&row, family, false);
    }
    let began = near.relay.next(|event| event["event"] == "bypass_began");
    assert_eq!((&began["reason"], &began["listener"]), (&"session_limit".into(), &"caught".into()), "{began}");
    let series = "ekiden_connections_passed_total{listener=\"caught\",reason=\"session_limit\"}";
    assert_eq!(near.relay.metric(series), Some(2));
    for (client, server) in &mut running {
        exchange_messages(client, server);
    }
    let [(client, server), _rest] = running;
    drop((client, server));
    assert_eq!(near.relay.closed()["end"], "finished");
    let _third = check_connection(&row, Family::V4, true);
    let ended = near.relay.next(|event| event["event"] == "bypass_ended");
    assert_eq!(ended["reason"], "session_limit");
}

#[test]
fn connections_bypass_at_the_client_limit() {
    let Some(Fixture { row, mut near }) = Fixture::new("[limits]\nsessions_per_client = 1") else { return };
    let _running = check_connection(&row, Family::V4, true);
    check_connection(&row, Family::V4, false);
    let began = near.relay.next(|event| event["event"] == "bypass_began");
    assert_eq!(began["reason"], "client_limit");
    // The same host with another address is another client.
    check_connection(&row, Family::V6, true);
}

/// The gate takes a place and a worker releases it. Both must count alike if a reload occurs in between.
#[test]
fn client_limit_set_by_a_reload_counts_running_sessions() {
    let Some(Fixture { row, mut near }) = Fixture::new("") else { return };
    let reload = |near: &mut RunningRelay, limits: &str| {
        near.reload(&format!("{limits}\n{}", intercepting_listener("")));
        // The gate answers this request after it has switched to the new configuration.
        near.relay.sessions();
    };
    let limit = "[limits]\nsessions_per_client = 1";
    let first = check_connection(&row, Family::V4, true);
    reload(&mut near, limit);
    check_connection(&row, Family::V4, false);
    reload(&mut near, "");
    let second = check_connection(&row, Family::V4, true);
    reload(&mut near, limit);
    drop(first);
    assert_eq!(near.relay.closed()["end"], "finished");
    check_connection(&row, Family::V4, false);
    drop(second);
    assert_eq!(near.relay.closed()["end"], "finished");
    check_connection(&row, Family::V4, true);
}

/// Checks that new connections bypass the relay and running ones finish, and that the relay then exits.
fn check_drain(row: &Row, near: &mut RunningRelay, running: [(std::net::TcpStream, std::net::TcpStream); 2]) {
    for family in BOTH {
        check_connection(row, family, false);
    }
    for (client, server) in running {
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "finished");
    }
    assert_eq!(near.relay.exit_code(), Some(0));
}

#[test]
fn connections_bypass_a_draining_relay() {
    let Some(Fixture { row, mut near }) = Fixture::new("[timeouts]\ndrain = \"1min\"") else { return };
    let running = BOTH.map(|family| check_connection(&row, family, true));
    near.relay.signal("TERM");
    near.relay.next(|event| event["event"] == "draining");
    assert!(!row["near"].run("nft", &["list", "ruleset"], "").contains("tproxy"), "the relay still intercepts");
    check_drain(&row, &mut near, running);
    assert_eq!(rules(&row["near"]), Vec::<String>::new());
    for family in BOTH {
        check_connection(&row, family, false);
    }
}

#[test]
fn connections_bypass_a_killed_relay() {
    let Some(Fixture { row, near }) = Fixture::new("") else { return };
    let running = BOTH.map(|family| check_connection(&row, family, true));
    near.kill();
    for family in BOTH {
        check_connection(&row, family, false);
    }
    for (mut client, mut server) in running {
        assert!(is_reset(&mut client) && is_reset(&mut server));
    }
    assert_ne!(rules(&row["near"]), Vec::<String>::new(), "the killed relay has left no rules");
    let report = row["near"].inside(|| run_to_end(ekiden().arg("doctor")));
    let report = String::from_utf8(report.out).expect("text");
    assert!(report.contains("ekiden rules remove"), "{report}");
    row["near"].inside(|| run_successfully(ekiden().args(["rules", "remove"])));
    assert_eq!(rules(&row["near"]), Vec::<String>::new());
    for family in BOTH {
        check_connection(&row, family, false);
    }
}

/// Maximum number of first packets in the queue of a listener.
const MAX_QUEUED: usize = 8192;

/// Number of first packets in the queues of a host. A line of the file is: queue, port ID, number of packets, ...
fn count_queued(host: &Host) -> usize {
    let queues = host.inside(|| std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue")).unwrap();
    queues.lines().map(|line| line.split_whitespace().nth(2).unwrap().parse::<usize>().unwrap()).sum()
}

/// Sends SYNs to `address`, and closes their sockets at once.
fn send_syns(count: usize, address: SocketAddr) {
    for _ in 0..count {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        // The result arrives later.
        let _ = socket.connect(&address.into());
    }
}

/// Regression: SYNs that found the queue full went to the listener, where the kernel accepts connections without the
/// relay.
#[test]
fn connections_bypass_a_relay_that_hangs_when_the_queue_is_full() {
    let Some(Fixture { row, near }) = Fixture::new("") else { return };
    near.relay.stop();
    let address = SocketAddr::new(row.left("server", Family::V4), CLOSED_PORT);
    eventually("a full queue", || {
        row["client"].inside(|| send_syns(1024, address));
        (count_queued(&row["near"]) == MAX_QUEUED).then_some(())
    });
    for family in BOTH {
        check_connection(&row, family, false);
    }
    assert!(row["near"].counter("ekiden", "unanswered_0") >= 2);
}

#[test]
fn restart_takes_over_the_rules_of_a_killed_relay() {
    let Some(Fixture { row, near }) = Fixture::new("") else { return };
    near.kill();
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    for family in BOTH {
        check_connection(&row, family, true);
    }
    near.relay.signal("TERM");
    assert_eq!(near.relay.exit_code(), Some(0));
    assert_eq!(rules(&row["near"]), Vec::<String>::new());
}

/// Manual rules stay in place: the gate lets connections bypass the relay.
#[test]
fn connections_bypass_a_draining_relay_with_manual_rules() {
    let Some(row) = Row::new(NAMES) else { return };
    let site = site(&format!(
        "[transparent]\nrules = \"manual\"\n[timeouts]\ndrain = \"1min\"\n{}",
        intercepting_listener("")
    ));
    row["near"].inside(|| run_successfully(ekiden().args(["rules", "apply"]).arg("-c").arg(site.file())));
    let mut near = site.start(&row["near"]);
    let running = BOTH.map(|family| check_connection(&row, family, true));
    near.relay.signal("TERM");
    near.relay.next(|event| event["event"] == "draining");
    check_drain(&row, &mut near, running);
    assert_ne!(rules(&row["near"]), Vec::<String>::new());
    for family in BOTH {
        check_connection(&row, family, false);
    }
    row["near"].inside(|| run_successfully(ekiden().args(["rules", "remove"])));
    assert_eq!(rules(&row["near"]), Vec::<String>::new());
}

/// A packet that is held when the relay is killed is retransmitted by its sender, and passes.
#[test]
fn held_packet_bypasses_a_killed_relay() {
    let Some(Fixture { row, near }) = Fixture::new("[timeouts]\nhold = \"20s\"") else { return };
    row["server"].nft(DROP_RELAY_SYNS);
    let (listener, address) = row.server(Family::V4);
    let client = row["client"].try_connecting(address);
    eventually("the first packet to be held", || {
        row["near"].run("ss", &["-Htan"], "").contains("SYN-SENT").then_some(())
    });
    near.kill();
    let mut client = join(client).unwrap();
    let mut server = accept(&listener);
    exchange_messages(&mut client, &mut server);
    assert!(!is_relayed(&server));
}

#[test]
fn connections_from_before_the_relay_stay_direct() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut before = BOTH.map(|family| check_connection(&row, family, false));
    let near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    for (client, server) in &mut before {
        exchange_messages(client, server);
    }
    for (client, server) in before {
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
    }
    assert!(near.relay.sessions().is_empty());
    check_connection(&row, Family::V4, true);
}

/// A folder with programs that replace those of iptables, and fail.
fn without_iptables() -> Folder {
    let folder = Folder::new();
    for name in ["iptables", "ip6tables"] {
        for action in ["save", "restore"] {
            folder.program(&format!("{name}-{action}"), "#!/bin/sh\necho there is none >&2\nexit 3\n");
        }
    }
    folder
}

/// Whether nftables supports `queue` on this kernel.
fn has_queue(host: &Host) -> bool {
    let rule = "table inet t { chain c { type filter hook prerouting priority 0; queue flags bypass to 1; }; }";
    let tried = host.inside(|| std::process::Command::new("nft").args(["-c", rule]).status());
    tried.expect("nft runs").success()
}

#[test]
fn relaying_works_without_a_packet_queue() {
    let Some(row) = Row::new(&["client", "near", "server"]) else { return };
    if has_queue(&row["near"]) {
        return skipped("this kernel's nftables has a queue, so there is always one");
    }
    let programs = without_iptables();
    let site = site(&format!("[limits]\nsessions = 1\n{}", intercepting_listener("")));
    let mut command = site.command();
    command.env("PATH", format!("{}:{}", programs.0.display(), std::env::var("PATH").unwrap()));
    let mut near = row["near"].inside(|| Relay::start(&mut command, 1));
    let warned = near.next(|event| event["event"] == "warning");
    assert!(warned["message"].as_str().unwrap().contains("strict"), "{warned}");
    for family in BOTH {
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        assert!(is_relayed(&server));
        // No connection can bypass the relay: the next connection waits for a place.
        let mut waiting = row["client"].connect(address);
        near.next(|event| event["event"] == "accept_paused");
        drop((client, server));
        exchange_messages(&mut waiting, &mut accept(&listener));
        drop(waiting);
        close(listener);
        (0..2).for_each(|_| assert_eq!(near.closed()["end"], "finished"));
        row["client"].assert_reset(address);
        assert_eq!(near.closed()["end"], "refused");
    }
}

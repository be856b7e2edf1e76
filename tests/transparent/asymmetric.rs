//! Connections of which only one direction passes the relay's host: they work as without a relay, and are counted.

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];
const SHORT_HOLD: &str = "[timeouts]\nhold = \"300ms\"\n";

/// Number of SYN-ACKs that the rules have counted because the SYN of the connection took another path.
fn asymmetric_packets(row: &Row) -> u64 {
    row["near"].counter("ekiden", "asymmetric")
}

/// The metric of SYNs that the gate let pass because the server did not answer it.
const PASSED_UNANSWERED: &str = "ekiden_connections_passed_total{listener=\"caught\",reason=\"silent\"}";

#[test]
fn connection_with_answers_on_another_path_bypasses_the_relay() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &format!("{SHORT_HOLD}{}", intercepting_listener("")));
    row["server"].nft(COUNT_CLIENT_SYNS);
    for family in BOTH {
        row.shortcut("server", "client", family, row.right("client", family));
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        assert!(!is_relayed(&server));
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "timed_out");
        // Each SYN counts, also a retransmission of the client after one second.
        let are_counted = || near.relay.metric(PASSED_UNANSWERED) == Some(row["server"].counter("first", "clients"));
        eventually("all first packets to be counted", || are_counted().then_some(()));
    }
}

#[test]
fn answers_without_their_first_packets_are_counted() {
    let Some(row) = Row::new(NAMES) else { return };
    let near = RunningRelay::start(&row["near"], &format!("{SHORT_HOLD}{}", intercepting_listener("")));
    for (family, count) in BOTH.into_iter().zip(1..) {
        let (listener, address) = row.server(family);
        row.shortcut("client", "server", family, address.ip());
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        exchange_messages(&mut client, &mut server);
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        assert_eq!(asymmetric_packets(&row), count);
    }
    assert!(near.relay.sessions().is_empty());
    let counted = near.relay.metric("ekiden_rules_packets_total{listener=\"\",what=\"asymmetric\"}");
    assert_eq!(counted, Some(asymmetric_packets(&row)));
}

#[test]
fn symmetric_connections_are_not_counted() {
    let Some(row) = Row::new(NAMES) else { return };
    let text = format!("[limits]\nsessions = 1\n{}", intercepting_listener(""));
    let mut near = RunningRelay::start(&row["near"], &text);
    for family in BOTH {
        let (listener, address) = row.server(family);
        let connect = || (row["client"].connect(address), accept(&listener));
        let (mut client, mut server) = connect();
        exchange_messages(&mut client, &mut server);
        let (mut passed, mut passed_server) = connect();
        exchange_messages(&mut passed, &mut passed_server);
        assert!(is_relayed(&server) && !is_relayed(&passed_server));
        assert_eq!(asymmetric_packets(&row), 0);
        drop((client, server));
        near.relay.closed();
    }
}

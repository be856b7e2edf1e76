//! Hold: the client's SYN waits until the server has answered the relay, so that the client receives the same answer.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

/// ECONNREFUSED means that the reset was the first answer: after a SYN-ACK it would be ECONNRESET (RFC 9293, 3.10.7).
#[test]
fn closed_port_refuses_the_client() {
    each(PairOptions::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), CLOSED_PORT);
        assert_eq!(pair.connect_error(address).kind(), ErrorKind::ConnectionRefused, "far: {:?}", pair.kind);
        pair.all_closed(address, "refused");
        let (mut client, mut server) = pair.connect(family);
        exchange_messages(&mut client, &mut server);
    });
}

#[test]
fn refused_connections_take_no_session_place() {
    let Some(mut pair) =
        Pair::new(Far::Router, PairOptions { settings: "[limits]\nsessions = 1\n", ..PairOptions::default() })
    else {
        return;
    };
    for family in BOTH {
        let address = SocketAddr::new(pair.row.left("server", family), CLOSED_PORT);
        for _ in 0..3 {
            assert_eq!(pair.connect_error(address).kind(), ErrorKind::ConnectionRefused);
            pair.all_closed(address, "refused");
        }
        assert!(is_relayed(&pair.connect(family).1));
        pair.near.relay.closed();
    }
    let metrics = pair.near.relay.ask("/metrics");
    for line in ["sessions_open{listener=\"caught\"} 0\n", "reason=\"refused\"} 6\n"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// The host at the far end of the link reports by ICMP that the server is unreachable.
#[test]
fn unreachable_host_is_reported_to_the_client() {
    each(PairOptions::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), 9);
        pair.row["far"].ip(&format!("route add unreachable {}\n", address.ip()));
        let kind = pair.connect_error(address).kind();
        assert!(matches!(kind, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable), "{kind} {:?}", pair.kind);
        pair.all_closed(address, "unreachable");
    });
}

/// The metric of connections that bypass the relay because a dial has failed, which appears with the first of them.
pub const FAILED_DIALS: &str = "ekiden_connections_passed_total{listener=\"caught\",reason=\"failed\"}";

/// Resets each connection as soon as it is accepted, in a thread of its own.
fn reset_clients(listener: TcpListener) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            reset(stream);
        }
    });
}

#[test]
fn server_reset_after_accept_is_no_failed_dial() {
    each(PairOptions::default(), |pair, family| {
        let (listener, address) = pair.row.server(family);
        reset_clients(listener);
        pair.row["client"].assert_reset(address);
        for closed in pair.closed(address) {
            // `reset` if the reset has arrived during the dial.
            assert!(["reset_by_server", "reset"].iter().any(|end| closed["end"] == *end), "{closed}");
        }
        assert_eq!(pair.near.relay.metric(FAILED_DIALS), None);
    });
}

/// In the modes without hold the client is connected at once.
#[test]
fn failure_without_hold_is_a_reset() {
    for mode in ["strict", "early"] {
        let listener = format!("connect = \"{mode}\"");
        each_kind(PairOptions { listener: &listener, ..PairOptions::default() }, |pair, family| {
            let address = SocketAddr::new(pair.row.left("server", family), CLOSED_PORT);
            pair.row["client"].assert_reset(address);
            let closed = pair.closed(address);
            assert_eq!(closed.last().expect("a relay")["end"], "refused", "{closed:?}");
            let (mut client, mut server) = pair.connect(family);
            exchange_messages(&mut client, &mut server);
            assert!(is_relayed(&server));
        });
    }
}

/// Connections to ports of the relays' hosts without a listener, and to a listener of another program on such a host.
#[test]
fn connections_to_the_box_are_not_intercepted() {
    let Some(pair) = Pair::new(Far::Transparent, PairOptions::default()) else { return };
    for family in BOTH {
        for ip in [pair.row.left("near", family), pair.row.right("near", family), pair.row.left("far", family)] {
            assert_eq!(pair.connect_error(SocketAddr::new(ip, 9)).kind(), ErrorKind::ConnectionRefused, "{ip}");
        }
        let listener = pair.row["near"].inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
        let address = SocketAddr::new(pair.row.left("near", family), listener.local_addr().unwrap().port());
        let (mut client, mut server) = pair.connect_to(&listener, address);
        exchange_messages(&mut client, &mut server);
        assert!(pair.near.relay.sessions().is_empty());
    }
}

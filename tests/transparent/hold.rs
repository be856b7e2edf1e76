//! The client's first packet waits for the server's answer: the client sees the server's own answer.

use std::io::ErrorKind;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

/// ECONNREFUSED means that the reset was the first answer: after a SYN-ACK it would be ECONNRESET (RFC 9293, 3.10.7).
#[test]
fn a_closed_port_refuses() {
    each(Told::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
        assert_eq!(pair.fails(address).kind(), ErrorKind::ConnectionRefused, "far: {:?}", pair.kind);
        pair.all_closed(address, "refused");
        let (mut client, mut server) = pair.connect(family);
        talk(&mut client, &mut server);
    });
}

/// Refused connections occupy no session place.
#[test]
fn refusals_take_no_place() {
    let Some(mut pair) = Pair::new(Far::Nobody, Told { settings: "[limits]\nsessions = 1\n", ..Told::default() })
    else {
        return;
    };
    for family in BOTH {
        let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
        for _ in 0..3 {
            assert_eq!(pair.fails(address).kind(), ErrorKind::ConnectionRefused);
            pair.all_closed(address, "refused");
        }
        assert!(is_cut(&pair.connect(family).1));
        pair.near.relay.closed();
    }
    let metrics = pair.near.relay.ask("/metrics");
    for line in ["sessions_open{listener=\"caught\"} 0\n", "reason=\"refused\"} 6\n"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

/// The far end of the link says by ICMP that there is no way to the server.
#[test]
fn an_unreachable_host_is_unreachable() {
    each(Told::default(), |pair, family| {
        let address = SocketAddr::new(pair.row.left("server", family), 9);
        pair.row["far"].ip(&format!("route add unreachable {}\n", address.ip()));
        let kind = pair.fails(address).kind();
        assert!(matches!(kind, ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable), "{kind} {:?}", pair.kind);
        pair.all_closed(address, "unreachable");
    });
}

/// Accepts one connection after the other and resets it at once.
fn hang_up(listener: TcpListener) {
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            reset(stream);
        }
    });
}

#[test]
fn a_server_that_hangs_up_has_answered() {
    each(Told::default(), |pair, family| {
        let (listener, address) = pair.row.server(family);
        hang_up(listener);
        match pair.row["client"].try_connect(address) {
            Ok(mut client) => assert!(is_reset(&mut client), "far: {:?}", pair.kind),
            // It was so quick that connect(2) has seen it.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "far: {:?}", pair.kind),
        }
        for closed in pair.closed(address) {
            // The latter where the dial itself has seen it.
            assert!(["reset_by_server", "reset"].iter().any(|end| closed["end"] == *end), "{closed}");
        }
        let metrics = pair.near.relay.ask("/metrics");
        assert!(!metrics.contains("reason=\"failed\""), "that is no failure of ours: {metrics}");
    });
}

/// The cheaper modes: the client is told "connected" at once, and a failure is a reset.
#[test]
fn without_hold_a_failure_is_a_reset() {
    for mode in ["strict", "early"] {
        let listener = format!("connect = \"{mode}\"");
        some(Told { listener: &listener, ..Told::default() }, |pair, family| {
            let address = SocketAddr::new(pair.row.left("server", family), NOBODY);
            match pair.row["client"].try_connect(address) {
                Ok(mut client) => assert!(is_reset(&mut client), "{mode}, far: {:?}", pair.kind),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{mode}, far: {:?}", pair.kind),
            }
            let closed = pair.closed(address);
            assert_eq!(closed.last().expect("a relay")["end"], "refused", "{closed:?}");
            let (mut client, mut server) = pair.connect(family);
            talk(&mut client, &mut server);
            assert!(is_cut(&server));
        });
    }
}

/// No listener is there, on the box itself.
#[test]
fn the_box_answers_for_itself() {
    let Some(pair) = Pair::new(Far::Transparent, Told::default()) else { return };
    for family in BOTH {
        for ip in [pair.row.left("near", family), pair.row.right("near", family), pair.row.left("far", family)] {
            assert_eq!(pair.fails(SocketAddr::new(ip, 9)).kind(), ErrorKind::ConnectionRefused, "{ip}");
        }
        let listener = pair.row["near"].inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))).unwrap();
        let address = SocketAddr::new(pair.row.left("near", family), listener.local_addr().unwrap().port());
        let (mut client, mut server) = pair.connect_to(&listener, address);
        talk(&mut client, &mut server);
        assert!(pair.near.relay.sessions().is_empty());
    }
}

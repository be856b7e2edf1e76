//! Connections that lead back to a relay end at once.

use std::net::SocketAddr;

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

/// The client connects to the port of the near relay's listener, at each address of its host.
#[test]
fn direct_connection_to_the_tproxy_listener_is_rejected() {
    let Some(mut pair) = Pair::new(Far::Router, PairOptions::default()) else { return };
    for family in BOTH {
        for ip in [pair.row.left("near", family), pair.row.right("near", family)] {
            let address = SocketAddr::new(ip, 7001);
            pair.row["client"].assert_reset(address);
            let closed = pair.near.relay.closed();
            assert_eq!(closed["end"], "bad_handshake", "{closed}");
            assert!(pair.near.relay.sessions().is_empty());
        }
    }
}

/// For the near relay, the listener of the far relay is a server like any other.
#[test]
fn connection_to_the_far_tproxy_listener_is_rejected_there() {
    let Some(mut pair) = Pair::new(Far::Transparent, PairOptions::default()) else { return };
    for family in BOTH {
        let address = SocketAddr::new(pair.row.left("far", family), 7001);
        pair.row["client"].assert_reset(address);
        let far = pair.far.as_mut().expect("a relay");
        assert_eq!(far.relay.closed()["end"], "bad_handshake");
        assert_eq!(pair.near.relay.closed()["target"], address.to_string());
        assert!(far.relay.sessions().is_empty() && pair.near.relay.sessions().is_empty());
    }
}

/// Both relays intercept connections from both sides, also the connections of each other.
#[test]
fn mutually_intercepting_boxes_relay_without_a_loop() {
    let Some(row) = Row::new(&["client", "near", "far", "server"]) else { return };
    let text = intercepting_listener("").replace("[\"left\"]", "[\"left\", \"right\"]");
    let mut relays = ["near", "far"].map(|host| RunningRelay::start(&row[host], &text));
    for family in BOTH {
        for (from, to, ip) in
            [("client", "server", row.left("server", family)), ("server", "client", row.right("client", family))]
        {
            let (listener, port) = row[to].listen();
            let address = SocketAddr::new(ip, port);
            let mut client = row[from].connect(address);
            let mut server = accept(&listener);
            exchange_messages(&mut client, &mut server);
            assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
            for running in &relays {
                assert_eq!(running.relay.sessions().len(), 1, "{from} to {to}");
            }
            drop((client, server));
            for running in &mut relays {
                assert_eq!(running.relay.closed()["target"], address.to_string());
            }
        }
    }
}

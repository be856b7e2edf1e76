//! Interception by address translation, for connections that are routed through the relay's host and for connections of
//! its local programs.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

fn redirect_listener(interface: &str, more: &str) -> String {
    intercepting_listener(more).replace("tproxy", "redirect").replace("left", interface)
}

/// Connects `host` to the server. Returns the sockets of the client and the server.
fn connect(row: &Row, host: &str, listener: &TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
    let client = row[host].connect(address);
    (client, accept(listener))
}

#[test]
fn routed_connections_are_redirected() {
    for (more, kept) in [("", false), ("keep_client_address = true", true)] {
        let Some(row) = Row::new(NAMES) else { return };
        let mut near = RunningRelay::start(&row["near"], &redirect_listener("left", more));
        for family in BOTH {
            let (listener, server_address) = row.server(family);
            let (mut client, mut server) = connect(&row, "client", &listener, server_address);
            exchange_messages(&mut client, &mut server);
            assert!(is_relayed(&server));
            let seen = canonical(server.peer_addr().unwrap()).ip();
            assert_eq!(seen, if kept { row.right("client", family) } else { row.right("near", family) });
            let from = client.local_addr().unwrap();
            transfer_both_ways(client, server, 2_000_000, 3_000_000);
            let closed = near.relay.closed();
            assert_eq!(closed["end"], "finished", "{closed}");
            assert_eq!(closed["target"], server_address.to_string(), "{closed}");
            assert_eq!(closed["client"], from.to_string(), "{closed}");
        }
    }
}

#[test]
fn connections_of_local_programs_are_redirected() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &redirect_listener("lo", ""));
    for family in BOTH {
        let (listener, server_address) = row.server(family);
        let (mut client, mut server) = connect(&row, "near", &listener, server_address);
        exchange_messages(&mut client, &mut server);
        // The relay's own connections are not redirected again.
        assert_eq!(near.relay.sessions().len(), 1);
        transfer_both_ways(client, server, 2_000_000, 3_000_000);
        let closed = near.relay.closed();
        assert_eq!(closed["end"], "finished", "{closed}");
        assert_eq!(closed["target"], server_address.to_string(), "{closed}");
        // Connections of other hosts are not redirected.
        let (mut client, mut server) = connect(&row, "client", &listener, server_address);
        exchange_messages(&mut client, &mut server);
        assert!(!is_relayed(&server));
    }
}

#[test]
fn routed_connection_to_a_closed_port_is_refused() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &redirect_listener("left", ""));
    for family in BOTH {
        let address = SocketAddr::new(row.left("server", family), CLOSED_PORT);
        let error = row["client"].try_connect(address).expect_err("no listener");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(near.relay.closed()["end"], "refused");
    }
}

/// Packets of local programs arrive at no interface, so they cannot be held.
#[test]
fn local_connection_to_a_closed_port_is_reset() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &redirect_listener("lo", ""));
    for family in BOTH {
        let address = SocketAddr::new(row.left("server", family), CLOSED_PORT);
        row["near"].assert_reset(address);
        assert_eq!(near.relay.closed()["end"], "refused");
    }
}

#[test]
fn direct_connection_to_the_redirect_listener_is_rejected() {
    for (host, interface) in [("client", "left"), ("near", "lo")] {
        let Some(row) = Row::new(NAMES) else { return };
        let mut near = RunningRelay::start(&row["near"], &redirect_listener(interface, ""));
        for family in BOTH {
            let address = SocketAddr::new(row.left("near", family), 7001);
            row[host].assert_reset(address);
            let closed = near.relay.closed();
            assert_eq!(closed["end"], "bad_handshake", "{host}: {closed}");
            assert!(near.relay.sessions().is_empty());
        }
    }
}

/// The sockets of a listener stay open over a reload. Without the mark and the transparency of the new kind, the
/// answers of a `redirect` listener are not translated, and TPROXY does not find a `tproxy` listener.
#[test]
fn reload_changes_the_kind_of_a_listener() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    for text in [redirect_listener("left", ""), intercepting_listener("")] {
        near.reload(&text);
        for family in BOTH {
            let (listener, server_address) = row.server(family);
            let (mut client, mut server) = connect(&row, "client", &listener, server_address);
            exchange_messages(&mut client, &mut server);
            assert!(is_relayed(&server), "{text}");
        }
    }
    let listening_sockets = || row["near"].run("ss", &["-Htlne", "sport = :7001"], "");
    assert!(listening_sockets().contains("fwmark"), "{}", listening_sockets());
    near.reload("[[listener]]\nname = \"caught\"\nkind = \"socks\"\nbind = \"[::]:7001\"\nallow_open = true\n");
    let sockets = listening_sockets();
    assert!(sockets.contains(":7001") && !sockets.contains("fwmark"), "{sockets}");
}

/// Regression: without a chain for address translation and a rule that uses conntrack, the kernel stopped translating
/// the packets of running sessions.
#[test]
fn running_sessions_finish_without_a_redirect_listener() {
    for (interface, host) in [("left", "client"), ("lo", "near")] {
        for next in [None, Some(intercepting_listener(""))] {
            let Some(row) = Row::new(NAMES) else { return };
            let drain = "[timeouts]\ndrain = \"1min\"\n";
            let mut near = RunningRelay::start(&row["near"], &format!("{drain}{}", redirect_listener(interface, "")));
            let running = BOTH.map(|family| {
                let (listener, address) = row.server(family);
                let (mut client, mut server) = connect(&row, host, &listener, address);
                exchange_messages(&mut client, &mut server);
                (client, server)
            });
            assert_eq!(near.relay.sessions().len(), 2);
            if let Some(next) = next {
                near.reload(&format!("{drain}{next}"));
            }
            near.relay.signal("TERM");
            near.relay.next(|event| event["event"] == "draining");
            for (client, server) in running {
                transfer_both_ways(client, server, 2_000_000, 2_000_000);
                assert_eq!(near.relay.closed()["end"], "finished", "{interface}");
            }
            assert_eq!(near.relay.exit_code(), Some(0));
        }
    }
}

//! QUIC beside a pair of relays: UDP packets to port 443 pass or are refused, as `quic` of the listeners sets.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

/// The client's socket, connected to UDP port 443 of the server, and the server's socket there.
fn udp_sockets(row: &Row, family: Family) -> (UdpSocket, UdpSocket) {
    let bind = |host: &str, address| {
        let socket = row[host].inside(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        socket
    };
    let address = SocketAddr::new(row.left("server", family), 443);
    let client = bind("client", SocketAddr::new(row.right("client", family), 0));
    client.connect(address).unwrap();
    (client, bind("server", address))
}

fn assert_passes(row: &Row) {
    for family in BOTH {
        let (client, server) = udp_sockets(row, family);
        client.send(b"hello").unwrap();
        let mut bytes = [0; 5];
        let (_, from) = server.recv_from(&mut bytes).expect("the datagram arrives");
        assert_eq!((from, &bytes), (client.local_addr().unwrap(), b"hello"));
    }
}

/// The read would end with the timeout if the packet were dropped without an answer.
fn assert_refused(row: &Row) {
    for family in BOTH {
        let (client, _server) = udp_sockets(row, family);
        let _ = client.send(b"hello");
        assert_eq!(client.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn datagrams_pass_by_default_and_with_quic_pass() {
    for listener in ["", "quic = \"pass\""] {
        let Some(pair) = Pair::new(Far::Transparent, PairOptions { listener, ..PairOptions::default() }) else {
            return;
        };
        assert_passes(&pair.row);
        for host in ["near", "far"] {
            assert_eq!(pair.row[host].counter("ekiden", "quic-passed_0"), 2, "{host}");
        }
    }
}

#[test]
fn datagrams_are_refused_only_while_the_relay_runs() {
    let listener = "quic = \"refuse\"";
    let Some(mut pair) = Pair::new(Far::Transparent, PairOptions { listener, ..PairOptions::default() }) else {
        return;
    };
    assert_refused(&pair.row);
    let counted = ["near", "far"].map(|host| pair.row[host].counter("ekiden", "quic-refused_0"));
    assert_eq!(counted, [2, 0]);
    let (mut client, mut server) = pair.connect(Family::V4);
    exchange_messages(&mut client, &mut server);
    drop((client, server));
    for running in [Some(&mut pair.near), pair.far.as_mut()].into_iter().flatten() {
        running.relay.signal("TERM");
        running.relay.exit_code();
    }
    let left = pair.row["near"].run("nft", &["list", "ruleset"], "");
    assert!(!left.contains("ekiden"), "rules stay: {left}");
    assert_passes(&pair.row);
}

/// The next relay replaces the rules of a killed relay, also by rules that let QUIC pass.
#[test]
fn rules_of_a_killed_relay_are_replaced() {
    let Some(row) = Row::new(&["client", "near", "server"]) else { return };
    let mut site = RunningRelay::start(&row["near"], &intercepting_listener("quic = \"refuse\"")).kill();
    assert_refused(&row);
    site.write(&intercepting_listener(""));
    let _near = site.start(&row["near"]);
    assert_passes(&row);
}

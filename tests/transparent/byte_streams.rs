//! Byte streams through one relay and through pairs of relays arrive unchanged, and each end sees the address of the
//! other.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::thread;

use crate::MEBI;
use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

#[test]
fn large_streams_in_both_directions_arrive_unchanged() {
    each_kind(PairOptions::default(), |pair, family| {
        let (client, server) = pair.connect(family);
        let (from, to) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        transfer_both_ways(client, server, 20 * MEBI, 30 * MEBI);
        for (place, closed) in pair.closed(to).into_iter().enumerate() {
            assert_eq!(closed["end"], "finished", "{closed}");
            assert_eq!(closed["bytes_up"], 20 * MEBI, "{closed}");
            assert_eq!(closed["bytes_down"], 30 * MEBI, "{closed}");
            if place == 0 || !pair.kind.is_dialled() {
                assert_eq!(closed["client"], from.to_string(), "{closed}");
            }
            if place == 1 || !pair.kind.is_dialled() {
                assert_eq!(closed["server"], to.to_string(), "{closed}");
            }
        }
    });
}

#[test]
fn each_end_sees_the_address_of_the_other() {
    each(PairOptions::default(), |pair, family| {
        let (mut client, mut server) = pair.connect(family);
        exchange_messages(&mut client, &mut server);
        assert!(is_relayed(&server), "no relay was in the path");
        assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
        assert_eq!(canonical(server.local_addr().unwrap()), client.peer_addr().unwrap());
    });
}

#[test]
fn server_sees_the_last_relay_without_keep_client_address() {
    each(PairOptions { hide: true, ..PairOptions::default() }, |pair, family| {
        let (mut client, mut server) = pair.connect(family);
        exchange_messages(&mut client, &mut server);
        let last = if pair.kind == Far::Router { "near" } else { "far" };
        assert_eq!(canonical(server.peer_addr().unwrap()).ip(), pair.row.right(last, family), "far: {:?}", pair.kind);
        assert!(is_relayed(&server));
    });
}

#[test]
fn each_direction_can_be_half_closed() {
    each(PairOptions::default(), |pair, family| {
        let (mut client, mut server) = pair.connect(family);
        let to = client.peer_addr().unwrap();
        exchange_half_closed(&mut client, &mut server);
        drop(server);
        pair.all_closed(to, "finished");

        let (mut client, mut server) = pair.connect(family);
        let to = client.peer_addr().unwrap();
        exchange_half_closed(&mut server, &mut client);
        drop(client);
        pair.all_closed(to, "finished");
    });
}

#[test]
fn resets_are_carried_in_both_directions() {
    each(PairOptions::default(), |pair, family| {
        let (mut client, mut server) = pair.connect(family);
        let to = client.peer_addr().unwrap();
        exchange_messages(&mut client, &mut server);
        reset(client);
        assert!(is_reset(&mut server), "far: {:?}", pair.kind);
        pair.all_closed(to, "reset_by_client");

        let (mut client, mut server) = pair.connect(family);
        let to = client.peer_addr().unwrap();
        exchange_messages(&mut client, &mut server);
        reset(server);
        assert!(is_reset(&mut client), "far: {:?}", pair.kind);
        pair.all_closed(to, "reset_by_server");
    });
}

#[test]
fn reset_during_a_transfer_is_carried() {
    each(PairOptions::default(), |pair, family| {
        let (mut client, mut server) = pair.connect(family);
        let writer = flood(&server);
        read_exactly(&mut client, MEBI);
        reset(client);
        assert!(is_reset_while_flooding(&mut server, writer), "far: {:?}", pair.kind);

        let (mut client, mut server) = pair.connect(family);
        let writer = flood(&client);
        read_exactly(&mut server, MEBI);
        reset(server);
        assert!(is_reset_while_flooding(&mut client, writer), "far: {:?}", pair.kind);
    });
}

/// Opens `count` connections from ten concurrent threads of the client. Returns the sockets of the client and the
/// server for each connection, and the server's address.
fn open_connections(pair: &Pair, count: usize) -> (Vec<(TcpStream, TcpStream)>, SocketAddr) {
    let (listener, address) = pair.row.server(Family::V4);
    let client = &pair.row["client"];
    thread::scope(|scope| {
        let connect = || (0..count / 10).map(|_| client.connect(address)).collect::<Vec<_>>();
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(connect)).collect();
        let accepted = (0..count).map(|_| accept(&listener));
        let mut servers: BTreeMap<_, _> =
            accepted.map(|stream| (canonical(stream.peer_addr().unwrap()), stream)).collect();
        let clients = clients.into_iter().flat_map(|thread| thread.join().expect("all clients connect"));
        let find = |client: TcpStream| {
            let server = servers.remove(&client.local_addr().unwrap()).expect("the server sees the client's own port");
            (client, server)
        };
        (clients.map(find).collect(), address)
    })
}

#[test]
fn three_hundred_concurrent_sessions_work() {
    for kind in [Far::Transparent, Far::Section] {
        let Some(mut pair) = Pair::new(kind, PairOptions::default()) else { return };
        let (mut sessions, address) = open_connections(&pair, 300);
        eventually("all open sessions", || (pair.near.relay.sessions().len() == 300).then_some(()));
        for (number, (client, server)) in sessions.iter_mut().enumerate() {
            client.write_all(&number.to_be_bytes()).unwrap();
            server.write_all(&(number + 1).to_be_bytes()).unwrap();
        }
        for (number, (client, server)) in sessions.iter_mut().enumerate() {
            assert_eq!(read_exactly(server, 8), number.to_be_bytes());
            assert_eq!(read_exactly(client, 8), (number + 1).to_be_bytes());
        }
        drop(sessions);
        (0..300).for_each(|_| pair.all_closed(address, "finished"));
        assert_eq!(pair.near.relay.metric("ekiden_sessions_open{listener=\"caught\"}"), Some(0));
    }
}

#[test]
fn relaying_works_without_ipv4() {
    for kind in Far::ALL {
        let Some(row) = Row::of(&["client", "near", "far", "server"], &[Family::V6]) else { return };
        let mut pair = Pair::on(row, kind, PairOptions::default());
        let (client, server) = pair.connect(Family::V6);
        let to = client.peer_addr().unwrap();
        assert!(is_relayed(&server));
        transfer_both_ways(client, server, MEBI, MEBI);
        pair.all_closed(to, "finished");
    }
}

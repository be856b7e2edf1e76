//! A client uses its port again at once for the same server, as those behind address translation do.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

/// Who ends a connection, and how.
const ENDINGS: [fn(TcpStream, TcpStream); 3] = [
    |client, server| {
        reset(client);
        drop(server);
    },
    |mut client, server| {
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), b"");
    },
    |client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
    },
];

/// A connection from this port of the client, as soon as its kernel has seen the end of the one before it.
fn connect_from(row: &Row, own: SocketAddr, listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let connect = || {
        let socket = Socket::new(Domain::for_address(own), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&own.into()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        match socket.connect(&to.into()) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => None,
            result => result.map(|()| Some(TcpStream::from(socket))).expect("it listens"),
        }
    };
    let client = row["client"].inside(|| eventually("its port", connect));
    (client, accept(listener))
}

#[test]
fn a_port_that_is_used_again() {
    for (kind, timestamps) in [(Far::Nobody, "1"), (Far::Nobody, "0"), (Far::Transparent, "1"), (Far::Section, "1")] {
        let Some(mut pair) = Pair::new(kind, Told::default()) else { return };
        // A client that does not remember its old connections.
        pair.row["client"].set("ipv4/tcp_max_tw_buckets", "0");
        pair.row["near"].set("ipv4/tcp_timestamps", timestamps);
        for family in BOTH {
            let (listener, to) = pair.row.server(family);
            for (ending, port) in ENDINGS.into_iter().zip(5001..) {
                let own = SocketAddr::new(pair.row.right("client", family), port);
                for _ in 0..4 {
                    let (mut client, mut server) = connect_from(&pair.row, own, &listener, to);
                    talk(&mut client, &mut server);
                    assert!(is_cut(&server));
                    let seen = plain(server.peer_addr().unwrap());
                    // Without timestamps nobody can have a port again that is in TIME-WAIT (RFC 6191).
                    assert!(seen == own || timestamps == "0" && seen.ip() == own.ip(), "{seen}");
                    ending(client, server);
                    pair.closed(to);
                }
            }
        }
    }
}

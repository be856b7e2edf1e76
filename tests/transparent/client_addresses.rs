//! Client addresses at the server: with listeners for configured clients, and with clients that reuse a port at once,
//! as behind NAT.

use std::io::ErrorKind;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};

use super::harness::*;
use super::network::*;
use super::programs::{client, is_any_missing, run_successfully};
use super::relays::*;
use super::streams::*;

const NAMES: &[&str] = &["client", "near", "server"];

fn listener(kind: &str, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"door\"\nkind = \"{kind}\"\nbind = \"[::]:1080\"\nkeep_client_address = true\n\
         allow_open = true\nallow_private = true\n{more}\n"
    )
}

#[test]
fn socks_listener_keeps_client_addresses() {
    let Some(row) = Row::new(NAMES) else { return };
    let mut near = RunningRelay::start(&row["near"], &listener("socks", ""));
    let (listener, address) = row.server(Family::V4);
    let door = SocketAddr::new(row.left("near", Family::V4), 1080);
    let client = row["client"].inside(|| socks5(door, address)).unwrap();
    let mut server = accept(&listener);
    assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
    assert!(is_relayed(&server));
    let mut same = client.try_clone().unwrap();
    exchange_messages(&mut same, &mut server);
    drop(same);
    transfer_both_ways(client, server, 2_000_000, 2_000_000);
    assert_eq!(near.relay.closed()["end"], "finished");
}

#[test]
fn tcp_listener_keeps_client_addresses() {
    for family in BOTH {
        let Some(row) = Row::new(NAMES) else { return };
        let (server, address) = row.server(family);
        let mut near = RunningRelay::start(&row["near"], &listener("tcp", &format!("target = \"{address}\"")));
        let client = row["client"].connect(SocketAddr::new(row.left("near", family), 1080));
        let server = accept(&server);
        assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        assert_eq!(near.relay.closed()["end"], "finished");
    }
}

/// Regression: the routing rules of a section listener were those of its own address family, so that the answers of
/// servers to clients of the other family were forwarded, and the relay's connections timed out.
#[test]
fn section_listener_keeps_client_addresses_of_both_families() {
    let options = PairOptions { ipv4_section: true, ..PairOptions::default() };
    let Some(mut pair) = Pair::new(Far::Section, options) else { return };
    for family in BOTH {
        let (client, server) = pair.connect(family);
        assert!(is_relayed(&server), "{family:?}");
        assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
        let address = client.peer_addr().unwrap();
        transfer_both_ways(client, server, 2_000_000, 2_000_000);
        pair.all_closed(address, "finished");
    }
}

/// A kept connection to a server must not carry requests of another client.
#[test]
fn http_listener_keeps_client_addresses() {
    if is_any_missing(&["curl", "python3"]) {
        return;
    }
    let Some(row) = Row::new(NAMES) else { return };
    let near = RunningRelay::start(&row["near"], &listener("http", ""));
    let (listener, address) = row.server(Family::V4);
    // The address of a second client, on the same host.
    row["client"].ip("address add 10.0.0.9/24 dev right\n");
    let server = std::thread::spawn(move || {
        [(); 2].map(|()| {
            let mut stream = accept(&listener);
            read_head(&mut stream);
            std::io::Write::write_all(&mut stream, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            (canonical(stream.peer_addr().unwrap()).ip(), stream)
        })
    });
    let proxy = format!("http://{}:1080", row.left("near", Family::V4));
    let own = ["10.0.0.1", "10.0.0.9"];
    for ip in own {
        let folder = Folder::new();
        let mut curl = client("curl", &folder);
        curl.args(["-sSf", "--interface", ip, "-x", &proxy]).arg(format!("http://{address}/"));
        assert_eq!(row["client"].inside(|| run_successfully(&mut curl)), b"ok");
    }
    let seen = join(server).map(|(ip, _)| ip.to_string());
    assert_eq!(seen, own);
    drop(near);
}

/// Ways to end a connection: a reset by the client, FIN of the server first, FIN of the client first.
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

/// Connects from the client's address `own`, as soon as the client's kernel permits the reuse of its port.
fn connect_from(row: &Row, own: SocketAddr, listener: &TcpListener, to: SocketAddr) -> (TcpStream, TcpStream) {
    let connect = || {
        let socket = Socket::new(Domain::for_address(own), Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&own.into()).unwrap();
        socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        match socket.connect(&to.into()) {
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => None,
            result => result.map(|()| Some(TcpStream::from(socket))).expect("the server listens"),
        }
    };
    let client = row["client"].inside(|| eventually("the reuse of the client port", connect));
    (client, accept(listener))
}

#[test]
fn client_port_can_be_reused_at_once() {
    for (kind, timestamps) in [(Far::Router, "1"), (Far::Router, "0"), (Far::Transparent, "1"), (Far::Section, "1")] {
        let Some(mut pair) = Pair::new(kind, PairOptions::default()) else { return };
        // The client keeps no connections in TIME-WAIT.
        pair.row["client"].set("ipv4/tcp_max_tw_buckets", "0");
        pair.row["near"].set("ipv4/tcp_timestamps", timestamps);
        for family in BOTH {
            let (listener, to) = pair.row.server(family);
            for (ending, port) in ENDINGS.into_iter().zip(5001..) {
                let own = SocketAddr::new(pair.row.right("client", family), port);
                for _ in 0..4 {
                    let (mut client, mut server) = connect_from(&pair.row, own, &listener, to);
                    exchange_messages(&mut client, &mut server);
                    assert!(is_relayed(&server));
                    let seen = canonical(server.peer_addr().unwrap());
                    // Without timestamps a port in TIME-WAIT cannot be reused (RFC 6191).
                    assert!(seen == own || timestamps == "0" && seen.ip() == own.ip(), "{seen}");
                    ending(client, server);
                    pair.closed(to);
                }
            }
        }
    }
}

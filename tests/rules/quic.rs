//! `quic` of a listener: UDP packets to port 443 pass or are refused, and `ekiden doctor` counts them.

use std::io::ErrorKind;
use std::net::UdpSocket;

use socket2::SockRef;

use super::harness::TEST_TIMEOUT;
use super::network::{Host, Network, apply, ekiden_rules};
use super::sockets::{CLIENT, SERVER, address};

/// Opens a UDP socket on `host` with the address `from`, connected to port `port` of a server.
fn dial(host: &Host, from: &str, server: &str, port: u16) -> UdpSocket {
    let socket = host.inside(|| UdpSocket::bind(address(from, 0))).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket.connect(address(server, port)).unwrap();
    socket
}

fn server(network: &Network, ip: &str, port: u16) -> UdpSocket {
    let socket = network.server.inside(|| UdpSocket::bind(address(ip, port))).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    socket
}

/// Asserts that a datagram and its answer arrive.
fn assert_passes(client: &UdpSocket, server: &UdpSocket) {
    let mut bytes = [0; 5];
    client.send(b"hello").unwrap();
    let (_, from) = server.recv_from(&mut bytes).expect("the datagram arrives");
    server.send_to(b"there", from).unwrap();
    client.recv(&mut bytes).unwrap();
    assert_eq!(&bytes, b"there");
}

/// Asserts that a datagram is refused. If the packet were dropped without an answer, the read would time out.
fn assert_refused(client: &UdpSocket) {
    let _ = client.send(b"hello");
    assert_eq!(client.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

fn doctor(host: &Host) -> String {
    let report = host.ekiden(&["doctor"]).out;
    let lines: Vec<_> = report.lines().skip_while(|line| !line.contains("QUIC of instance 1")).take(2).collect();
    lines.join("\n")
}

#[test]
fn datagrams_pass_and_are_counted_by_default() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://[::]:7001?interfaces=lan0&name=door"]);
    assert!(doctor(&network.middle).starts_with("ok    QUIC of instance 1"), "{}", doctor(&network.middle));
    for (client, ip) in CLIENT.into_iter().zip(SERVER) {
        assert_passes(&dial(&network.client, client, ip, 443), &server(&network, ip, 443));
    }
    let report = doctor(&network.middle);
    assert!(report.starts_with("hint  QUIC of instance 1") && report.contains(": 2 passed by door"), "{report}");
    assert!(report.contains("quic = \"refuse\""), "{report}");
}

#[test]
fn datagrams_are_refused_at_once_and_counted() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://[::]:7001?interfaces=lan0&name=door&quic=refuse"]);
    for (client, ip) in CLIENT.into_iter().zip(SERVER) {
        let server_at_443 = server(&network, ip, 443);
        assert_refused(&dial(&network.client, client, ip, 443));
        // Datagrams to other ports, and datagrams from other interfaces, pass.
        assert_passes(&dial(&network.client, client, ip, 444), &server(&network, ip, 444));
        let own = if client == CLIENT[0] { "10.2.0.1" } else { "fd02::1" };
        assert_passes(&dial(&network.middle, own, ip, 443), &server_at_443);
    }
    let report = doctor(&network.middle);
    assert!(report.starts_with("ok    QUIC of instance 1") && report.contains(": 2 refused by door"), "{report}");
    network.middle.run_ekiden(&["rules", "remove"]);
    assert_eq!(ekiden_rules(&network.middle), Vec::<String>::new());
    assert_passes(&dial(&network.client, CLIENT[0], SERVER[0], 443), &server(&network, SERVER[0], 443));
}

/// The listener refuses UDP only for the clients and targets whose TCP connections it intercepts.
#[test]
fn datagrams_of_other_clients_and_to_denied_targets_pass() {
    for option in ["clients=10.1.0.99", "deny=10.3.0.0/24", "deny=*:443", "allow=*:80"] {
        let Some(network) = Network::new() else { return };
        apply(&network.middle, &[&format!("tproxy://[::]:7001?interfaces=lan0&quic=refuse&{option}")]);
        assert_passes(&dial(&network.client, CLIENT[0], SERVER[0], 443), &server(&network, SERVER[0], 443));
        assert_eq!(network.middle.counter("quic-refused_0"), 0, "{option}");
    }
}

/// A deny rule for another port does not exclude port 443.
#[test]
fn ports_of_targets_are_compared_with_443() {
    for option in ["deny=*:25", "allow=*:443", "allow=10.3.0.0/24"] {
        let Some(network) = Network::new() else { return };
        apply(&network.middle, &[&format!("tproxy://[::]:7001?interfaces=lan0&quic=refuse&{option}")]);
        let _server = server(&network, SERVER[0], 443);
        assert_refused(&dial(&network.client, CLIENT[0], SERVER[0], 443));
    }
}

/// Regression: datagrams of the relay itself, which it sends for SOCKS5 clients and other relays, were refused.
#[test]
fn datagrams_of_own_programs_are_refused_by_redirect() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["redirect://[::]:7002?interfaces=lo&quic=refuse"]);
    for ((client, own), ip) in CLIENT.into_iter().zip(["10.2.0.1", "fd02::1"]).zip(SERVER) {
        let server = server(&network, ip, 443);
        assert_refused(&dial(&network.middle, own, ip, 443));
        let of_relay = dial(&network.middle, own, ip, 443);
        SockRef::from(&of_relay).set_mark(0xe102_0000).unwrap();
        assert_passes(&of_relay, &server);
        assert_passes(&dial(&network.client, client, ip, 443), &server);
    }
    assert_eq!(network.middle.counter("quic-refused_0"), 2);
}

//! Intercepted connections reach the listener, packets to transparent sockets reach these sockets, and the rules carry
//! out the gate's verdicts, which a rule of the test sets.

use std::io::ErrorKind;

use super::harness::{accept, eventually};
use super::network::{Network, admit, apply};
use super::sockets::{CLIENT, RELAY_MARK, SERVER, TPROXY, address, connect, exchange, listen, send_bulk};

#[test]
fn intercepted_connection_keeps_the_client_address() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    admit(&network.middle);
    // Rules of another program that use conntrack: they must not cause tracking of intercepted connections.
    network
        .middle
        .nft("table inet other { chain other { type filter hook forward priority 0; ct state new counter; }; }");
    let relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (from, to) = (address(client, 4000), address(server, 80));
        let origin = listen(&network.server, to, None);
        let mut down_client = connect(&network.client, from, to, None).unwrap();
        let mut down = accept(&relay);
        let canonical = |address: std::net::SocketAddr| (address.ip().to_canonical(), address.port());
        assert_eq!(canonical(down.local_addr().unwrap()), canonical(to));
        assert_eq!(canonical(down.peer_addr().unwrap()), canonical(from));
        let mut up = connect(&network.middle, from, to, Some(RELAY_MARK)).unwrap();
        let mut up_server = accept(&origin);
        assert_eq!(up_server.peer_addr().unwrap(), from);
        exchange(&mut down_client, &mut down);
        exchange(&mut up, &mut up_server);
    }
    let tracked = network.middle.inside(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack").unwrap());
    assert!(!tracked.contains("tcp"), "{tracked}");
    assert_eq!((network.middle.counter("caught_0"), network.middle.counter("unanswered_0")), (2, 0));
}

/// The router behind `middle` sends "packet too big" to the source address of the packets, which is the client's.
#[test]
fn icmp_errors_reach_transparent_sockets() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (from, to) = (address(client, 4000), address(server, 80));
        let origin = listen(&network.server, to, None);
        // The server's MSS then exceeds the MTU of the link between the router and the server.
        network.server.ip("link set eth0 mtu 1500");
        let mut up = connect(&network.middle, from, to, Some(RELAY_MARK)).unwrap();
        let mut up_server = accept(&origin);
        send_bulk(&mut up, &mut up_server);
        exchange(&mut up, &mut up_server);
    }
}

/// Packets of a connection to another host are forwarded, even if they have the port of the listener.
#[test]
fn packets_to_the_listener_port_of_other_hosts_are_forwarded() {
    let Some(network) = Network::new() else { return };
    let (from, to) = (address(CLIENT[0], 4000), address(SERVER[0], 7001));
    let origin = listen(&network.server, to, None);
    let mut client = connect(&network.client, from, to, None).unwrap();
    let mut server = accept(&origin);
    apply(&network.middle, &[TPROXY]);
    let _relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    exchange(&mut client, &mut server);
}

#[test]
fn target_with_the_listener_port_is_intercepted() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    admit(&network.middle);
    let relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let mut client = connect(&network.client, address(client, 4000), address(server, 7001), None).unwrap();
        let mut down = accept(&relay);
        exchange(&mut client, &mut down);
        exchange(&mut down, &mut client);
    }
}

/// The client reuses the port of a connection that has just ended, and the socket on `middle` is in TIME_WAIT.
#[test]
fn reused_client_port_opens_a_new_connection() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["tproxy://0.0.0.0:7001?interfaces=lan0"]);
    admit(&network.middle);
    let relay = listen(&network.middle, address("0.0.0.0", 7001), Some(RELAY_MARK));
    let (from, to) = (address(CLIENT[0], 4000), address(SERVER[0], 80));
    for turn in 1..=3 {
        // The port is free when the client's kernel has processed the end of the previous connection.
        let mut client =
            eventually("the reuse of the client port", || match connect(&network.client, from, to, None) {
                Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => None,
                connected => Some(connected.unwrap()),
            });
        let mut down = accept(&relay);
        exchange(&mut client, &mut down);
        // The end that closes first enters TIME_WAIT.
        down.shutdown(std::net::Shutdown::Both).unwrap();
        assert_eq!(std::io::Read::read(&mut client, &mut [0]).unwrap(), 0);
        drop(client);
        drop(down);
        assert_eq!(network.middle.counter("caught_0"), turn);
    }
    assert!(network.middle.run("ss", "-tan state time-wait").contains(":4000"));
}

/// With these settings, which WireGuard's tools use, the kernel looks up the reverse path of a packet with the packet's
/// mark.
#[test]
fn marks_do_not_break_reverse_path_checks() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    admit(&network.middle);
    for setting in ["conf/all/src_valid_mark", "conf/all/rp_filter", "fwmark_reflect"] {
        network.middle.set(&format!("ipv4/{setting}"), "1");
    }
    let relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    let (from, to) = (address(CLIENT[0], 4000), address(SERVER[0], 80));
    let origin = listen(&network.server, to, None);
    let mut client = connect(&network.client, from, to, None).unwrap();
    exchange(&mut client, &mut accept(&relay));
    let mut up = connect(&network.middle, from, to, Some(RELAY_MARK)).unwrap();
    exchange(&mut up, &mut accept(&origin));
    // The close sends RST, because of SO_LINGER with 0 s. With `fwmark_reflect`, replies of the kernel carry the mark
    // of the packet that they answer.
    let mut again = connect(&network.client, address(CLIENT[0], 4001), to, None).unwrap();
    let down = accept(&relay);
    socket2::SockRef::from(&down).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(down);
    let error = std::io::Read::read(&mut again, &mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn local_programs_are_redirected_and_clients_pass_without_a_daemon() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["redirect://[::]:7002?interfaces=lan0&interfaces=lo"]);
    let relay = listen(&network.middle, address("::", 7002), None);
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (from, to) = (address(client, 4000), address(server, 80));
        let origin = listen(&network.server, to, None);
        let mut client = connect(&network.client, from, to, None).unwrap();
        exchange(&mut client, &mut accept(&origin));
    }
    assert_eq!((network.middle.counter("caught_0"), network.middle.counter("unanswered_0")), (2, 2));
    for (own, server) in ["10.2.0.1", "fd02::1"].into_iter().zip(SERVER) {
        let mut program = connect(&network.middle, address(own, 4001), address(server, 80), None).unwrap();
        let mut down = accept(&relay);
        exchange(&mut program, &mut down);
    }
    assert_eq!((network.middle.counter("caught_0"), network.middle.counter("unanswered_0")), (4, 2));
}

#[test]
fn packets_of_the_relay_are_not_redirected() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &["redirect://0.0.0.0:7002?interfaces=lo"]);
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut own =
        connect(&network.middle, address("10.2.0.1", 4001), address(SERVER[0], 80), Some(RELAY_MARK)).unwrap();
    exchange(&mut own, &mut accept(&origin));
    assert_eq!(network.middle.counter("caught_0"), 0);
}

/// Replaces the gate with a rule that gives every SYN this verdict.
fn gate(network: &Network, verdict: &str) {
    network.middle.nft(&format!(
        "table inet gate\ndelete table inet gate\ntable inet gate {{ chain gate {{ \
         type filter hook prerouting priority raw + 1; meta mark & 0xffff0000 == 0xe1100000 meta mark set {verdict}; }}; }}"
    ));
}

#[test]
fn gate_verdicts_reach_the_client() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    let _relay = listen(&network.middle, address("::", 7001), Some(RELAY_MARK));
    for (client, server) in CLIENT.into_iter().zip(SERVER) {
        let (from, to) = (address(client, 4000), address(server, 80));
        let origin = listen(&network.server, to, None);
        let try_connect = || connect(&network.client, from, to, None);
        gate(&network, "0xe1040000");
        assert_eq!(try_connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        gate(&network, "0xe1050000");
        // The errors of Linux for "address unreachable" in IPv6 and "host unreachable" in IPv4.
        assert_eq!(try_connect().unwrap_err().kind(), ErrorKind::HostUnreachable);
        gate(&network, "0xe1030000");
        exchange(&mut try_connect().unwrap(), &mut accept(&origin));
    }
    let counted = ["refused", "passed", "unanswered_0", "asymmetric"].map(|name| network.middle.counter(name));
    assert_eq!(counted, [2, 2, 0, 0]);
    // If an ICMP error arrives during connect(2), the kernel only records the error, and sends the SYN again.
    let unreachable = network.middle.counter("unreachable");
    assert!(unreachable >= 2);
    assert_eq!(network.middle.counter("caught_0"), 4 + unreachable);
}

/// Other programs may use the lower 16 bits of a mark.
#[test]
fn lower_mark_bits_are_preserved() {
    let Some(network) = Network::new() else { return };
    apply(&network.middle, &[TPROXY]);
    gate(&network, "0xe1030000 | 0x42");
    network.middle.nft(
        "table inet other { counter seen { }; chain other { type filter hook forward priority 0; \
         iifname \"lan0\" meta mark 0x42 counter name seen; }; }",
    );
    let origin = listen(&network.server, address(SERVER[0], 80), None);
    let mut client = connect(&network.client, address(CLIENT[0], 4000), address(SERVER[0], 80), None).unwrap();
    exchange(&mut client, &mut accept(&origin));
    let seen = network.middle.run("nft", "list counter inet other seen");
    assert!(seen.contains("packets 1 "), "{seen}");
}

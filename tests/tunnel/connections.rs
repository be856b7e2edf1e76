//! TCP connections through a tunnel, with their FIN and RST, and connections of programs on the boxes themselves.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use super::harness::*;
use super::network::*;
use super::programs::*;
use super::sites::*;

#[test]
fn hosts_reach_each_other_by_their_own_addresses() {
    let Some(mut sites) = Sites::new("") else { return };
    for family in BOTH {
        for (from, to) in [("client", "server"), ("server", "client")] {
            let (mut client, mut server) = sites.connect(from, to, family);
            assert_eq!(
                canonical(server.peer_addr().unwrap()),
                client.local_addr().unwrap(),
                "the client's own address"
            );
            check_transfer(&mut client, &mut server);
            check_transfer(&mut server, &mut client);
            drop(client);
            assert_eq!(read_remaining(&mut server), (Vec::new(), Ending::Clean));
            drop(server);
            let [left, right] = sites.closed();
            let (near, far) = if from == "client" { (left, right) } else { (right, left) };
            assert_eq!((&near["path"], &near["listener"]), (&"long".into(), &"tunnel".into()), "{near}");
            assert_eq!((&far["path"], &far["listener"]), (&"direct".into(), &"section".into()), "{far}");
            assert_eq!((&near["end"], &far["end"]), (&"finished".into(), &"finished".into()));
        }
    }
}

#[test]
fn closed_ports_and_missing_hosts_are_reported_across_the_tunnel() {
    let Some(sites) = Sites::new("") else { return };
    for family in BOTH {
        let address = SocketAddr::new(sites.row.left("server", family), CLOSED_PORT);
        let error = sites.row["client"].try_connect(address).expect_err("no listener");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        // The far relay reports the missing host after a failed neighbour discovery. If that takes longer than
        // `timeouts.hold`, the near relay rejects the connection. A timeout would mean that no relay has reported it.
        let absent = match family {
            Family::V4 => "10.0.2.77:9",
            Family::V6 => "[fd00:0:0:2::77]:9",
        };
        let error =
            sites.row["client"].try_connect(absent.parse::<SocketAddr>().unwrap()).expect_err("no host answers");
        assert_eq!(error.kind(), ErrorKind::HostUnreachable, "{error}");
    }
}

/// In `connect` modes that accept the client before the server has answered, a connection to a closed port is reset.
#[test]
fn closed_port_without_hold_is_a_reset() {
    for connect in ["strict", "early"] {
        let Some(sites) = Sites::new(&format!("connect = \"{connect}\"")) else { return };
        for family in BOTH {
            for from in ["client", "left"] {
                let (mut client, mut server) = sites.connect(from, "server", family);
                exchange(&mut client, &mut server);
                let address = SocketAddr::new(sites.row.left("server", family), CLOSED_PORT);
                match sites.row[from].try_connect(address) {
                    Ok(mut client) => assert_eq!(read_remaining(&mut client).1, Ending::Reset, "{connect}, {from}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{connect}, {from}"),
                }
            }
        }
    }
}

/// Both boxes have strict reverse-path filtering, and drop packets in conntrack state INVALID.
#[test]
fn tunnel_works_with_strict_rp_filter_and_conntrack() {
    let Some(row) = hosts(&BOTH) else { return };
    for host in ["left", "right"] {
        for interface in ["all", "default", "left", "right", "lo"] {
            row[host].set(&format!("ipv4/conf/{interface}/rp_filter"), "1");
        }
        row[host].nft(
            "table inet strict { chain input { type filter hook input priority 0; ct state invalid drop; }; \
             chain forward { type filter hook forward priority 0; ct state invalid drop; }; \
             chain output { type filter hook output priority 0; ct state invalid drop; }; \
             chain hide { type nat hook postrouting priority srcnat; oifname != \"left\" masquerade; }; }",
        );
    }
    let configs = BoxConfigs::new(&row, "");
    let sites = Sites::start(row, configs);
    for family in BOTH {
        for from in ["client", "left"] {
            let (mut client, mut server) = sites.connect(from, "server", family);
            assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
            check_transfer(&mut client, &mut server);
            check_transfer(&mut server, &mut client);
        }
    }
}

#[test]
fn fin_and_rst_cross_the_tunnel() {
    let Some(mut sites) = Sites::new("") else { return };
    for family in BOTH {
        let (mut client, mut server) = sites.connect("client", "server", family);
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_remaining(&mut server), (b"question".to_vec(), Ending::Clean));
        server.write_all(b"answer").unwrap();
        drop(server);
        assert_eq!(read_remaining(&mut client), (b"answer".to_vec(), Ending::Clean));
        sites.closed();

        for server_resets in [false, true] {
            let (mut client, mut server) = sites.connect("client", "server", family);
            client.write_all(b"x").unwrap();
            read_exactly(&mut server, 1);
            let mut other = if server_resets {
                reset(server);
                client
            } else {
                reset(client);
                server
            };
            assert_eq!(read_remaining(&mut other), (Vec::new(), Ending::Reset));
            sites.closed();
        }
    }
}

#[test]
fn stalled_receiver_blocks_only_its_own_connection() {
    let Some(sites) = Sites::new("") else { return };
    let (mut client, mut server) = sites.connect("client", "server", Family::V4);
    client.set_nonblocking(true).unwrap();
    let (block, mut sent) = (pattern(65_536), 0);
    // Until all buffers of the path are full, as the server does not read: 40 attempts in a row, 5 ms apart, write
    // nothing.
    let mut full = 0;
    while full < 40 {
        match client.write(&block) {
            Ok(count) => (sent, full) = (sent + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                full += 1;
                pause_until(Instant::now() + Duration::from_millis(5));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < 256 << 20, "no bound on the buffers of the tunnel: {sent}");
    let (mut other, mut other_server) = sites.connect("client", "server", Family::V4);
    other.write_all(b"not held up").unwrap();
    assert_eq!(read_exactly(&mut other_server, 11), b"not held up");
    client.set_nonblocking(false).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let (received, ending) = read_remaining(&mut server);
    assert_eq!((received.len(), ending), (sent, Ending::Clean));
}

#[test]
fn curl_fetches_from_the_other_site() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let Some(sites) = Sites::new("") else { return };
    for family in BOTH {
        let (listener, address) = sites.listen("server", family);
        let server = thread::spawn(move || {
            let mut stream = accept(&listener);
            read_head(&mut stream);
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok").unwrap();
            canonical(stream.peer_addr().unwrap()).ip()
        });
        let folder = Folder::new();
        let mut curl = client("curl", &folder);
        curl.args(["-sSf", &format!("http://{address}/")]);
        assert_eq!(sites.row["client"].inside(|| run_successfully(&mut curl)), b"ok");
        assert_eq!(join(server), sites.row.right("client", family));
    }
}

#[test]
fn boxes_reach_hosts_of_the_other_site() {
    let Some(mut sites) = Sites::new("") else { return };
    for family in BOTH {
        for (from, to) in [("left", "server"), ("right", "client")] {
            let (mut client, mut server) = sites.connect(from, to, family);
            assert_eq!(canonical(server.peer_addr().unwrap()), client.local_addr().unwrap());
            check_transfer(&mut client, &mut server);
            drop(server);
            assert_eq!(read_remaining(&mut client), (Vec::new(), Ending::Clean));
            drop(client);
            sites.closed();
        }
        let address = SocketAddr::new(sites.row.left("server", family), CLOSED_PORT);
        let error = sites.row["left"].try_connect(address).expect_err("no listener");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn connections_of_the_box_use_the_configured_source() {
    let Some(row) = hosts(&BOTH) else { return };
    let mut configs = BoxConfigs::new(&row, "");
    configs.left += "source = \"10.0.0.2\"\n";
    let sites = Sites::start(row, configs);
    let (_client, server) = sites.connect("left", "server", Family::V4);
    assert_eq!(canonical(server.peer_addr().unwrap()).ip(), sites.row.left("left", Family::V4));
}

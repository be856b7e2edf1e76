//! Fragments, small MTUs and rewritten headers: each section handles those of its own part of the path.

use crate::MEBI;
use crate::daemons::check_connection;
use crate::harness::*;
use crate::network::*;
use crate::relays::*;
use crate::streams::*;

/// Sets the MTU of the link between two neighbouring hosts.
fn limit_mtu(row: &Row, host: &str, next: &str, mtu: u32) {
    row[host].ip(&format!("link set right mtu {mtu}\n"));
    row[next].ip(&format!("link set left mtu {mtu}\n"));
}

/// A counter of the kernel on a host, as nstat(8) shows it.
fn kernel_counter(host: &Host, name: &str) -> u64 {
    let shown = host.run("nstat", &["-asz", name], "");
    let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {shown}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Transfers 3 MiB in each direction through one relay.
fn check_transfer(row: &Row, near: &mut RunningRelay, family: Family) {
    let (listener, address) = row.server(family);
    let client = row["client"].connect(address);
    let server = accept(&listener);
    transfer_both_ways(client, server, 3 * MEBI, 3 * MEBI);
    let closed = near.relay.closed();
    assert_eq!(closed["end"], "finished", "{closed}");
    assert_eq!(closed["bytes_up"], 3 * MEBI, "{closed}");
}

#[test]
fn fragments_on_the_client_side_are_reassembled() {
    let Some(row) = Row::new(&["client", "first", "second", "near", "server"]) else { return };
    limit_mtu(&row, "first", "second", 600);
    // The client lets routers fragment its packets.
    row["client"].set("ipv4/ip_no_pmtu_disc", "1");
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    check_transfer(&row, &mut near, Family::V4);
    assert!(kernel_counter(&row["near"], "IpReasmOKs") > 100, "there were no fragments");
}

#[test]
fn fragments_on_the_server_side_are_reassembled() {
    let Some(row) = Row::new(&["client", "near", "first", "second", "server"]) else { return };
    limit_mtu(&row, "first", "second", 600);
    row["server"].set("ipv4/ip_no_pmtu_disc", "1");
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    check_transfer(&row, &mut near, Family::V4);
    assert!(kernel_counter(&row["near"], "IpReasmOKs") > 100, "there were no fragments");
}

/// Routers send ICMP messages to the source address of the packets, which is not an address of the relay's host. The
/// host must process these messages nevertheless.
#[test]
fn path_mtu_is_discovered_on_either_side() {
    for names in [&["client", "first", "second", "near", "server"], &["client", "near", "first", "second", "server"]] {
        let Some(row) = Row::new(names) else { return };
        limit_mtu(&row, "first", "second", 1300);
        row["near"].set("ipv4/tcp_mtu_probing", "0");
        let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
        for (family, counter) in [(Family::V4, "IcmpOutDestUnreachs"), (Family::V6, "Icmp6OutPktTooBigs")] {
            check_transfer(&row, &mut near, family);
            let reported = kernel_counter(&row["first"], counter) + kernel_counter(&row["second"], counter);
            assert!(reported > 0, "no router has reported the narrow link");
        }
    }
}

/// Like the test above, for connections that bypass the relay, whose host must not take the routers' ICMP messages to
/// clients.
#[test]
fn path_mtu_is_discovered_by_bypassing_connections() {
    let Some(row) = Row::new(&["client", "near", "first", "second", "server"]) else { return };
    limit_mtu(&row, "first", "second", 1280);
    // Segments are larger than the MTU of the link, so that its router reports them.
    row["server"].set("ipv4/tcp_mtu_probing", "0");
    let near = RunningRelay::start(&row["near"], &format!("[limits]\nsessions = 1\n{}", intercepting_listener("")));
    let (listener, address) = row.server(Family::V6);
    let _first = (row["client"].connect(address), accept(&listener));
    for (family, counter) in [(Family::V4, "IcmpOutDestUnreachs"), (Family::V6, "Icmp6OutPktTooBigs")] {
        let (listener, address) = row.server(family);
        let client = row["client"].connect(address);
        transfer_both_ways(client, accept(&listener), 3 * MEBI, 3 * MEBI);
        assert!(kernel_counter(&row["first"], counter) > 0, "no router has reported the narrow link");
        row["client"].run("ping", &["-c", "1", "-W", "5", &address.ip().to_string()], "");
    }
    assert_eq!(near.relay.sessions().len(), 1);
}

/// A router rewrites the MSS option of SYNs, on either side of the relay.
#[test]
fn mss_clamping_is_respected_on_either_side() {
    const CLAMP: &str = "table inet clamp { chain forward { type filter hook forward priority 0; \
        tcp flags & syn == syn tcp option maxseg size set 700; }; }";
    for names in [&["client", "first", "near", "server"], &["client", "near", "first", "server"]] {
        let Some(row) = Row::new(names) else { return };
        row["first"].nft(CLAMP);
        let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
        for family in BOTH {
            let (listener, address) = row.server(family);
            let mut client = row["client"].connect(address);
            let mut server = accept(&listener);
            exchange_messages(&mut client, &mut server);
            let segment = |stream| socket2::SockRef::from(stream).tcp_mss().unwrap();
            let clamped = if names[1] == "first" { segment(&client) } else { segment(&server) };
            assert!(clamped <= 700, "{names:?}: {clamped}");
            transfer_both_ways(client, server, 3 * MEBI, 3 * MEBI);
            assert_eq!(near.relay.closed()["end"], "finished");
        }
    }
}

/// Each section negotiates ECN by the settings of its own ends (RFC 3168).
#[test]
fn ecn_is_negotiated_separately_by_each_section() {
    // Sets CE in every ECN-capable packet, like a congested router.
    const MARKS: &str = "table inet marks { chain forward { type filter hook forward priority 0; \
        ip ecn ect0 ip ecn set ce; ip6 ecn ect0 ip6 ecn set ce; }; }";
    let Some(row) = Row::new(&["client", "first", "near", "server"]) else { return };
    row["first"].nft(MARKS);
    let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    for family in BOTH {
        for wanted in ["1", "0"] {
            row["client"].set("ipv4/tcp_ecn", wanted);
            let (listener, address) = row.server(family);
            let mut client = row["client"].connect(address);
            let mut server = accept(&listener);
            exchange_messages(&mut client, &mut server);
            assert!(is_relayed(&server), "tcp_ecn = {wanted}");
            let seen = row["client"].run("ss", &["-Htino", "state", "established"], "");
            assert_eq!(seen.contains(" ecn"), wanted != "0", "tcp_ecn = {wanted}: {seen}");
            let seen = row["server"].run("ss", &["-Htino", "state", "established"], "");
            assert!(!seen.contains(" ecn"), "{seen}");
            transfer_both_ways(client, server, MEBI, MEBI);
            assert_eq!(near.relay.closed()["end"], "finished");
            for host in ["client", "near", "server"] {
                eventually("all to be over", || no_connections(&row[host]));
            }
        }
    }
}

fn no_connections(host: &Host) -> Option<()> {
    host.run("ss", &["-Htino", "state", "established"], "").is_empty().then_some(())
}

/// The kernel of the relay's host drops packets that arrive on another interface than the route back to their source
/// (RFC 3704), as distributions configure it.
#[test]
fn relaying_works_with_reverse_path_filtering() {
    for filter in ["1", "2"] {
        let Some(row) = Row::new(&["client", "near", "server"]) else { return };
        row["near"].set("ipv4/conf/all/rp_filter", filter);
        row["near"].set("ipv4/conf/lo/rp_filter", filter);
        let mut near = RunningRelay::start(&row["near"], &intercepting_listener(""));
        check_transfer(&row, &mut near, Family::V4);
    }
}

#[test]
fn relayed_connections_take_no_conntrack_entry() {
    let Some(row) = Row::new(&["client", "near", "server"]) else { return };
    // A rule with `ct state` makes the kernel track all connections.
    row["near"]
        .nft("table inet track { chain forward { type filter hook forward priority 0; ct state invalid drop; }; }");
    let near = RunningRelay::start(&row["near"], &intercepting_listener(""));
    let tracked = || {
        let count = row["near"].inside(|| std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count"));
        count.unwrap().trim().to_owned()
    };
    for family in BOTH {
        let (_client, server) = check_connection(&row, "client", "server", family);
        assert!(is_relayed(&server));
        assert_eq!(tracked(), "0", "{family:?}");
    }
    // The relay does not intercept connections of the server.
    let _direct = check_connection(&row, "server", "client", Family::V4);
    assert_ne!(tracked(), "0", "the kernel tracks no connection");
    eventually("the end of both sessions", || near.relay.sessions().is_empty().then_some(()));
}

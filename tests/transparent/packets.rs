//! Losses, small MTUs and rewriting on the way: each section handles those of its own part of the path.

use crate::boxes::*;
use crate::harness::*;
use crate::network::*;
use crate::streams::*;

const MEBI: usize = 1 << 20;

/// Makes the link to the right of a host narrow.
fn narrow(row: &Row, host: &str, next: &str, mtu: u32) {
    row[host].ip(&format!("link set right mtu {mtu}\n"));
    row[next].ip(&format!("link set left mtu {mtu}\n"));
}

/// A number that the kernel counts on a host.
fn counted(host: &Host, name: &str) -> u64 {
    let shown = host.run("nstat", &["-asz", name], "");
    let line = shown.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {shown}"));
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A large transfer both ways over one box.
fn carries(row: &Row, near: &mut Station, family: Family) {
    let (listener, address) = row.server(family);
    let client = row["client"].connect(address);
    let server = accept(&listener);
    exchange(client, server, 3 * MEBI, 3 * MEBI);
    let closed = near.relay.closed();
    assert_eq!(closed["end"], "finished", "{closed}");
    assert_eq!(closed["bytes_up"], 3 * MEBI, "{closed}");
}

#[test]
fn fragments_before_the_box() {
    let Some(row) = Row::new(&["client", "first", "second", "near", "server"]) else { return };
    narrow(&row, "first", "second", 600);
    // Both ends let routers cut their packets.
    row["client"].set("ipv4/ip_no_pmtu_disc", "1");
    let mut near = Station::start(&row["near"], &catching(""));
    carries(&row, &mut near, Family::V4);
    assert!(counted(&row["near"], "IpReasmOKs") > 100, "there were no fragments");
}

#[test]
fn fragments_behind_the_box() {
    let Some(row) = Row::new(&["client", "near", "first", "second", "server"]) else { return };
    narrow(&row, "first", "second", 600);
    row["server"].set("ipv4/ip_no_pmtu_disc", "1");
    let mut near = Station::start(&row["near"], &catching(""));
    carries(&row, &mut near, Family::V4);
    assert!(counted(&row["near"], "IpReasmOKs") > 100, "there were no fragments");
}

/// Routers answer to the address in the packets, which is not the box's: it has to hear them all the same.
#[test]
fn a_narrow_link_is_discovered_on_either_side() {
    for names in [&["client", "first", "second", "near", "server"], &["client", "near", "first", "second", "server"]] {
        let Some(row) = Row::new(names) else { return };
        narrow(&row, "first", "second", 1300);
        row["near"].set("ipv4/tcp_mtu_probing", "0");
        let mut near = Station::start(&row["near"], &catching(""));
        for (family, asked) in [(Family::V4, "IcmpOutDestUnreachs"), (Family::V6, "Icmp6OutPktTooBigs")] {
            carries(&row, &mut near, family);
            let told = counted(&row["first"], asked) + counted(&row["second"], asked);
            assert!(told > 0, "nobody was told that the link is narrow");
        }
    }
}

/// Like the test above, for connections that bypass: the relay ignores the ICMP messages of routers to clients.
#[test]
fn a_narrow_link_is_discovered_by_those_that_go_by() {
    let Some(row) = Row::new(&["client", "near", "first", "second", "server"]) else { return };
    narrow(&row, "first", "second", 1280);
    // Larger segments than the link takes, so that there is something to say.
    row["server"].set("ipv4/tcp_mtu_probing", "0");
    let near = Station::start(&row["near"], &format!("[limits]\nsessions = 1\n{}", catching("")));
    let (listener, address) = row.server(Family::V6);
    let _first = (row["client"].connect(address), accept(&listener));
    for (family, asked) in [(Family::V4, "IcmpOutDestUnreachs"), (Family::V6, "Icmp6OutPktTooBigs")] {
        let (listener, address) = row.server(family);
        let client = row["client"].connect(address);
        exchange(client, accept(&listener), 3 * MEBI, 3 * MEBI);
        assert!(counted(&row["first"], asked) > 0, "nobody was told that the link is narrow");
        row["client"].run("ping", &["-c", "1", "-W", "5", &address.ip().to_string()], "");
    }
    assert_eq!(near.relay.sessions().len(), 1);
}

/// A router that rewrites the MSS, on either side.
#[test]
fn segments_are_clamped_on_either_side() {
    const CLAMP: &str = "table inet clamp { chain forward { type filter hook forward priority 0; \
        tcp flags & syn == syn tcp option maxseg size set 700; }; }";
    for names in [&["client", "first", "near", "server"], &["client", "near", "first", "server"]] {
        let Some(row) = Row::new(names) else { return };
        row["first"].nft(CLAMP);
        let mut near = Station::start(&row["near"], &catching(""));
        for family in BOTH {
            let (listener, address) = row.server(family);
            let mut client = row["client"].connect(address);
            let mut server = accept(&listener);
            talk(&mut client, &mut server);
            let segment = |stream| socket2::SockRef::from(stream).tcp_mss().unwrap();
            let clamped = if names[1] == "first" { segment(&client) } else { segment(&server) };
            assert!(clamped <= 700, "{names:?}: {clamped}");
            exchange(client, server, 3 * MEBI, 3 * MEBI);
            assert_eq!(near.relay.closed()["end"], "finished");
        }
    }
}

/// Each section negotiates ECN by the settings of its own ends (RFC 3168).
#[test]
fn congestion_notification_is_each_section_s_own() {
    // Every packet that may be marked has met a queue that was long.
    const MARKS: &str = "table inet marks { chain forward { type filter hook forward priority 0; \
        ip ecn ect0 ip ecn set ce; ip6 ecn ect0 ip6 ecn set ce; }; }";
    let Some(row) = Row::new(&["client", "first", "near", "server"]) else { return };
    row["first"].nft(MARKS);
    let mut near = Station::start(&row["near"], &catching(""));
    for family in BOTH {
        for wanted in ["1", "0"] {
            row["client"].set("ipv4/tcp_ecn", wanted);
            let (listener, address) = row.server(family);
            let mut client = row["client"].connect(address);
            let mut server = accept(&listener);
            talk(&mut client, &mut server);
            assert!(is_cut(&server), "tcp_ecn = {wanted}");
            let seen = row["client"].run("ss", &["-Htino", "state", "established"], "");
            assert_eq!(seen.contains(" ecn"), wanted != "0", "tcp_ecn = {wanted}: {seen}");
            let seen = row["server"].run("ss", &["-Htino", "state", "established"], "");
            assert!(!seen.contains(" ecn"), "{seen}");
            exchange(client, server, MEBI, MEBI);
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

/// A box whose kernel drops packets that come from where it would not send (RFC 3704), as distributions set it.
#[test]
fn a_box_that_filters_by_reverse_path() {
    for filter in ["1", "2"] {
        let Some(row) = Row::new(&["client", "near", "server"]) else { return };
        row["near"].set("ipv4/conf/all/rp_filter", filter);
        row["near"].set("ipv4/conf/lo/rp_filter", filter);
        let mut near = Station::start(&row["near"], &catching(""));
        carries(&row, &mut near, Family::V4);
    }
}

/// Relayed connections take no entry in the box's conntrack table.
#[test]
fn connections_are_not_tracked() {
    let Some(row) = Row::new(&["client", "near", "server"]) else { return };
    // Makes the kernel track everything.
    row["near"]
        .nft("table inet track { chain forward { type filter hook forward priority 0; ct state invalid drop; }; }");
    let near = Station::start(&row["near"], &catching(""));
    for family in BOTH {
        let (listener, address) = row.server(family);
        let mut client = row["client"].connect(address);
        let mut server = accept(&listener);
        talk(&mut client, &mut server);
        assert!(is_cut(&server));
        let tracked = row["near"].inside(|| std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count"));
        assert_eq!(tracked.unwrap().trim(), "0", "{family:?}");
    }
    eventually("the end of both sessions", || near.relay.sessions().is_empty().then_some(()));
}

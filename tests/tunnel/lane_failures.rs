//! Lanes during a flood, after a relay was killed, and with an interceptor that alters records.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::*;
use crate::interceptor::{Direction, Framed, forward_unchanged, start_interceptor};
use crate::lanes::*;
use crate::network::*;
use crate::programs::is_any_missing;
use crate::relays::RunningRelay;
use crate::sites::*;

fn sites() -> Option<Sites> {
    if is_any_missing(&["ping", "ss"]) { None } else { Sites::new("") }
}

/// The link carries 20 Mbit/s, and the sender exceeds that rate about 30 times.
#[test]
fn flood_is_dropped_and_leaves_no_queue_or_memory() {
    let Some(mut sites) = sites() else { return };
    sites.row["left"].run(
        "tc",
        &["qdisc", "add", "dev", "right", "root", "tbf", "rate", "20mbit", "burst", "32k", "latency", "50ms"],
        "",
    );
    let server = sites.address("server", Family::V4);
    wait_reachable(&sites.row["client"], server);
    let before = sites.left.relay.resident_kib();
    let sink = sites.row["server"].inside(|| UdpSocket::bind((server, 0))).unwrap();
    let to = sink.local_addr().unwrap();
    let flooder = sites.row["client"].inside(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&done);
    let flood = std::thread::spawn(move || {
        let mut sent = 0_u64;
        while !stopped.load(Ordering::Relaxed) {
            sent += u64::from(flooder.send_to(&[7; 1200], to).is_ok());
            // At most about 600 Mbit/s, 30 times the rate of the link: a faster sender would take the CPU from the
            // relays.
            if sent.is_multiple_of(64) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        sent
    });
    // A lane cannot drop packets that are in the kernel's send queue, and a long queue would delay every later packet.
    eventually("dropped packets", || {
        let unsent = unsent(&sites.row["left"]);
        assert!(unsent <= MAX_UNSENT + MAX_UNSENT / 2, "{unsent} bytes are unsent in the kernel");
        for lane in lanes(&sites.left) {
            assert!(lane["waiting"].as_u64().unwrap() <= MAX_WAITING, "{lane}");
        }
        (lost(&sites) > 5000).then_some(())
    });
    // Sessions continue during the flood.
    let (mut client, mut far) = sites.connect("client", "server", Family::V4);
    check_transfer(&mut client, &mut far);
    let grown = sites.left.relay.resident_kib().saturating_sub(before);
    done.store(true, Ordering::Relaxed);
    let sent = join(flood);
    wait_reachable(&sites.row["client"], server);
    check_answered(&sites.boxes(), &sites.row["client"], server, 20, &[]);
    for running in sites.boxes() {
        assert!(lanes(running).iter().all(|lane| lane["waiting"] == 0), "{:?}", lanes(running));
    }
    assert!(grown < 16 * 1024, "{grown} KiB more");
    println!("{sent} datagrams sent, {} dropped, {grown} KiB more", lost(&sites));
    drop((client, far));
    sites.closed();
}

/// `MAX_UNSENT_LANE` of `dial/mod.rs`, in bytes. A lane writes at most that many bytes at once, and only while fewer
/// than half of it are unsent (tcp(7), `TCP_NOTSENT_LOWAT`).
const MAX_UNSENT: u64 = 16 * 1024;

/// `MAX_PACKETS` of `tunnel/lane.rs`.
const MAX_WAITING: u64 = 256;

/// The largest number of unsent bytes that the kernel holds for a connection to the other relay (`notsent` of ss(8)).
fn unsent(host: &Host) -> u64 {
    let shown = host.run("ss", &["-tinH", "dport = :7000"], "");
    let of_connections = shown.split_whitespace().filter_map(|word| word.strip_prefix("notsent:"));
    of_connections.map(|bytes| bytes.parse().unwrap()).max().unwrap_or(0)
}

/// Number of packets that the lanes of the left relay have dropped because a queue was full or the packet was late.
fn lost(sites: &Sites) -> u64 {
    let count = |listener| dropped(&sites.left, listener, "full") + dropped(&sites.left, listener, "late");
    count("tunnel") + count("section")
}

#[test]
fn lane_recovers_when_the_far_box_restarts() {
    let Some(sites) = sites() else { return };
    let Sites { row, mut left, right, .. } = sites;
    let server = row.left("server", Family::V4);
    wait_reachable(&row["client"], server);
    let site = right.kill();
    assert_eq!(pings(&row["client"], server, 50, &[]), 0);
    wait_warning(&mut left, "no lane by long");
    assert!(dropped(&left, "tunnel", "no_lane") > 0);
    let right = site.start(&row["right"]);
    wait_reachable(&row["client"], server);
    wait_warning(&mut left, "the lane by long is open again");
    check_answered(&[&left, &right], &row["client"], server, 20, &[]);
    left.relay.signal("TERM");
    let more = left.relay.remaining_events().into_iter().filter(|event| event["event"] == "warning").count();
    assert_eq!(more, 0, "more than one warning for the loss and one for the recovery");
}

/// An altered record ends the lane, and the log names the cause. The next packet opens another lane.
#[test]
fn altered_record_ends_the_lane_and_is_logged() {
    for direction in [Direction::Up, Direction::Down] {
        if is_any_missing(&["ping"]) {
            return;
        }
        let Some(row) = hosts(&BOTH) else { return };
        let mut configs = BoxConfigs::new(&row, "");
        // The right relay dials no lane, so that packets of both directions pass through the interceptor.
        disable_dialling(&mut configs.right);
        let at = SocketAddr::new(row.left("right", Family::V4), 7000);
        let once = Arc::new(AtomicBool::new(true));
        let pending = Arc::clone(&once);
        let middle = row["left"].inside(|| {
            start_interceptor(at, Framed::Encrypted, move |mut frame| {
                if frame.direction == direction && frame.number == 6 && once.swap(false, Ordering::Relaxed) {
                    *frame.bytes.last_mut().unwrap() ^= 1;
                }
                forward_unchanged(frame)
            })
        });
        configs.left = configs.left.replacen(&format!("{at}"), &format!("{middle}"), 1);
        let mut sites = Sites::start(row, configs);
        let server = sites.address("server", Family::V4);
        wait_reachable(&sites.row["client"], server);
        eventually("the altered record", || {
            pings(&sites.row["client"], server, 10, &[]);
            (!pending.load(Ordering::Relaxed)).then_some(())
        });
        let log = wait_warning(&mut sites.left, "no lane by long");
        let closed = sites.right.relay.next(|event| event["event"] == "closed" && event["target"].is_null());
        match direction {
            Direction::Up => {
                assert!(closed["end"] == "altered" && log.contains("the connection failed"), "{closed}, {log}")
            }
            Direction::Down => assert!(log.contains("a record that was altered, repeated or reordered"), "{log}"),
        }
        wait_reachable(&sites.row["client"], server);
        wait_warning(&mut sites.left, "open again");
    }
}

/// Drops the packets to port 7001, as if the relay there were unreachable.
const DROP_PORT: &str = "table inet hole { chain input { type filter hook input priority 0; tcp dport 7001 drop; }; }";

/// Starts two relays on the left box, `first` and `second`, and configures paths through both to the right relay.
/// `first` dials port 7001 of the right box, where no relay listens.
fn start_middle_relays(row: &Row, configs: &mut BoxConfigs) -> [RunningRelay; 2] {
    let line = |text: &str, start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
    let (keys, far_key) = ([Key::new(), Key::new()], line(&configs.left, "key = "));
    let peers = line(&configs.right, "peers = ").split('"').nth(1).unwrap().to_owned();
    let admitted = format!("{} second from={}\n", keys[1].public, networks(&BOTH, 0).join(","));
    std::fs::write(peers, admitted).unwrap();
    let relays = [("first", 7001), ("second", 7000)].map(|(name, far_port)| {
        let (key, near_port) = if name == "first" { (&keys[0], 7002) } else { (&keys[1], 7003) };
        let far = SocketAddr::new(row.left("right", Family::V4), far_port);
        let text = format!(
            "private_key = {:?}\n[timeouts]\nconnect = \"1min\"\n[[relay]]\nname = \"other\"\naddress = \"{far}\"\n\
             {far_key}\nencrypt = true\n[[listener]]\nname = \"section\"\nkind = \"section\"\n\
             bind = \"127.0.0.1:{near_port}\"\nallow_open = true\nallow_private = true\n",
            key.file
        );
        let table = format!(
            "[[relay]]\nname = \"{name}\"\naddress = \"127.0.0.1:{near_port}\"\nkey = \"{}\"\nencrypt = true\n\
             [[path]]\nname = \"by-{name}\"\nrelays = [\"{name}\", \"other\"]\n[[path]]",
            key.public
        );
        configs.left = configs.left.replacen("[[path]]", &table, 1);
        RunningRelay::start(&row["left"], &text)
    });
    configs.left = configs.left.replace("path = [\"long\"]", "path = [\"by-first\", \"by-second\"]");
    configs.left += "[timeouts]\nconnect = \"1min\"\n";
    relays
}

/// Regression: packets waited for the lane of each attempt at the first path, and took the second path only between
/// attempts.
#[test]
fn second_path_carries_packets_during_attempts_at_the_first() {
    if is_any_missing(&["ping"]) {
        return;
    }
    let Some(row) = hosts(&BOTH) else { return };
    let mut configs = BoxConfigs::new(&row, "");
    let [_first, second] = start_middle_relays(&row, &mut configs);
    let mut sites = Sites::start(row, configs);
    // Packets to a host that has answered take the lane of its answers, so another address causes the attempts.
    let absent = "10.0.2.99".parse().unwrap();
    pings(&sites.row["client"], absent, 1, &[]);
    wait_warning(&mut sites.left, "no lane by by-first");
    sites.row["right"].nft(DROP_PORT);
    // From now on an attempt lasts for a minute, longer than the test waits for an answer.
    eventually("an attempt at the first path", || {
        pings(&sites.row["client"], absent, 1, &[]);
        let lasts = |lane: &Value| lane["by"] == "by-first" && lane["seconds"].as_f64() > Some(1.0);
        lanes(&sites.left).iter().any(lasts).then_some(())
    });
    let server = sites.address("server", Family::V4);
    check_answered(&[&sites.left, &second, &sites.right], &sites.row["client"], server, 1, &[]);
}

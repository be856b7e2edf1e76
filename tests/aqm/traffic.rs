//! Queue management of forwarded packets, of the router's own packets, and of ECN-capable packets.

use serde_json::Value;

use crate::flows::{self, Flow, run};
use crate::harness::skipped;
use crate::network::Network;

/// Attaches the queue management to the egress of the router toward the server, with a rate of 50 Mbit/s.
pub fn attach(network: &Network, mode: &str, more: &[&str]) {
    let start = ["aqm", "attach", "--dev", "wan0", "--rate", "50Mbit/s", "--mode", mode];
    network.middle.run_ekiden(&[&start[..], more].concat());
}

pub fn show(network: &Network, watch: &str) -> Value {
    let json = network.middle.run_ekiden(&["aqm", "show", "--dev", "wan0", "--json", "--watch", watch]);
    serde_json::from_str::<Value>(&json).unwrap()[0].take()
}

fn counter(shown: &Value, name: &str) -> u64 {
    shown["counters"][name].as_u64().unwrap()
}

#[test]
fn own_packets_pass_and_forwarded_packets_are_judged_by_connection() {
    let Some(network) = Network::new() else { return };
    attach(&network, "red", &[]);
    for (host, address) in [(&network.client, "10.3.0.2"), (&network.client, "fd03::2"), (&network.middle, "10.3.0.2")]
    {
        assert_eq!(host.shell(&format!("ping -c 3 -i 0.1 {address}")).code, Some(0));
    }
    // These pings run in the background while `show` watches the interface for 1 s.
    let pings = "for a in fd03::2 10.3.0.2; do ping -c 30 -i 0.1 $a >/dev/null 2>&1 & done";
    assert_eq!(network.client.shell(pings).code, Some(0));
    let shown = show(&network, "1s");
    assert!(counter(&shown, "own") >= 3 && counter(&shown, "passed") >= 6, "{shown}");
    let heaviest = shown["heaviest"].as_array().unwrap();
    let found = |source: &str, protocol: u64| {
        heaviest.iter().any(|share| share["source"].as_str() == Some(source) && share["protocol"] == protocol)
    };
    assert!(found("10.1.0.2:0", 1) && found("[fd01::2]:0", 58), "{shown}");
    assert!(!found("10.2.0.1:0", 1), "{shown}");
}

#[test]
fn ecn_capable_packets_are_marked_and_others_dropped() {
    let Some(network) = flows::network() else { return };
    let small = ["--limit", "1MiB", "--min", "4KiB", "--max", "200KiB", "--wq", "0.05"];
    let plain = [&small[..], &["--no-ecn"]].concat();
    for (ecn, more) in [("1", &small[..]), ("0", &small[..]), ("1", &plain)] {
        network.client.set("ipv4/tcp_ecn", ecn);
        network.server.set("ipv4/tcp_ecn", "1");
        attach(&network, "red", more);
        run(&network, &[Flow { congestion: "cubic", seconds: 3 }]);
        let shown = show(&network, "10ms");
        let (marked, early) = (counter(&shown, "marked"), counter(&shown, "early"));
        let capable = ecn == "1" && more.len() == small.len();
        assert!(if capable { marked > 10 && early < marked / 4 } else { marked == 0 && early > 3 }, "{ecn} {shown}");
        network.middle.run_ekiden(&["aqm", "detach", "--dev", "wan0"]);
    }
}

/// A GSO packet of the veth interface is counted as the packets into which a network card would segment it.
#[test]
fn superpackets_are_counted_as_their_segments() {
    let Some(network) = flows::network() else { return };
    attach(&network, "auto", &[]);
    run(&network, &[Flow { congestion: "cubic", seconds: 2 }]);
    let shown = show(&network, "10ms");
    let [passed, packets, bytes] = ["passed", "packets", "bytes"].map(|name| counter(&shown, name));
    assert!(packets > 2 * passed, "no superpackets here: {shown}");
    let mean = bytes / packets;
    assert!((900..=1514).contains(&mean), "{mean} bytes a packet: {shown}");
}

/// Major and minor version of the running kernel.
fn kernel_version() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut parts = release.split(['.', '-']).map(|part| part.parse().unwrap());
    (parts.next().unwrap(), parts.next().unwrap())
}

#[test]
fn backlog_option_judges_by_the_real_queue() {
    let Some(network) = flows::network() else { return };
    network.middle.run("tc", "qdisc add dev wan0 root tbf rate 20mbit burst 20kb limit 1mb");
    let backlog = ["--backlog", "--limit", "1MiB", "--min", "20KiB", "--max", "200KiB", "--wq", "0.05"];
    if kernel_version() < (6, 2) {
        let start = ["aqm", "attach", "--dev", "wan0", "--rate", "50Mbit/s", "--mode", "red"];
        let output = network.middle.ekiden(&[&start[..], &backlog].concat());
        assert!(output.code == Some(1) && output.err.contains("--backlog needs Linux 6.2"), "{}", output.err);
        skipped("--backlog needs Linux 6.2, and was refused with that reason");
        return;
    }
    attach(&network, "red", &backlog);
    run(&network, &[Flow { congestion: "cubic", seconds: 3 }]);
    let shown = show(&network, "10ms");
    // tbf limits the traffic to 20 Mbit/s, below the configured rate of 50 Mbit/s: a computed queue would stay empty.
    assert!(counter(&shown, "early") > 3, "{shown}");
    network.middle.run_ekiden(&["aqm", "detach", "--dev", "wan0"]);
    assert!(network.middle.run("tc", "qdisc show dev wan0").contains("tbf"));
}

//! The arithmetic limit of a bulk transfer: the maximum throughput of its slowest section.
//!
//! A section is one TCP connection: between an end host and a relay, between relays, or, without relays, end to end.
//! The rate of a section is at most the least of three bounds:
//!
//! | bound | rate | from |
//! |---|---|---|
//! | line | the least rate on the route, less headers | rates of the links, and the bytes of a packet that they count |
//! | window | `W / d` | `W` is the smaller window of the two hosts; `d` is the round-trip time of the links |
//! | loss | `w(p, d) * MSS / d` | the response function of the sender's congestion control at loss `p` of the data |
//!
//! Response functions, in packets in flight: Reno `1.22 / sqrt(p)` (Mathis, Semke, Mahdavi, Ott 1997; RFC 5681 with
//! SACK and every packet counted), CUBIC `1.054 * (d / p)^(3/4)` with `d` in seconds (RFC 9438 section 5, `CUBIC_C` =
//! 0.4 and `beta` = 0.7), but not less than Reno, because CUBIC is then in its Reno-friendly region. Where the bounds
//! of window and loss are about equal, the actual rate is below both. Without delay, only the line bounds the rate.

use crate::experiment::spec::read::RunSpec;
use crate::experiment::spec::treatment::RelayProgram;
use crate::program::server::Protocol;
use crate::topology::plan::{self, RouteHop};
use crate::topology::{Family, Host, Lab, host};
use ekiden_emulator::conditions::{Conditions, Loss};

/// The limit of a path, and the bound that gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ThroughputLimit {
    /// Application data rate, in bytes per second.
    pub bytes_per_second: f64,
    /// The kind of the bound and its section, such as `window, client → relay1`.
    pub bound: String,
}

/// TCP header without options, in bytes (RFC 9293).
const TCP_HEADER_BYTES: u32 = 20;
/// Timestamps, with padding, in bytes (RFC 7323 appendix A).
const TIMESTAMP_BYTES: u32 = 12;

/// Returns the limit of the slowest section. `None` if a sender on a section with loss is not configured for Reno or
/// CUBIC, or if losses are neither independent nor a fixed pattern.
#[must_use]
pub fn throughput_limit(spec: &RunSpec) -> Option<ThroughputLimit> {
    let relays = if spec.treatment.program == RelayProgram::Direct { &[] } else { spec.treatment.chain.as_slice() };
    let (client, server) = (&spec.workload.client, &spec.workload.server);
    let mut hosts: Vec<&String> = std::iter::once(client).chain(relays).chain([server]).collect();
    // The server sends files; the client sends streams, blocks and flows.
    if matches!(spec.workload.protocol, Protocol::Http | Protocol::Ftp) {
        hosts.reverse();
    }
    let sections =
        hosts.windows(2).map(|pair| section_limit(&spec.lab, pair[0], pair[1])).collect::<Option<Vec<_>>>()?;
    sections.into_iter().min_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
}

fn section_limit(lab: &Lab, from: &str, to: &str) -> Option<ThroughputLimit> {
    let hosts = [lab.hosts.get(from)?, lab.hosts.get(to)?];
    let route = plan::route_hops(lab, from, to)?;
    let round_trip = plan::round_trip(lab, from, to)?;
    let payload = payload_per_packet(&route, hosts, lab.family);
    let loss = path_loss(&route)?;
    let window = hosts.iter().filter_map(|host| host.window).map(host::usable_bytes).min();
    #[allow(clippy::cast_precision_loss, reason = "a window below 2^53")]
    let bounds = [
        ("line", line_rate(&route, payload)),
        ("window", window.map_or(f64::INFINITY, |window| window as f64 / round_trip)),
        (
            "loss",
            if loss > 0.0 {
                response_window(hosts[0], loss, round_trip)? * payload / round_trip
            } else {
                f64::INFINITY
            },
        ),
    ];
    let (name, least) = bounds.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    Some(ThroughputLimit { bytes_per_second: least, bound: format!("{name}, {from} → {to}") })
}

/// Returns the maximum application data of a packet, in bytes.
pub(in crate::experiment) fn payload_per_packet(route: &[RouteHop<'_>], hosts: [&Host; 2], family: Family) -> f64 {
    let mtu = route.iter().map(|hop| hop.link.mtu).min().unwrap_or_default();
    let options = if hosts.into_iter().all(host::has_timestamps) { TIMESTAMP_BYTES } else { 0 };
    f64::from(mtu.saturating_sub(family.header_len() + TCP_HEADER_BYTES + options))
}

/// Returns the application data rate of the slowest line of a route, in bytes per second.
pub(in crate::experiment) fn line_rate(route: &[RouteHop<'_>], payload: f64) -> f64 {
    let mtu = route.iter().map(|hop| hop.link.mtu).min().unwrap_or_default();
    let share = |conditions: &Conditions| payload / f64::from(mtu + conditions.count.overhead());
    #[allow(clippy::cast_precision_loss, reason = "a rate below 2^53")]
    let rates = |hop: &RouteHop<'_>| {
        let rates = [hop.conditions.line_rate(), hop.conditions.access_rate].into_iter().flatten();
        let least = rates.map(|rate| rate.bits_per_second() as f64 / 8.0).fold(f64::INFINITY, f64::min);
        least * share(hop.conditions)
    };
    route.iter().map(rates).fold(f64::INFINITY, f64::min)
}

/// Returns the application data rate of the slowest line between two hosts, in bytes per second. `None` without a
/// route.
pub(in crate::experiment) fn section_line_rate(lab: &Lab, from: &str, to: &str) -> Option<f64> {
    let route = plan::route_hops(lab, from, to)?;
    Some(line_rate(&route, payload_per_packet(&route, [lab.hosts.get(from)?, lab.hosts.get(to)?], lab.family)))
}

/// Returns the probability that a packet is lost on the route. `None` if a link has correlated losses
/// (Gilbert-Elliott).
pub(in crate::experiment) fn path_loss(route: &[RouteHop<'_>]) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "numbers of packets")]
    let arrives = |loss: &Loss| match loss {
        Loss::Bernoulli { p, .. } => Some(1.0 - p),
        Loss::Pattern { every, lost, .. } => Some(1.0 - lost.len() as f64 / *every as f64),
        Loss::GilbertElliott { .. } => None,
    };
    let all = route.iter().filter_map(|hop| hop.conditions.loss.as_ref()).map(arrives);
    all.product::<Option<f64>>().map(|arrives| 1.0 - arrives)
}

/// Returns the mean number of packets in flight for a loss probability and a round-trip time in seconds. `None` if the
/// sender is configured for neither Reno nor CUBIC.
fn response_window(sender: &Host, loss: f64, round_trip: f64) -> Option<f64> {
    let reno = 1.22 / loss.sqrt();
    match sender.congestion.as_deref() {
        Some("reno") => Some(reno),
        Some("cubic") => Some(reno.max(1.054 * (round_trip / loss).powf(0.75))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::spec::read::Experiment;

    /// Two relays at the ends of a line with 1 Gbit/s and a round trip of 28.6 ms; the section at the client has delay
    /// and loss.
    const PAIR: &str = r#"
lab = 1
name = "pair"
title = "A pair"
[host.client]
congestion = "CONGESTION"
window = "WINDOW"
[host.relay1]
forward = true
[host.relay2]
forward = true
[host.server]
congestion = "CONGESTION"
window = "WINDOW"
[link.lan]
ends = ["client", "relay1"]
delay = "DELAY"
loss = { model = "bernoulli", p = LOSS }
[link.line]
ends = ["relay1", "relay2"]
delay = "14.3ms"
rate = "1Gbit/s"
count = "wire"
[link.office]
ends = ["relay2", "server"]
[workload]
protocol = "stream"
time = { quick = "1s", full = "1s" }
chain = ["relay1", "relay2"]
[treatment.direct]
program = "direct"
[treatment.pair]
program = "haproxy"
transparent = true
[experiment]
treatments = ["direct", "pair"]
blocks = { quick = 1, full = 1 }
"#;

    /// The limit in Mbit/s, and its bound, for each treatment.
    fn limits([congestion, window]: [&str; 2], delay: &str, loss: &str) -> [Option<(f64, String)>; 2] {
        let values = [("CONGESTION", congestion), ("WINDOW", window), ("DELAY", delay), ("LOSS", loss)];
        let text = values.iter().fold(PAIR.to_owned(), |text, (key, value)| text.replace(key, value));
        let experiment = Experiment::parse("pair", &text).unwrap();
        let limit = |place: usize| throughput_limit(&experiment.cells[place].spec);
        [0, 1].map(|place| limit(place).map(|limit| (limit.bytes_per_second * 8.0 / 1e6, limit.bound)))
    }

    const LINUX: [&str; 2] = ["cubic", "256KiB"];
    const XP: [&str; 2] = ["reno", "64KiB"];

    #[track_caller]
    fn assert_limit(found: Option<&(f64, String)>, wanted: f64, bound: &str) {
        let (value, by) = found.unwrap();
        assert!((value - wanted).abs() < wanted * 0.002, "{value}, not {wanted}");
        assert_eq!(by, bound);
    }

    #[test]
    fn limit_is_window_per_rtt_or_line_rate_without_headers() {
        let [direct, pair] = limits(LINUX, "0ms", "0.0");
        // 262,144 B in 28.6 ms; 1448 of 1538 bytes of 1 Gbit/s.
        assert_limit(direct.as_ref(), 73.33, "window, client → server");
        assert_limit(pair.as_ref(), 941.5, "line, relay1 → relay2");
        let [direct, pair] = limits(XP, "10ms", "0.0");
        // 65,535 B in 48.6 ms, and in 20 ms.
        assert_limit(direct.as_ref(), 10.79, "window, client → server");
        assert_limit(pair.as_ref(), 26.21, "window, client → relay1");
    }

    /// The limit of blocks and flows was that of the opposite direction.
    #[test]
    fn limit_is_in_the_direction_of_the_data() {
        let stream = "protocol = \"stream\"\ntime = { quick = \"1s\", full = \"1s\" }";
        let bound = |workload: &str| {
            let values = [("CONGESTION", "reno"), ("WINDOW", "64KiB"), ("DELAY", "0ms"), ("LOSS", "0.0")];
            let text = PAIR.replace(stream, workload);
            let text = values.iter().fold(text, |text, (key, value)| text.replace(key, value));
            throughput_limit(&Experiment::parse("pair", &text).unwrap().cells[0].spec).unwrap().bound
        };
        assert_eq!(bound("protocol = \"http\"\nfile = \"1MB\""), "window, server → client");
        let flows = format!("{stream}\nconnections = 2").replace("\"stream\"", "\"flows\"");
        let blocks = "protocol = \"blocks\"\namount = \"1MB\"\nblock = \"1kB\"";
        assert_eq!([stream, &flows, blocks].map(bound), ["window, client → server"; 3]);
    }

    #[test]
    fn loss_lowers_the_limit_below_the_window() {
        let [direct, pair] = limits(XP, "5ms", "0.001");
        // 1.22 / sqrt(0.001) = 38.58 packets of 1460 bytes, in 38.6 ms and in 10 ms.
        assert_limit(direct.as_ref(), 11.67, "loss, client → server");
        assert_limit(pair.as_ref(), 45.06, "loss, client → relay1");
    }

    #[test]
    fn cubic_limit_is_the_reno_limit_on_short_paths_only() {
        // 1.054 * (0.0486 / 0.001)^0.75 = 19.4 packets are less than Reno's 38.58, of 1448 bytes.
        let [direct, pair] = limits(LINUX, "10ms", "0.001");
        assert_limit(direct.as_ref(), 9.196, "loss, client → server");
        assert_limit(pair.as_ref(), 22.35, "loss, client → relay1");
        // With an unbounded window, 1.054 * (0.0286 / 0.00001)^0.75 = 412.2 packets are more than Reno's 385.8.
        let [direct, pair] = limits(["cubic", "64MiB"], "0ms", "0.00001");
        assert_limit(direct.as_ref(), 167.0, "loss, client → server");
        assert_limit(pair.as_ref(), 941.5, "line, relay1 → relay2");
    }

    #[test]
    fn unmodelled_congestion_control_has_no_loss_limit() {
        assert_eq!(limits(["bbr", "256KiB"], "0ms", "0.001")[0], None);
        assert!(limits(["bbr", "256KiB"], "0ms", "0.0")[0].is_some());
    }
}

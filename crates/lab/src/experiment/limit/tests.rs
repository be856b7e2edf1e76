use super::*;
use crate::experiment::read::Experiment;

/// Two relays around a line of 28.6 ms and 1 Gbit/s; the client's section has delay and loss.
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
fn a_window_is_carried_once_in_a_round_trip_and_a_line_has_headers() {
    let [direct, pair] = limits(LINUX, "0ms", "0.0");
    // 262,144 B in 28.6 ms; 1448 of 1538 bytes of 1 Gbit/s.
    assert_limit(direct.as_ref(), 73.33, "window, client → server");
    assert_limit(pair.as_ref(), 941.5, "line, relay1 → relay2");
    let [direct, pair] = limits(XP, "10ms", "0.0");
    // 65,535 B in 48.6 ms, and in 20 ms.
    assert_limit(direct.as_ref(), 10.79, "window, client → server");
    assert_limit(pair.as_ref(), 26.21, "window, client → relay1");
}

#[test]
fn loss_bounds_what_a_window_leaves() {
    let [direct, pair] = limits(XP, "5ms", "0.001");
    // 1.22 / sqrt(0.001) = 38.58 packets of 1460 bytes, in 38.6 ms and in 10 ms.
    assert_limit(direct.as_ref(), 11.67, "loss, client → server");
    assert_limit(pair.as_ref(), 45.06, "loss, client → relay1");
}

#[test]
fn cubic_is_as_reno_on_a_short_way_and_itself_on_a_long_one() {
    // 1.054 * (0.0486 / 0.001)^0.75 = 19.4 packets are less than Reno's 38.58, of 1448 bytes.
    let [direct, pair] = limits(LINUX, "10ms", "0.001");
    assert_limit(direct.as_ref(), 9.196, "loss, client → server");
    assert_limit(pair.as_ref(), 22.35, "loss, client → relay1");
    // Of a window without a bound, 1.054 * (0.0286 / 0.00001)^0.75 = 412.2 packets are more than Reno's 385.8.
    let [direct, pair] = limits(["cubic", "64MiB"], "0ms", "0.00001");
    assert_limit(direct.as_ref(), 167.0, "loss, client → server");
    assert_limit(pair.as_ref(), 941.5, "line, relay1 → relay2");
}

#[test]
fn the_loss_of_a_sender_that_pins_nothing_known_has_no_limit() {
    assert_eq!(limits(["bbr", "256KiB"], "0ms", "0.001")[0], None);
    assert!(limits(["bbr", "256KiB"], "0ms", "0.0")[0].is_some());
}

//! Connections with Compound TCP through a line of 40 Mbit/s with a queue in front of it.

use std::net::TcpStream;
use std::os::fd::AsRawFd as _;

use libbpf_rs::{MapCore as _, MapFlags};

use crate::loaded::{LoadedControl, SHORT, transfer_with_telemetry};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ctcp.bpf.o"));

const BYTES: usize = 16 << 20;

/// `struct section`.
#[derive(Debug)]
struct TelemetryWords {
    window: u32,
    loss_window: u32,
    delay_window: u32,
    base_us: u32,
    rtt_us: u32,
    gamma: u32,
    rounds: u32,
    losses: u32,
    timeouts: u32,
}

/// The telemetry of a connection through this queue, from its first byte to its last. `gamma` and `auto_gamma` are set
/// before the first byte. `None`, with a printed reason, where the kernel accepts no control of this process.
fn run_connection(queue: &str, gamma: u32, auto_gamma: u32) -> Option<Vec<TelemetryWords>> {
    let loaded = LoadedControl::new("ctcp", OBJECT)?;
    let configure = |stream: &TcpStream| {
        let map = loaded.object.maps().find(|map| map.name() == "sections").unwrap();
        let mut request = [gamma, auto_gamma].map(u32::to_ne_bytes).concat();
        request.resize(map.value_size() as usize, 0);
        map.update(&stream.as_raw_fd().to_ne_bytes(), &request, MapFlags::ANY).unwrap();
    };
    let words = transfer_with_telemetry(&loaded, queue, BYTES, configure);
    let telemetry = words.into_iter().map(|words| {
        let [_, _, window, loss_window, delay_window, base_us, rtt_us, _, gamma, rounds, losses, timeouts] = words;
        TelemetryWords { window, loss_window, delay_window, base_us, rtt_us, gamma, rounds, losses, timeouts }
    });
    Some(telemetry.collect())
}

/// The last telemetry of a connection.
fn last_telemetry(mut samples: Vec<TelemetryWords>) -> TelemetryWords {
    samples.pop().unwrap()
}

#[test]
fn ctcp_transfers_bytes_and_reports_telemetry() {
    let Some(samples) = run_connection(SHORT, 0, 0) else { return };
    let last = last_telemetry(samples);
    assert_eq!(last.window, last.loss_window + last.delay_window, "{last:?}");
    assert_eq!(last.gamma, 30, "{last:?}");
    assert!((1..50_000).contains(&last.base_us) && last.base_us <= last.rtt_us && last.rtt_us < 200_000, "{last:?}");
    assert!(last.rounds > 20 && last.losses > 0 && last.losses < last.rounds && last.timeouts < 3, "{last:?}");
}

/// Whether more than half of the samples since the first loss fulfil the condition. A single sample is not enough: a
/// timeout may just have emptied both windows.
fn holds_mostly(samples: &[TelemetryWords], condition: impl Fn(&TelemetryWords) -> bool) -> bool {
    let steady = || samples.iter().filter(|sample| sample.losses > 0);
    let matching = steady().filter(|sample| condition(sample)).count();
    eprintln!("{matching} of {}", steady().count());
    matching * 2 > steady().count()
}

#[test]
fn requested_gamma_stays_fixed() {
    let Some(samples) = run_connection(SHORT, 5, 0) else { return };
    assert!(samples.iter().all(|sample| sample.gamma == 5), "{samples:?}");
    assert!(holds_mostly(&samples, |sample| sample.delay_window == 0), "the loss window fills the queue: {samples:?}");
}

/// With a gamma that no queue reaches, the delay window grows until packets are lost.
#[test]
fn unreachable_gamma_keeps_the_delay_window_open() {
    // The queue has 270 packets: half of its capacity is far more than the 38 below which there is no delay window.
    let Some(samples) = run_connection("rate 40mbit burst 5kb limit 400kb", 100_000, 0) else { return };
    assert!(samples.iter().all(|sample| sample.gamma == 100_000), "{samples:?}");
    assert!(holds_mostly(&samples, |sample| sample.delay_window > 0), "{samples:?}");
    assert!(samples.iter().all(|sample| sample.window == sample.loss_window + sample.delay_window), "{samples:?}");
}

#[test]
fn auto_gamma_stays_within_its_bounds() {
    let Some(samples) = run_connection(SHORT, 0, 1) else { return };
    let last = last_telemetry(samples);
    assert!(last.losses > 0 && (5..=30).contains(&last.gamma), "{last:?}");
}

#[test]
fn verified_instructions_stay_below_20000() {
    let Some(loaded) = LoadedControl::new("ctcp", OBJECT) else { return };
    loaded.assert_verified_below(20_000);
}

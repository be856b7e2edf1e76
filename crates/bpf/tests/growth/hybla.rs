//! Caini, Firrincieli, "TCP Hybla: a TCP Enhancement for Heterogeneous Networks", 2004.

use crate::steps::{GrowthPrograms, INFINITE_SSTHRESH, Window};

/// 1 in the fixed-point format of rho in the kernel.
const ONE: u64 = 1024;

/// rho of an RTT in milliseconds, in 1/1024.
fn rho(steps: &GrowthPrograms, ms: u64) -> u64 {
    let [_, _, rho, _] = steps.run("step_hybla", [ms * 1000, 0, 0, 0]);
    rho
}

/// A window in slow start up to `threshold`, on a path with an RTT of `ms` milliseconds.
fn window<'a>(steps: &'a GrowthPrograms, packets: u64, threshold: u64, ms: u64) -> Window<'a> {
    let mut window = Window::new(steps, "hybla", packets);
    window.extra = [threshold, rho(steps, ms)];
    window
}

#[test]
fn rho_is_the_rtt_divided_by_25_ms() {
    let steps = GrowthPrograms::load();
    for (ms, expected) in [(0, ONE), (1, ONE), (25, ONE), (50, 2 * ONE), (90, 3686), (250, 10 * ONE), (600, 24 * ONE)] {
        assert_eq!(rho(&steps, ms), expected, "{ms} ms");
    }
    assert_eq!(rho(&steps, 4_000_000), 64 * ONE, "bounded");
}

/// Section 3: in slow start, each acknowledgement adds 2^rho - 1 packets, with 2^rho capped at 2^4.
#[test]
fn slow_start_growth_is_exponential_in_rho() {
    let steps = GrowthPrograms::load();
    for ms in [10, 25, 30, 40, 49, 60, 75, 88, 99, 100, 250] {
        let mut grown = window(&steps, 10, INFINITE_SSTHRESH, ms);
        grown.grow(100);
        let expected = 100.0 * ((ms as f64 / 25.0).clamp(1.0, 4.0).exp2() - 1.0);
        let growth = grown.exact_packets() - 10.0;
        assert!((growth / expected - 1.0).abs() < 0.01, "{ms} ms: {growth} instead of {expected}");
    }
}

/// Section 3: in congestion avoidance, a round trip adds rho^2 packets.
#[test]
fn congestion_avoidance_adds_rho_squared_per_round_trip() {
    let steps = GrowthPrograms::load();
    for ms in [10, 25, 40, 100, 250, 600, 1600] {
        let mut grown = window(&steps, 5000, 5000, ms);
        grown.grow(5000);
        let expected = (ms as f64 / 25.0).max(1.0).powi(2);
        let growth = grown.exact_packets() - 5000.0;
        assert!((growth / expected - 1.0).abs() < 0.005, "{ms} ms: {growth} instead of {expected}");
    }
}

#[test]
fn slow_start_stops_at_ssthresh() {
    let steps = GrowthPrograms::load();
    let mut grown = window(&steps, 10, 40, 250);
    grown.grow(10);
    assert_eq!(grown.packets(), 40);
}

/// First half of the paper's claim: after the same time, windows are proportional to RTTs, so that the rates are equal.
#[test]
fn slow_start_takes_the_same_time_at_all_rtts() {
    let steps = GrowthPrograms::load();
    let after_300_ms = |ms: u64| {
        let mut grown = window(&steps, 10 * ms / 25, INFINITE_SSTHRESH, ms);
        for _ in 0..300 / ms {
            grown.grow(grown.packets().min(0xffff));
        }
        grown.packets() as f64 / ms as f64
    };
    let reference = after_300_ms(25);
    for ms in [50, 75, 100] {
        let rate = after_300_ms(ms);
        assert!((rate / reference - 1.0).abs() < 0.02, "{ms} ms: {rate} instead of {reference} packets per ms");
    }
}

/// Second half of the claim: the same loss rate gives the same throughput at ten times the RTT.
#[test]
fn throughput_is_the_same_at_all_rtts_for_the_same_loss() {
    let steps = GrowthPrograms::load();
    let rate = |ms: u64| window(&steps, 100, 2, ms).average(10_000, 30) / ms as f64;
    let reference = (1.5f64 * 10_000.0).sqrt() / 25.0;
    for ms in [25, 100, 250] {
        let rate = rate(ms);
        assert!((rate / reference - 1.0).abs() < 0.03, "{ms} ms: {rate} instead of {reference} packets per ms");
    }
}

#[test]
fn rtt_increase_indicates_a_queue() {
    let steps = GrowthPrograms::load();
    let table = [(0, 90_000, 0), (100_000, 112_500, 0), (100_000, 112_501, 1), (1000, 5000, 0), (1000, 5001, 1)];
    for (base, rtt, expected) in table {
        let [_, _, _, queue_found] = steps.run("step_hybla", [base, rtt, 0, 0]);
        assert_eq!(queue_found, expected, "{base} us, then {rtt} us");
    }
}

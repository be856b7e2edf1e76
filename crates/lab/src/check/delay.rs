//! Checks the arrival times of probes, and measures the wake-up latency of the machine for comparison.

use std::thread;
use std::time::{Duration, Instant};

use super::expectation::TimedProbe;
use super::row::Finding;
use crate::{emulator, stats};

/// An upper limit of a quantile, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct QuantileLimit {
    name: &'static str,
    quantile: f64,
    micros: f64,
}

const fn quantile_limit(name: &'static str, quantile: f64, micros: f64) -> QuantileLimit {
    QuantileLimit { name, quantile, micros }
}

/// Limits of the fixed delay, unloaded.
pub const FIXED_DELAY_LIMITS: &[QuantileLimit] =
    &[quantile_limit("median", 0.5, 50.0), quantile_limit("p99", 0.99, 250.0), quantile_limit("p99.9", 0.999, 1000.0)];

/// Limits of the delay under load.
pub const LOADED_DELAY_LIMITS: &[QuantileLimit] = &[quantile_limit("p99", 0.99, 500.0)];

/// Limits of the difference between the measured and the expected round-trip time of a ping.
pub const PING_LIMITS: &[QuantileLimit] = &[quantile_limit("median", 0.5, 150.0), quantile_limit("p99", 0.99, 500.0)];

/// Returns the number of samples above which a quantile is not determined by a single packet.
fn min_samples(quantile: f64) -> f64 {
    5.0 / (1.0 - quantile)
}

/// Compares the errors of one-way delays, early or late, with `limits`.
pub fn check_one_way(timed: &[TimedProbe], probe_count: usize, limits: &[QuantileLimit]) -> Finding {
    let errors = timed.iter().map(|timed| timed.error_micros().abs()).collect();
    check_quantiles("one-way error", errors, probe_count, limits)
}

/// Compares the differences between round-trip times and `expected`, both in microseconds, with the limits of pings.
pub fn check_round_trip(trips: &[f64], expected: f64, probe_count: usize) -> Finding {
    check_quantiles(
        "added round trip",
        trips.iter().map(|trip| (trip - expected).abs()).collect(),
        probe_count,
        PING_LIMITS,
    )
}

fn check_quantiles(quantity: &str, mut errors: Vec<f64>, probe_count: usize, limits: &[QuantileLimit]) -> Finding {
    errors.sort_by(f64::total_cmp);
    let limits: Vec<&QuantileLimit> =
        limits.iter().filter(|limit| min_samples(limit.quantile) <= probe_count as f64 + 0.5).collect();
    let figures: Vec<(&QuantileLimit, f64)> =
        limits.iter().map(|limit| (*limit, stats::quantile(&errors, limit.quantile))).collect();
    let bounds: Vec<String> = limits.iter().map(|limit| format!("{} ≤ {} µs", limit.name, limit.micros)).collect();
    let measured: Vec<String> = figures.iter().map(|(limit, figure)| format!("{} {figure:.0}", limit.name)).collect();
    // If sender and emulator share a core, a send call often ends only after the emulator has run, and its probe is
    // discarded. If fewer than a quarter of the probes are left, they are not representative.
    let has_enough = errors.len() * 4 >= probe_count && !figures.is_empty();
    Finding {
        wanted: format!("{quantity}: {}", bounds.join(", ")),
        measured: format!("{} µs; {} of {probe_count} probes tell", measured.join(", "), errors.len()),
        pass: has_enough && figures.iter().all(|(limit, figure)| *figure <= limit.micros),
    }
}

const SLEEP_INTERVAL: Duration = Duration::from_millis(1);

/// Measures how late a sleeping thread wakes, with the timer settings of the emulator. If the machine is virtual, its
/// hypervisor may pause it for milliseconds.
pub fn check_wakeup_latency(duration: Duration) -> Finding {
    let mut delays = thread::scope(|scope| {
        scope.spawn(|| measure_oversleep(duration)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    delays.sort_by(f64::total_cmp);
    let [median, p999, most] = [0.5, 0.999, 1.0].map(|q| stats::quantile(&delays, q));
    Finding {
        wanted: "to compare: how late a thread wakes that only sleeps".to_owned(),
        measured: format!("median {median:.0}, p99.9 {p999:.0}, at most {most:.0} µs in {} s", duration.as_secs()),
        pass: true,
    }
}

/// Returns the delay of each wake-up, in microseconds.
fn measure_oversleep(duration: Duration) -> Vec<f64> {
    let _awake = emulator::hold_cpu_dma_latency();
    // Errors are ignored, as in the emulator: without the privilege the thread wakes later.
    let _ = ekiden_sys::thread::set_min_timer_slack();
    let _ = ekiden_sys::thread::set_realtime();
    let start = Instant::now();
    let deadlines = (1..).map(|tick| start + SLEEP_INTERVAL * tick).take_while(|deadline| *deadline < start + duration);
    deadlines
        .map(|deadline| {
            thread::sleep(deadline.saturating_duration_since(Instant::now()));
            deadline.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(errors: impl Iterator<Item = i64>) -> Vec<TimedProbe> {
        let arrived = |(number, error): (usize, i64)| TimedProbe {
            number,
            expected: 50_000_000,
            arrived: 50_000_000_u64.saturating_add_signed(error * 1000),
        };
        errors.enumerate().map(arrived).collect()
    }

    #[test]
    fn small_errors_pass_and_each_quantile_can_fail() {
        let with_tail =
            |share: i64, error: i64| timed((0..10_000).map(move |i| if i % 1000 < share { error } else { 20 }));
        let good = check_one_way(&with_tail(0, 0), 10_000, FIXED_DELAY_LIMITS);
        assert!(good.pass, "{good:?}");
        assert_eq!(good.wanted, "one-way error: median ≤ 50 µs, p99 ≤ 250 µs, p99.9 ≤ 1000 µs");
        for (share, error) in [(501, 51), (20, 251), (2, 1001)] {
            assert!(
                !check_one_way(&with_tail(share, error), 10_000, FIXED_DELAY_LIMITS).pass,
                "{share} ‰ of {error} µs"
            );
            assert!(
                !check_one_way(&with_tail(share, -error), 10_000, FIXED_DELAY_LIMITS).pass,
                "{share} ‰ of -{error} µs"
            );
        }
    }

    #[test]
    fn p999_is_checked_only_with_enough_probes() {
        let outlier = timed((0..1000).map(|i| if i == 7 { 5000 } else { 20 }));
        let finding = check_one_way(&outlier, 1000, FIXED_DELAY_LIMITS);
        assert!(finding.pass && !finding.wanted.contains("p99.9"), "{finding:?}");
    }

    #[test]
    fn check_needs_a_quarter_of_the_probes() {
        assert!(check_one_way(&timed((0..250).map(|_| 1)), 1000, LOADED_DELAY_LIMITS).pass);
        assert!(!check_one_way(&timed((0..249).map(|_| 1)), 1000, LOADED_DELAY_LIMITS).pass);
        assert!(!check_one_way(&[], 0, LOADED_DELAY_LIMITS).pass);
    }

    #[test]
    fn round_trip_may_exceed_the_delay_by_150_us() {
        assert!(check_round_trip(&[50_150.0; 2000], 50_000.0, 2000).pass);
        assert!(!check_round_trip(&[50_151.0; 2000], 50_000.0, 2000).pass);
    }

    #[test]
    fn oversleep_has_a_sample_for_every_tick() {
        let start = Instant::now();
        let late = measure_oversleep(Duration::from_millis(50));
        let end = start.elapsed().as_secs_f64() * 1e6;
        assert_eq!(late.len(), 49);
        // The ticks are 1 ms apart. No sample is taken before its tick, or after the end.
        for (micros, tick) in late.iter().zip(1..) {
            let most = end - f64::from(tick) * 1e3;
            assert!((0.0..=most + 1e-3).contains(micros), "tick {tick}: {micros} µs of at most {most}");
        }
    }
}

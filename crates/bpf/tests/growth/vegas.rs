//! Brakmo, Peterson, "TCP Vegas: End to End Congestion Avoidance on a Global Internet", 1995.

use crate::steps::{GrowthPrograms, INFINITE_SSTHRESH};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Vegas {
    window: u64,
    threshold: u64,
    holds: u64,
}

impl Vegas {
    fn round(self, steps: &GrowthPrograms, base_us: u64, rtt_us: u64) -> Self {
        let numbers = [self.window, self.threshold, self.holds, base_us, rtt_us];
        let [window, threshold, holds, ..] = steps.run("step_vegas", numbers);
        Self { window, threshold, holds }
    }

    fn is_in_slow_start(self) -> bool {
        self.window < self.threshold
    }
}

/// Section IV: diff = (window / base - window / RTT) base, and the change of the window in packets for alpha = 2 and
/// beta = 4.
fn reference(window: u64, base_us: u64, rtt_us: u64) -> (f64, i64) {
    let (window, base, rtt) = (window as f64, base_us as f64, rtt_us as f64);
    let diff = (window / base - window / rtt) * base;
    (diff, if diff < 2.0 { 1 } else { -i64::from(diff > 4.0) })
}

#[test]
fn window_steps_follow_the_paper() {
    let steps = GrowthPrograms::load();
    let mut moved = [0; 3];
    for window in [3, 10, 38, 100, 999, 20_000] {
        for base in [100, 5000, 77_777, 300_000] {
            for percent in [100, 101, 102, 103, 104, 106, 110, 120, 150, 200, 1000] {
                let rtt = base * percent / 100;
                let (diff, step) = reference(window, base, rtt);
                if (diff - 2.0).abs() < 0.002 || (diff - 4.0).abs() < 0.002 {
                    continue;
                }
                let vegas = Vegas { window, threshold: 2, holds: 0 }.round(&steps, base, rtt);
                let expected = window.saturating_add_signed(step).max(2);
                assert_eq!(vegas, Vegas { window: expected, threshold: 2, holds: 0 }, "{base} {rtt}: {diff}");
                moved[(step + 1) as usize] += 1;
            }
        }
    }
    assert!(moved.iter().all(|times| *times > 20), "the table has all three cases: {moved:?}");
}

/// The RTT on a line of `rate` packets per second without other users: packets beyond its capacity wait, and increase
/// the RTT.
fn rtt_us(window: u64, rate: u64, base_us: u64) -> u64 {
    base_us.max(window * 1_000_000 / rate)
}

/// From slow start on, the number of packets in the queue converges to the range from alpha to beta on every line. The
/// tolerance is half a packet.
#[test]
fn queue_settles_between_alpha_and_beta_packets() {
    let steps = GrowthPrograms::load();
    for (rate, base_us) in [(833, 20_000), (8333, 2000), (8333, 100_000), (83_333, 250_000)] {
        let mut vegas = Vegas { window: 10, threshold: INFINITE_SSTHRESH, holds: 0 };
        for _ in 0..400 {
            if vegas.is_in_slow_start() && vegas.holds == 0 {
                vegas.window *= 2;
            }
            vegas = vegas.round(&steps, base_us, rtt_us(vegas.window, rate, base_us));
        }
        let waiting = vegas.window as f64 - rate as f64 * base_us as f64 / 1e6;
        assert!((1.5..=4.5).contains(&waiting), "{rate} packets/s, {base_us} us: {waiting} of {vegas:?}");
    }
}

/// Two connections share one line, and each keeps its own packets in the queue, so that neither starves.
#[test]
fn two_connections_share_a_line_without_starvation() {
    let steps = GrowthPrograms::load();
    let (rate, base_us) = (8333, 40_000);
    let mut pair = [300, 20].map(|window| Vegas { window, threshold: 2, holds: 0 });
    for _ in 0..1000 {
        let rtt = rtt_us(pair[0].window + pair[1].window, rate, base_us);
        pair = pair.map(|vegas| vegas.round(&steps, base_us, rtt));
    }
    let together = (pair[0].window + pair[1].window) as f64;
    let waiting = together - rate as f64 * base_us as f64 / 1e6;
    assert!((3.5..=8.5).contains(&waiting), "{waiting} of {pair:?}");
    assert!(pair.iter().all(|vegas| vegas.window > 100), "{pair:?}");
}

/// Section V: slow start doubles the window in every other round trip, and ends when more than gamma packets wait.
#[test]
fn slow_start_ends_with_the_first_queue() {
    let steps = GrowthPrograms::load();
    let start = Vegas { window: 64, threshold: INFINITE_SSTHRESH, holds: 0 };
    let held = start.round(&steps, 10_000, 10_000);
    assert_eq!(held, Vegas { holds: 1, ..start });
    assert_eq!(held.round(&steps, 10_000, 10_100), start, "0.6 packets do not count as a queue");
    let ended = start.round(&steps, 10_000, 12_500);
    assert_eq!((ended.window, ended.threshold), (52, 52), "12 of 64 wait");
    assert!(!ended.is_in_slow_start());
}

#[test]
fn window_never_falls_below_two_packets() {
    let steps = GrowthPrograms::load();
    let vegas = Vegas { window: 2, threshold: 2, holds: 0 };
    assert_eq!(vegas.round(&steps, 10, 1_000_000).window, 3, "two packets cannot be more than beta");
    let start = Vegas { window: 3, threshold: INFINITE_SSTHRESH, holds: 0 };
    assert_eq!(start.round(&steps, 10, 1_000_000).window, 2);
}

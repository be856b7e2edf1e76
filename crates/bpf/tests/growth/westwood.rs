//! Grieco, Mascolo, "Performance Evaluation and Comparison of Westwood+, New Reno, and Vegas TCP Congestion Control",
//! 2004.

use crate::steps::GrowthPrograms;

/// The bandwidth filter of the kernel. `sample` returns the bandwidth in packets per second, and the window after a
/// loss.
struct Filter<'a> {
    steps: &'a GrowthPrograms,
    bandwidth: u64,
}

impl Filter<'_> {
    fn sample(&mut self, delivered: u64, us: u64, base_us: u64) -> (f64, u64) {
        let numbers = [self.bandwidth, delivered, us, base_us, 0];
        let [bandwidth, _, _, _, window] = self.steps.run("step_westwood", numbers);
        self.bandwidth = bandwidth;
        (bandwidth as f64 / 1024.0, window)
    }
}

/// Section 2: b <- 7/8 b + 1/8 d/t, compared with floating point for a rate that varies as on a shared line.
#[test]
fn bandwidth_filter_follows_the_paper() {
    let steps = GrowthPrograms::load();
    let mut filter = Filter { steps: &steps, bandwidth: 0 };
    let mut reference = 0.0;
    let mut wave = 7u64;
    for place in 0..400 {
        wave = (wave * 48_271) % 0x7fff_ffff;
        let (delivered, us) = (1 + wave % 3000, 50_000 + wave % 250_000);
        let sample = delivered as f64 / us as f64 * 1e6;
        reference = if place == 0 { sample } else { reference * 7.0 / 8.0 + sample / 8.0 };
        let (estimate, _) = filter.sample(delivered, us, 1000);
        assert!((estimate - reference).abs() < 0.05, "sample {place}: {estimate} instead of {reference}");
    }
}

#[test]
fn bandwidth_filter_converges_to_a_new_rate() {
    let steps = GrowthPrograms::load();
    let mut filter = Filter { steps: &steps, bandwidth: 0 };
    assert_eq!(filter.sample(100, 100_000, 100_000), (1000.0, 100));
    for round in 1..=20 {
        let expected = 2000.0 - 1000.0 * (7f64 / 8.0).powi(round);
        let (estimate, _) = filter.sample(200, 100_000, 100_000);
        assert!((estimate - expected).abs() < 0.1, "{estimate} instead of {expected}");
    }
}

/// Section 2: after a loss, ssthresh = bandwidth x shortest RTT, independent of the window.
#[test]
fn window_after_a_loss_is_the_bandwidth_delay_product() {
    let steps = GrowthPrograms::load();
    // A line of 10 Mbit/s with packets of 1500 bytes, 100 Mbit/s, 1 Gbit/s, 100 Gbit/s.
    for rate in [833u64, 8333, 83_333, 8_333_333] {
        for base_ms in [1, 20, 100, 600] {
            let mut filter = Filter { steps: &steps, bandwidth: 0 };
            let (_, window) = filter.sample(rate, 1_000_000, base_ms * 1000);
            let expected = (rate * base_ms / 1000).max(2);
            assert_eq!(window, expected, "{rate} packets/s, {base_ms} ms");
        }
    }
}

/// Implausibly large bandwidths and RTTs are capped, and no product overflows.
#[test]
fn extreme_samples_are_capped_without_overflow() {
    let steps = GrowthPrograms::load();
    let most = u64::from(u32::MAX);
    for (delivered, us) in [(0, 0), (1, 0), (1 << 24, 1), (300, 1), (1_000_003, 3), (most / 8, 1)] {
        for base_us in [0, 1, 1_000_000, 3_000_000, 1 << 31, most] {
            let mut filter = Filter { steps: &steps, bandwidth: 0 };
            let (_, window) = filter.sample(delivered, us, base_us);
            // The caps are 2^28 packets per second and 2^21 us. The bandwidth is in 1/1024 packets per second.
            let bandwidth = (u128::from(delivered) * 1_024_000_000 / u128::from(us.max(1))).min(1 << 38);
            let expected = bandwidth * u128::from(base_us.min(1 << 21)) / 1_024_000_000;
            assert_eq!(u128::from(window), expected.max(2), "{delivered} {us} {base_us}");
        }
    }
}

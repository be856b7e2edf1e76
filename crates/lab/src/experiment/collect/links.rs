//! Rates of the links during the transfers.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::topology::RunningLab;
use ekiden_emulator::ledger::DirectionReport;

/// The prefix of keys for the rate of a link, in Mbit/s.
pub const RATE_PREFIX: &str = "link_mbit_s.";

/// Meter of the rates of links: holds their counters at the start of the transfers.
pub struct LinkRateMeter {
    started: Instant,
    before: Vec<DirectionReport>,
}

impl LinkRateMeter {
    /// Reads the counters at the start of the measured time.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn start(running: &RunningLab) -> anyhow::Result<Self> {
        Ok(Self { before: running.reports()?, started: Instant::now() })
    }

    /// Returns the rate of each link since the start, by the key of the metric.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn finish(self, running: &RunningLab) -> anyhow::Result<BTreeMap<String, f64>> {
        let seconds = self.started.elapsed().as_secs_f64();
        Ok(link_rates(&self.before, &running.reports()?, seconds))
    }
}

/// Returns the rate of each link in the direction with the higher rate.
#[allow(clippy::cast_precision_loss, reason = "a number of bytes below 2^53")]
fn link_rates(before: &[DirectionReport], after: &[DirectionReport], seconds: f64) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    for (before, after) in before.iter().zip(after).filter(|_| seconds > 0.0) {
        let rate = after.bytes_out.saturating_sub(before.bytes_out) as f64 * 8.0 / seconds / 1e6;
        let most = rates.entry(format!("{RATE_PREFIX}{}", after.link)).or_insert(rate);
        *most = rate.max(*most);
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rate_is_that_of_the_busier_direction() {
        let reports = |sent: [u64; 3]| {
            let report = |(link, bytes_out): (&str, u64)| DirectionReport {
                link: link.into(),
                bytes_out,
                ..DirectionReport::default()
            };
            ["wan", "wan", "lan"].into_iter().zip(sent).map(report).collect::<Vec<_>>()
        };
        let rates = link_rates(&reports([1000, 0, 500]), &reports([2000, 250_000, 500]), 2.0);
        assert_eq!(rates, BTreeMap::from([("link_mbit_s.wan".into(), 1.0), ("link_mbit_s.lan".into(), 0.0)]));
        assert!(link_rates(&reports([0; 3]), &reports([1; 3]), 0.0).is_empty());
    }
}

//! Trust in the reports of a relay: the ratio of the rates of sessions to those predicted from the reports.

use super::map::MAX_NODES;

/// Lower bound of the trust factor: above zero, so that a relay can regain trust.
const MIN_TRUST: f64 = 1.0 / 16.0;

/// Weight of one session in the moving average.
const GAIN: f64 = 0.2;

/// For each relay, a factor on its reported rates, and a divisor of its reported times.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trust {
    /// Natural logarithms of the factors, never positive.
    logs: Vec<f64>,
}

impl Trust {
    /// The trust in `node`: from 1/16 to 1, initially 1 (full trust).
    #[must_use]
    pub fn factor(&self, node: u32) -> f64 {
        self.log_factor(node).exp()
    }

    pub(super) fn log_factor(&self, node: u32) -> f64 {
        self.logs.get(node as usize).copied().unwrap_or(0.0)
    }

    /// Records that a path was slower than its reports predicted, by the factor whose logarithm is `log_excess`. The
    /// excess is divided among all its sections, because those measured by this relay may have changed as well.
    pub(super) fn record(&mut self, reporters: &[u32], sections: usize, log_excess: f64) {
        let share = log_excess / sections.max(1) as f64;
        for node in reporters.iter().map(|node| *node as usize).filter(|node| *node < MAX_NODES) {
            if self.logs.len() <= node {
                self.logs.resize(node + 1, 0.0);
            }
            let log = &mut self.logs[node];
            *log = (*log + GAIN * (-share - *log)).clamp(MIN_TRUST.ln(), 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_falls_with_broken_promises_and_recovers() {
        let mut trust = Trust::default();
        assert_eq!(trust.factor(7), 1.0);
        for _ in 0..20 {
            trust.record(&[7], 1, 4f64.ln());
        }
        assert!((0.2..0.3).contains(&trust.factor(7)), "{}", trust.factor(7));
        assert_eq!(trust.factor(6), 1.0, "other relays keep their trust");
        for _ in 0..20 {
            trust.record(&[7], 1, 0.0);
        }
        assert!(trust.factor(7) > 0.95, "{}", trust.factor(7));
    }

    #[test]
    fn blame_is_shared_and_trust_stays_within_its_bounds() {
        let mut trust = Trust::default();
        for _ in 0..50 {
            trust.record(&[1, 2], 2, 4f64.ln());
            trust.record(&[3], 1, -5.0);
            trust.record(&[4], 1, f64::MAX);
            trust.record(&[], 0, 1.0);
        }
        assert!((0.45..0.55).contains(&trust.factor(1)) && trust.factor(1) == trust.factor(2), "{trust:?}");
        assert_eq!((trust.factor(3), trust.factor(4)), (1.0, MIN_TRUST));
        trust.record(&[u32::MAX], 1, 1.0);
        assert_eq!(trust.factor(u32::MAX), 1.0, "no such relay");
    }
}

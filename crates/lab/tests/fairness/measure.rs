//! What the experiments measure.

use crate::network::{PACKET, Run};

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
pub fn jain(rates: &[f64]) -> f64 {
    ekiden_proto::share::jain_of(rates).unwrap_or(1.0)
}

impl Run {
    /// Mbit/s of each connection.
    pub fn rates(&self) -> Vec<f64> {
        self.fates.iter().map(|fate| fate.packets as f64 * f64::from(PACKET) * 8e-6 / self.seconds).collect()
    }

    /// Mean time in the queue, in milliseconds.
    pub fn mean_wait(&self) -> f64 {
        let packets: u64 = self.waits.iter().sum();
        let total: f64 = self.waits.iter().enumerate().map(|(step, count)| (step as f64 + 0.5) * *count as f64).sum();
        0.1 * total / packets.max(1) as f64
    }

    /// The time that a share of the packets waited at most, in milliseconds.
    pub fn wait_quantile(&self, share: f64) -> f64 {
        let packets: u64 = self.waits.iter().sum();
        let mut left = (packets as f64 * share) as u64;
        for (step, count) in self.waits.iter().enumerate() {
            if *count > left {
                return 0.1 * step as f64;
            }
            left -= count;
        }
        0.1 * self.waits.len() as f64
    }
}

//! Statistics of a simulation.

use crate::network::{PACKET, SimulationResult};

/// Jain's index of fairness: 1 if all rates are equal, 1/n if one connection has the whole rate.
pub fn jain(rates: &[f64]) -> f64 {
    ekiden_proto::share::jain_index_of(rates).unwrap_or(1.0)
}

impl SimulationResult {
    /// Goodput of each connection in Mbit/s.
    pub fn rates(&self) -> Vec<f64> {
        self.connections
            .iter()
            .map(|connection| connection.packets as f64 * f64::from(PACKET) * 8e-6 / self.seconds)
            .collect()
    }

    /// Mean time in the queue, in milliseconds.
    pub fn mean_queue_delay(&self) -> f64 {
        let packets: u64 = self.queue_delays.iter().sum();
        let total: f64 =
            self.queue_delays.iter().enumerate().map(|(step, count)| (step as f64 + 0.5) * *count as f64).sum();
        0.1 * total / packets.max(1) as f64
    }

    /// A quantile of the time in the queue, in milliseconds.
    pub fn queue_delay_quantile(&self, share: f64) -> f64 {
        let packets: u64 = self.queue_delays.iter().sum();
        let mut left = (packets as f64 * share) as u64;
        for (step, count) in self.queue_delays.iter().enumerate() {
            if *count > left {
                return 0.1 * step as f64;
            }
            left -= count;
        }
        0.1 * self.queue_delays.len() as f64
    }
}

//! Metrics of shared interfaces, updated on each scrape.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Declare;
use crate::status::InterfaceView;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InterfaceLabels {
    interface: String,
}

type InterfaceGauges = Family<InterfaceLabels, Gauge<f64, AtomicU64>>;

/// One value per interface.
#[derive(Debug, Default)]
pub struct ShareMetrics {
    rate: InterfaceGauges,
    sending: InterfaceGauges,
    level: InterfaceGauges,
    sent: InterfaceGauges,
    fairness: InterfaceGauges,
}

impl ShareMetrics {
    fn all(&self) -> [(&'static str, &'static str, &InterfaceGauges); 5] {
        [
            (
                "share_rate_bits_per_second",
                "Rate shared by the sections of the interface, in bits per second",
                &self.rate,
            ),
            ("share_sections_sending", "Sections sending now", &self.sending),
            (
                "share_level_bits_per_second",
                "Rate available to a section per unit of weight, in bits per second",
                &self.level,
            ),
            (
                "share_sent_bits_per_second",
                "Rate sent by the sections in the last second, in bits per second",
                &self.sent,
            ),
            (
                "share_fairness_ratio",
                "Jain's fairness index of the limited sections in the last second",
                &self.fairness,
            ),
        ]
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, numbers) in self.all() {
            registry.declare(name, help, numbers.clone());
        }
    }

    /// Updates the metrics to these interfaces; unknown values are left out.
    pub fn update(&self, interfaces: Vec<InterfaceView>) {
        self.all().iter().for_each(|(_, _, numbers)| numbers.clear());
        for InterfaceView {
            interface,
            rate_bits_per_second,
            sending,
            level_bits_per_second,
            sent_bits_per_second,
            fairness,
        } in interfaces
        {
            let label = InterfaceLabels { interface };
            let set = |numbers: &InterfaceGauges, value: f64| {
                numbers.get_or_create(&label).set(value);
            };
            set(&self.rate, rate_bits_per_second as f64);
            set(&self.sending, sending as f64);
            set(&self.sent, sent_bits_per_second as f64);
            level_bits_per_second.into_iter().for_each(|level| set(&self.level, level as f64));
            fairness.into_iter().for_each(|fairness| set(&self.fairness, fairness));
        }
    }
}

//! The fleet as numbers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::declare::{Declare, set_count};
use crate::status::fleet::FleetView;

/// Metrics of a fleet, updated on each scrape.
#[derive(Debug, Default)]
pub struct FleetMetrics {
    members: Gauge,
    draining: Gauge,
    missing: Gauge,
    etcd_up: Gauge,
    written: Counter,
    refused: Counter,
}

impl FleetMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("fleet_members", "Relays of the fleet that are known, this one among them", &self.members),
            ("fleet_draining", "Those that take no new sessions", &self.draining),
            ("fleet_missing", "Those that etcd does not list any more", &self.missing),
            ("fleet_etcd_up", "Whether etcd answers", &self.etcd_up),
        ] {
            registry.declare(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("fleet_entries_written", "Entries of this relay that etcd has taken", &self.written),
            ("fleet_entries_refused", "Entries that were not believed", &self.refused),
        ] {
            registry.declare(name, help, counter.clone());
        }
    }

    /// Shows this fleet; zeros where there is none.
    pub fn update(&self, view: Option<FleetView>) {
        let Some(view) = view else { return };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let summary = view.summary();
        self.members.set(number(view.members.len()));
        self.draining.set(number(summary.draining));
        self.missing.set(number(summary.missing));
        self.etcd_up.set(i64::from(view.etcd_up));
        set_count(&self.written, view.written);
        set_count(&self.refused, view.refused);
    }
}

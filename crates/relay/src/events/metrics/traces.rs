//! Trace exports by result.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::Declare;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExportLabels {
    result: &'static str,
}

/// Number of sessions to export to a collector, by result.
#[derive(Debug, Clone, Default)]
pub struct TraceMetrics(Family<ExportLabels, Counter>);

impl TraceMetrics {
    /// Registers the metric as `traced_sessions`.
    pub fn register(&self, r: &mut Registry) {
        r.declare("traced_sessions", "Sessions exported to the trace collector by result", self.0.clone());
    }

    fn count(&self, result: &'static str, sessions: u64) {
        self.0.get_or_create(&ExportLabels { result }).inc_by(sessions);
    }

    /// Counts sessions that were exported.
    pub fn record_sent(&self, sessions: u64) {
        self.count("sent", sessions);
    }

    /// Counts a session dropped because the queue was full.
    pub fn record_queue_full(&self) {
        self.count("queue_full", 1);
    }

    /// Counts sessions that were not exported because the collector could not be reached.
    pub fn record_unreachable(&self, sessions: u64) {
        self.count("unreachable", sessions);
    }

    /// Counts sessions that the collector refused.
    pub fn record_refused(&self, sessions: u64) {
        self.count("refused", sessions);
    }

    /// The counter of one result.
    #[cfg(test)]
    pub fn get(&self, result: &'static str) -> u64 {
        self.0.get_or_create(&ExportLabels { result }).get()
    }
}

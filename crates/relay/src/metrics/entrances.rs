//! Who did not get in, or not yet.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::declare::Declare;

label_sets! {
    ByListener { listener: String }
    ByReason { listener: String, reason: &'static str }
}

/// The numbers of entrances.
#[derive(Debug, Default)]
pub(super) struct Entrances {
    pauses: Family<ByReason, Counter>,
    passed: Family<ByReason, Counter>,
    waiting: Family<ByListener, Gauge>,
}

impl Entrances {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("accept_pauses", "How often accepting paused, by why", self.pauses.clone());
        let passed = "Caught connections that went on without us, by why";
        r.declare("connections_passed", passed, self.passed.clone());
        let waiting = "Relays' connections that no session uses yet";
        r.declare("sections_waiting", waiting, self.waiting.clone());
    }

    pub(super) fn paused(&self, listener: &str, reason: &'static str) {
        self.pauses.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}

impl Metrics {
    /// Counts connections of relays that wait for a session, or wait no longer.
    pub fn waits(&self, listener: &str, change: i64) {
        self.entrances.waiting.get_or_create(&ByListener { listener: listener.to_owned() }).inc_by(change);
    }

    /// Counts a caught connection that goes on without us.
    pub fn passed(&self, listener: &str, reason: &'static str) {
        self.entrances.passed.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}

//! Counters of the kernel rules (nft(8)). The counters are read for a scrape, at most once in `MAX_AGE`, because each
//! read runs a program.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter as Number;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::declare::Declare;
use crate::rules::{Counter, counters};

label_sets! {
    ByRule { listener: String, what: String }
}

/// Maximum age of the counters at a scrape.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The metrics of kernel rules.
#[derive(Debug, Default)]
pub struct RuleMetrics {
    packets: Family<ByRule, Number>,
    source: Mutex<RuleSource>,
}

#[derive(Debug, Default, Clone, Copy)]
struct RuleSource {
    /// The instance of the daemon; `None` without kernel rules.
    instance: Option<u8>,
    queried_at: Option<Instant>,
}

impl RuleMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let packets = "First packets by action of the rules; all listeners if the label is empty";
        r.declare("rules_packets", packets, self.packets.clone());
    }

    fn source(&self) -> MutexGuard<'_, RuleSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the instance of the daemon whose counters are read. `None`, without kernel rules, removes the
    /// counters.
    pub fn set_instance(&self, instance: Option<u8>) {
        let mut source = self.source();
        *source = RuleSource { instance, queried_at: None };
        if instance.is_none() {
            self.packets.clear();
        }
    }

    /// Returns the instance whose counters are to be read now; `None` if the counters are recent.
    fn take_due(&self) -> Option<u8> {
        let mut source = self.source();
        let instance = source.instance?;
        if source.queried_at.is_some_and(|queried_at| queried_at.elapsed() < MAX_AGE) {
            return None;
        }
        source.queried_at = Some(Instant::now());
        Some(instance)
    }

    /// Reads the counters again if they are old. Counters that cannot be read are omitted.
    pub async fn refresh(&self) {
        let Some(instance) = self.take_due() else { return };
        let result = tokio::task::spawn_blocking(move || counters(instance)).await;
        // A reload may have removed the rules meanwhile.
        let source = self.source();
        if source.instance == Some(instance) {
            self.update(&result.ok().and_then(Result::ok).unwrap_or_default());
        }
    }

    pub(super) fn update(&self, counters: &[Counter]) {
        self.packets.clear();
        for Counter { what, listener, packets } in counters {
            let label = ByRule { listener: listener.clone().unwrap_or_default(), what: what.clone() };
            self.packets.get_or_create(&label).inc_by(*packets);
        }
    }
}

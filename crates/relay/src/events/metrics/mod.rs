//! Events as Prometheus metrics, with one file for each subject. Labels never contain the address of a client or a
//! target, so the number of time series is bounded.
//!
//! One line declares a metric: its name, which ends with the unit, and its help text. `docs/metrics.md` contains the
//! same lines, and a test compares the document with a scrape.

macro_rules! label_sets {
    ($($name:ident { $($field:ident: $type:ty),+ })+) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
        struct $name { $($field: $type),+ }
    )+};
}

mod accounts;
mod declare;
pub mod listeners;
mod paths;
pub mod pools;
mod process;
mod rules;
mod sections;
mod sessions;
pub mod traces;
pub mod tunnels;

use std::sync::{Mutex, PoisonError};

use ekiden_proto::event::{Event, SessionClosed};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use self::tunnels::DropReason;
use crate::status::fleet::FleetView;
use crate::status::{AccountView, InterfaceView};

pub use declare::{Declare, SecondsCounter};
pub use process::WorkerCounts;
pub use rules::RuleMetrics;
pub use sections::{SampleMoment, SectionMetrics};

/// All metrics of the relay.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    sessions: sessions::SessionMetrics,
    /// Metrics of sections, from `TCP_INFO`.
    pub sections: SectionMetrics,
    paths: paths::PathMetrics,
    admission: listeners::AdmissionMetrics,
    tunnels: tunnels::PacketMetrics,
    associations: tunnels::PacketMetrics,
    /// Counters of the kernel rules.
    pub rules: RuleMetrics,
    relay: process::RelayMetrics,
    /// Ready connections to relays, updated by the pools.
    pub pools: pools::PoolMetrics,
    /// Trace exports, updated by the exporter.
    pub traces: traces::TraceMetrics,
    fleet: pools::FleetMetrics,
    shares: sections::ShareMetrics,
    accounts: accounts::AccountMetrics,
}

/// Values that are read only for a scrape.
#[derive(Debug, Default)]
pub struct ScrapeData {
    /// The counters of each worker.
    pub workers: Vec<WorkerCounts>,
    /// The interfaces with a shared rate.
    pub interfaces: Vec<InterfaceView>,
    /// The accounts of users, and of listeners with limits.
    pub accounts: Vec<AccountView>,
    /// The fleet; `None` if this relay is not in a fleet.
    pub fleet: Option<FleetView>,
}

impl Metrics {
    /// Creates all metrics with the value zero.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            sessions: sessions::SessionMetrics::default(),
            sections: SectionMetrics::default(),
            paths: paths::PathMetrics::default(),
            admission: listeners::AdmissionMetrics::default(),
            tunnels: tunnels::PacketMetrics::new(&DropReason::OF_TUNNELS),
            associations: tunnels::PacketMetrics::new(&DropReason::OF_ASSOCIATIONS),
            rules: RuleMetrics::default(),
            relay: process::RelayMetrics::default(),
            pools: pools::PoolMetrics::new(declare::duration_histogram),
            traces: traces::TraceMetrics::default(),
            fleet: pools::FleetMetrics::default(),
            shares: sections::ShareMetrics::default(),
            accounts: accounts::AccountMetrics::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let r = registry.sub_registry_with_prefix("ekiden");
        self.sessions.register(r);
        self.sections.register(r);
        self.paths.register(r);
        self.admission.register(r);
        self.tunnels.register_tunnels(r);
        self.associations.register_associations(r);
        self.rules.register(r);
        self.pools.register(r);
        self.traces.register(r);
        self.fleet.register(r);
        self.shares.register(r);
        self.accounts.register(r);
        self.relay.register(&mut registry);
    }

    /// Counts `event` in the metrics that it concerns.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::Closed(closed) => self.observe_closed(closed),
            Event::Request(request) => self.sessions.record_request(request.status),
            Event::PathChanged { .. } => self.paths.record_change(),
            Event::AcceptPaused { listener, reason } => self.admission.record_pause(listener, reason),
            Event::Reloaded { .. } => self.relay.record_reload(true),
            Event::ReloadRejected { .. } => self.relay.record_reload(false),
            Event::Listening { .. }
            | Event::ProfileApplied { .. }
            | Event::Congestion(_)
            | Event::AcceptResumed { .. }
            | Event::BypassBegan { .. }
            | Event::BypassEnded { .. }
            | Event::RelayUnreachable { .. }
            | Event::RelayReachable { .. }
            | Event::FleetChanged { .. }
            | Event::EtcdUnreachable { .. }
            | Event::EtcdReachable { .. }
            | Event::Upgraded { .. }
            | Event::UpgradeFailed { .. }
            | Event::Draining { .. }
            | Event::Stopped { .. }
            | Event::Suppressed { .. }
            | Event::QuotaUsed { .. }
            | Event::Warning { .. } => {}
        }
    }

    fn observe_closed(&self, closed: &SessionClosed) {
        self.sessions.record_closed(closed);
        self.sections.record_closed(closed);
        self.paths.record_closed(closed);
    }

    /// Returns all metrics in the text format of OpenMetrics.
    #[must_use]
    pub fn encode(&self, now: ScrapeData) -> String {
        let ScrapeData { workers, interfaces, accounts, fleet } = now;
        self.relay.update(&workers);
        self.shares.update(interfaces);
        self.accounts.update(accounts);
        self.fleet.update(fleet);
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("invariant: writing to a String does not fail");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;

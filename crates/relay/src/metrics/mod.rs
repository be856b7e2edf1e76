//! Events as numbers for Prometheus, one subject in a file. Labels never hold a client's address or a target, so their
//! number is bounded.
//!
//! One line declares a number: its name, which ends with its unit, and what it is. `docs/metrics.md` has the same lines,
//! and a test compares them with a scrape.

macro_rules! label_sets {
    ($($name:ident { $($field:ident: $type:ty),+ })+) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
        struct $name { $($field: $type),+ }
    )+};
}

mod declare;
mod entrances;
mod itself;
mod paths;
mod process;
mod rules;
mod sections;
mod sessions;
#[cfg(test)]
mod tests;
mod tunnels;

use std::sync::{Mutex, PoisonError};

use ekiden_proto::event::{Closed, Event};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::fleet;
use crate::pool;
use crate::share;
use crate::status::InterfaceView;
use crate::traces;
use crate::worker::Counts;

pub use declare::{Declare, Seconds, take_over};
pub use rules::Rules;
pub use sections::{Sections, When};

/// All numbers of the relay.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    sessions: sessions::Sessions,
    /// What the kernel knows of sections.
    pub sections: Sections,
    paths: paths::Paths,
    entrances: entrances::Entrances,
    tunnels: tunnels::Tunnels,
    /// What the rules in the kernel have counted.
    pub rules: Rules,
    itself: itself::Itself,
    /// Ready connections to relays; the pools count by themselves.
    pub pools: pool::Counts,
    /// What became of traces; the exporter counts by itself.
    pub traces: traces::Counts,
    fleet: fleet::Gauges,
    shares: share::Gauges,
}

/// What is known only when somebody asks.
#[derive(Debug, Default)]
pub struct Now {
    /// Each worker by itself.
    pub workers: Vec<Counts>,
    /// Shared interfaces.
    pub interfaces: Vec<InterfaceView>,
    /// The fleet, where there is one.
    pub fleet: Option<fleet::FleetView>,
}

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            sessions: sessions::Sessions::default(),
            sections: Sections::default(),
            paths: paths::Paths::default(),
            entrances: entrances::Entrances::default(),
            tunnels: tunnels::Tunnels::default(),
            rules: Rules::default(),
            itself: itself::Itself::default(),
            pools: pool::Counts::new(declare::spans),
            traces: traces::Counts::default(),
            fleet: fleet::Gauges::default(),
            shares: share::Gauges::default(),
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
        self.entrances.register(r);
        self.tunnels.register(r);
        self.rules.register(r);
        self.pools.register(r);
        self.traces.register(r);
        self.fleet.register(r);
        self.shares.register(r);
        self.itself.register(&mut registry);
    }

    /// Counts `event`.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::Closed(closed) => self.observe_closed(closed),
            Event::Request(request) => self.sessions.requested(request.status),
            Event::PathChanged { .. } => self.paths.changed(),
            Event::AcceptPaused { listener, reason } => self.entrances.paused(listener, reason),
            Event::Reloaded { .. } => self.itself.reloaded(true),
            Event::ReloadRejected { .. } => self.itself.reloaded(false),
            Event::Listening { .. }
            | Event::ProfileApplied { .. }
            | Event::Congestion(_)
            | Event::AcceptResumed { .. }
            | Event::BypassBegan { .. }
            | Event::BypassEnded { .. }
            | Event::RelayDown { .. }
            | Event::RelayUp { .. }
            | Event::FleetChanged { .. }
            | Event::EtcdDown { .. }
            | Event::EtcdUp { .. }
            | Event::Upgraded { .. }
            | Event::UpgradeFailed { .. }
            | Event::Draining { .. }
            | Event::Stopped { .. }
            | Event::Suppressed { .. }
            | Event::Warning { .. } => {}
        }
    }

    fn observe_closed(&self, closed: &Closed) {
        self.sessions.closed(closed);
        self.sections.closed(closed);
        self.paths.closed(closed);
    }

    /// All numbers in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self, now: Now) -> String {
        let Now { workers, interfaces, fleet } = now;
        self.itself.show(&workers);
        self.shares.show(interfaces);
        self.fleet.show(fleet);
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

//! The services that all threads of the relay share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ekiden_proto::wire::section::{TicketIssuer, TraceId};
use tokio::sync::Semaphore;

use super::admission::Admission;
use super::gate::PendingConnections;
use super::http::UpstreamPool;
use crate::accounting::Accounts;
use crate::events::Events;
use crate::fleet::FleetDirectory;
use crate::path::estimates::{EstimateHistory, EstimateStore, ReportClients};
use crate::path::selector::PathSelector;
use crate::pool::Pools;
use crate::shaping::fair_share::SharedInterfaces;
use crate::shaping::resume::ResumeLedger;
use crate::status::UpgradeAttempts;
use crate::tunnel::{LaneRegistry, Tunnels};

/// Largest number of SOCKS5 clients that wait for a BIND connection at the same time. Each uses a listening port.
const MAX_BINDS: usize = 64;

/// The services that all threads share, created once for the process.
#[derive(Debug)]
pub struct Services {
    /// The log, the metrics, the recent events and the traces.
    pub events: Arc<Events>,
    next_session: AtomicU64,
    /// The limits on sessions and on connections of relays without a session.
    pub admission: Arc<Admission>,
    /// The limits and the usage of users and listeners.
    pub accounts: Accounts,
    /// The trace ids of running sessions that the previous relay has opened.
    active_traces: Mutex<HashSet<TraceId>>,
    /// Tickets that shorten the next handshake of a relay.
    pub tickets: TicketIssuer,
    /// Start of this process. The age of tickets is relative to it, so changes of the system clock have no effect.
    pub started_at: Instant,
    /// Ready connections to next relays.
    pub pools: Arc<Pools>,
    /// Idle connections to servers and `http` hops.
    pub upstream_pool: UpstreamPool,
    /// The other relays of the fleet.
    pub fleet: FleetDirectory,
    /// The congestion windows with which sessions on sections to relays may begin.
    pub resume: ResumeLedger,
    /// Interfaces with a shared rate.
    pub shared_interfaces: Arc<SharedInterfaces>,
    /// Intercepted connections by four-tuple, from the first packet to the end of the session.
    pub pending_connections: PendingConnections,
    /// The devices of tunnels.
    pub tunnels: Tunnels,
    /// The lanes of tunnels.
    pub lanes: LaneRegistry,
    /// Estimates of sections: measured by this relay, or reported by others.
    pub estimates: Arc<EstimateStore>,
    /// Connections on which other relays report their estimates.
    pub reports: ReportClients,
    /// Hourly history of the estimates, in a database.
    pub history: EstimateHistory,
    /// Chooses paths for routes with `path = "auto"`.
    pub path_selector: PathSelector,
    /// Permits for SOCKS5 clients that wait for a BIND connection.
    pub bind_places: Semaphore,
    /// Failed upgrades, reported to `ekiden upgrade`.
    pub upgrades: UpgradeAttempts,
}

impl Services {
    /// Creates the services, without sessions, relays and listeners.
    #[must_use]
    pub fn new(events: Arc<Events>) -> Arc<Self> {
        let started_at = Instant::now();
        let estimates = Arc::new(EstimateStore::new(started_at));
        let emitter = Arc::clone(&events);
        let pools = Pools::new(events.metrics.pools.clone(), move |event| emitter.emit(event));
        Arc::new(Self {
            pools: Arc::new(pools),
            upstream_pool: UpstreamPool::new(Arc::clone(&events)),
            fleet: FleetDirectory::new(Arc::clone(&events), Arc::clone(&estimates)),
            events,
            next_session: AtomicU64::new(1),
            admission: Arc::default(),
            accounts: Accounts::default(),
            active_traces: Mutex::default(),
            tickets: TicketIssuer::generate(),
            started_at,
            resume: ResumeLedger::default(),
            shared_interfaces: Arc::default(),
            pending_connections: PendingConnections::default(),
            tunnels: Tunnels::default(),
            lanes: LaneRegistry::default(),
            reports: ReportClients::default(),
            history: EstimateHistory::default(),
            bind_places: Semaphore::new(MAX_BINDS),
            upgrades: UpgradeAttempts::default(),
            path_selector: PathSelector::new(Arc::clone(&estimates)),
            estimates,
        })
    }

    /// Returns a session number that is unique in this process.
    pub fn next_session_id(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers the trace id of a session that the previous relay has opened. Returns false if the id is already
    /// registered: the session passes this relay a second time.
    pub fn try_begin_trace(&self, trace: TraceId) -> bool {
        self.active_traces.lock().unwrap_or_else(PoisonError::into_inner).insert(trace)
    }

    /// Removes a trace id.
    pub fn end_trace(&self, trace: &TraceId) {
        self.active_traces.lock().unwrap_or_else(PoisonError::into_inner).remove(trace);
    }
}

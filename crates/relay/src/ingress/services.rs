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

/// Most SOCKS5 clients that wait for a connection at a time. Each holds a port.
const MAX_BINDS: usize = 64;

/// The services, created once for the process.
#[derive(Debug)]
pub struct Services {
    /// The log, the metrics, the recent events and the traces.
    pub events: Arc<Events>,
    next_session: AtomicU64,
    /// The places for sessions and for connections of relays without a session.
    pub admission: Arc<Admission>,
    /// The limits and the usage of users and listeners.
    pub accounts: Accounts,
    /// The trace ids of running sessions that a relay has opened.
    active_traces: Mutex<HashSet<TraceId>>,
    /// Tickets that shorten the next handshake of a relay.
    pub tickets: TicketIssuer,
    /// When this process began; tickets count their time from here, so that no change of the clock touches them.
    pub started_at: Instant,
    /// Ready connections to next relays.
    pub pools: Arc<Pools>,
    /// Idle connections to servers and `http` hops.
    pub upstream_pool: UpstreamPool,
    /// The other relays of the fleet.
    pub fleet: FleetDirectory,
    /// The windows that sessions on sections to relays may begin with.
    pub resume: ResumeLedger,
    /// Interfaces with a shared rate.
    pub shared_interfaces: Arc<SharedInterfaces>,
    /// Intercepted connections that are no session yet.
    pub pending_connections: PendingConnections,
    /// The devices of tunnels.
    pub tunnels: Tunnels,
    /// The lanes of tunnels.
    pub lanes: LaneRegistry,
    /// Estimates of the sections that this relay knows.
    pub estimates: Arc<EstimateStore>,
    /// Connections on which other relays report their estimates.
    pub reports: ReportClients,
    /// Estimates by hour, in a database.
    pub history: EstimateHistory,
    /// Chooses paths for routes with `path = "auto"`.
    pub path_selector: PathSelector,
    /// The places of SOCKS5 clients that wait for a connection.
    pub bind_places: Semaphore,
    /// Failed upgrades, reported to `ekiden upgrade`.
    pub upgrades: UpgradeAttempts,
}

impl Services {
    /// Services without sessions, relays and listeners.
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

    /// A number that no other session of this run has.
    pub fn next_session_id(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Registers the trace id of a session that relays pass on. Returns false if the id is already registered: the
    /// session has come back.
    pub fn try_begin_trace(&self, trace: TraceId) -> bool {
        self.active_traces.lock().unwrap_or_else(PoisonError::into_inner).insert(trace)
    }

    /// Removes a trace id.
    pub fn end_trace(&self, trace: &TraceId) {
        self.active_traces.lock().unwrap_or_else(PoisonError::into_inner).remove(trace);
    }
}

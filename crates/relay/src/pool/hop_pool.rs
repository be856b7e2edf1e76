//! The state of one next hop and, for a relay, its idle connections: connections that sessions have used, and
//! connections that were dialled in advance.
//!
//! The lock is held while one connection is moved. Once a second the keeper polls all connections under the lock, with
//! one system call.

use std::collections::VecDeque;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::balance::MemberLoad;
use ekiden_proto::wire::section::ResumptionTicket;
use ekiden_sys::congestion;

use super::balance::LoadState;
use super::health::{HopHealth, RetrySchedule, with_jitter};
use super::sizing::PoolDemand;
use super::{IdleConnection, find_ended, is_alive};
use crate::config::Hop;
use crate::events::metrics::pools::{PoolMetrics, RelayPoolMetrics};
use crate::status::PoolView;

/// The pool of one next hop.
#[derive(Debug)]
pub struct HopPool {
    /// The hop, with the parameters for dialling.
    pub hop: Arc<Hop>,
    metrics: RelayPoolMetrics,
    state: Mutex<HopPoolState>,
    reporting: Mutex<()>,
}

#[derive(Debug)]
struct HopPoolState {
    /// Connections that no session has used, oldest first.
    ready: VecDeque<PooledConnection>,
    /// Connections that sessions have used, in the order of their return. Their congestion windows have grown.
    used: Vec<PooledConnection>,
    pending: usize,
    bounds: PoolBounds,
    demand: PoolDemand,
    health: HopHealth,
    load: MemberLoad,
    is_probed: bool,
    ticket: Option<ResumptionTicket>,
}

#[derive(Debug)]
struct PooledConnection {
    connection: IdleConnection,
    expires_at: Instant,
}

/// Limits for the number and the age of idle connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolBounds {
    /// Maximum number of idle connections; 0 if the hop is not a relay or was removed from the configuration.
    pub most: usize,
    /// Maximum age of an unused connection.
    pub age: Duration,
    /// Maximum time for which a used connection waits for its next session.
    pub idle: Duration,
}

/// Minimum setup time (two round trips) at which pacing delays a small session noticeably.
const MIN_PACED_SETUP_TIME: Duration = Duration::from_millis(10);

impl HopPool {
    /// Creates a pool without connections.
    #[must_use]
    pub fn new(hop: &Arc<Hop>, counts: &PoolMetrics) -> Self {
        let schedule = if hop.is_section() { RetrySchedule::KEEPER } else { RetrySchedule::SESSIONS };
        let state = HopPoolState {
            ready: VecDeque::new(),
            used: Vec::new(),
            pending: 0,
            bounds: PoolBounds::default(),
            demand: PoolDemand::new(Instant::now()),
            health: HopHealth::new(schedule),
            load: MemberLoad::default(),
            is_probed: false,
            ticket: None,
        };
        Self {
            hop: Arc::clone(hop),
            metrics: counts.for_relay(&hop.name),
            state: Mutex::new(state),
            reporting: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HopPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new bounds. Connections beyond the bounds are closed, the oldest first.
    pub fn set_bounds(&self, bounds: PoolBounds) {
        let mut state = self.lock();
        state.bounds = bounds;
        let excess = (state.ready.len() + state.used.len()).saturating_sub(bounds.most);
        let unused = excess.min(state.ready.len());
        let mut closed: Vec<_> = state.ready.drain(..unused).collect();
        closed.extend(state.used.drain(..excess - unused));
        self.count(&state);
        drop(state);
        drop(closed);
    }

    fn count(&self, state: &HopPoolState) {
        self.metrics.ready.set(number(state.ready.len()));
        self.metrics.used.set(number(state.used.len()));
    }

    /// Takes the most recently used live connection that can carry a session with this encryption, or else the oldest
    /// unused connection. Also returns whether the keeper has to make connections.
    pub fn take(&self, now: Instant, encrypt: bool) -> (Option<IdleConnection>, bool) {
        let connection = loop {
            let Some(pooled) = self.pop(encrypt) else { break None };
            if pooled.expires_at > now && is_alive(&pooled.connection.stream) {
                break Some(pooled.connection);
            }
            self.metrics.stale.inc();
        };
        let counter = match &connection {
            Some(connection) if connection.link.usage.sessions() > 0 => &self.metrics.reused,
            Some(_) => &self.metrics.hits,
            None => &self.metrics.misses,
        };
        counter.inc();
        let mut state = self.lock();
        state.demand.on_taken(now);
        (connection, state.missing_connections(now) > 0)
    }

    fn pop(&self, encrypt: bool) -> Option<PooledConnection> {
        let mut state = self.lock();
        let index = state.used.iter().rposition(|used| used.connection.link.usage.can_carry(encrypt));
        let connection = match index {
            Some(at) => Some(state.used.remove(at)),
            None => state.ready.pop_front(),
        };
        self.count(&state);
        connection
    }

    /// Keeps a connection for the next session, after a session that both sides have ended. If the pool is full, the
    /// oldest unused connection is closed instead. A connection on which the next session would be slower than on a new
    /// connection is closed.
    pub fn put_back(&self, connection: IdleConnection, now: Instant) {
        let mut state = self.lock();
        if state.demand.setup_time() > MIN_PACED_SETUP_TIME
            && !connection.link.usage.has_grown()
            && is_paced_by_samples(&connection.stream)
        {
            return;
        }
        let expires_at = now + with_jitter(state.bounds.idle);
        let is_full = state.ready.len() + state.used.len() >= state.bounds.most;
        let closed = if is_full { state.ready.pop_front() } else { None };
        if closed.is_some() || !is_full {
            state.used.push(PooledConnection { connection, expires_at });
        }
        self.count(&state);
        drop(state);
        drop(closed);
    }

    /// Returns whether the hop should be tried last. For a hop that only sessions try, one session receives false after
    /// each retry delay and may try again.
    pub fn is_down(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if self.hop.is_section() { state.health.is_down() } else { !state.health.try_claim(now) }
    }

    /// Returns the load of the hop.
    pub fn load_state(&self, now: Instant) -> LoadState {
        let HopPoolState { health, load, .. } = &*self.lock();
        LoadState {
            is_up: !health.is_down(),
            is_refusing: load.is_refusing(now),
            sessions: load.sessions(),
            latency: load.latency(now),
        }
    }

    /// Calls `change` with the load and the current time.
    pub fn update_load(&self, change: impl FnOnce(&mut MemberLoad, Instant)) {
        let (mut state, now) = (self.lock(), Instant::now());
        change(&mut state.load, now);
        self.metrics.sessions.set(number(state.load.sessions()));
        self.metrics.latency.set(state.load.latency(now).unwrap_or_default().as_secs_f64());
    }

    /// The ticket for a short handshake; `None` if no earlier handshake has provided a ticket.
    pub fn ticket(&self) -> Option<ResumptionTicket> {
        self.lock().ticket.clone()
    }

    /// Stores the ticket of a handshake.
    pub fn set_ticket(&self, ticket: ResumptionTicket) {
        self.lock().ticket = Some(ticket);
    }

    /// Takes the lock that is held from a change of the health until its event is emitted, so that the last event
    /// matches the state.
    pub fn lock_reporting(&self) -> MutexGuard<'_, ()> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether a successful attempt would end an outage.
    pub fn has_failed(&self) -> bool {
        self.lock().health.is_down()
    }

    /// Records a failed attempt. Returns true if the hop was up before.
    pub fn on_failure(&self, now: Instant) -> bool {
        self.lock().health.on_failure(now)
    }

    /// Records the success of an attempt that began at `started_at`. Returns the duration of the outage if the attempt
    /// ended one.
    pub fn on_success(&self, started_at: Instant, now: Instant) -> Option<Duration> {
        self.lock().health.on_success(started_at, now)
    }

    /// Closes all idle connections.
    pub fn clear(&self) {
        let mut state = self.lock();
        let closed = (std::mem::take(&mut state.ready), std::mem::take(&mut state.used));
        self.count(&state);
        drop(state);
        drop(closed);
    }

    /// Closes connections that are too old or that the relay has closed.
    pub fn remove_dead(&self, now: Instant) {
        let mut state = self.lock();
        let ended = find_ended(state.ready.iter().chain(&state.used).map(|pooled| &pooled.connection.stream));
        let (ready, used) = (std::mem::take(&mut state.ready), std::mem::take(&mut state.used));
        let mut closed = Vec::new();
        for (pooled, has_ended) in ready.into_iter().chain(used).zip(ended) {
            if has_ended || pooled.expires_at <= now {
                closed.push(pooled);
            } else if pooled.connection.link.usage.sessions() == 0 {
                state.ready.push_back(pooled);
            } else {
                state.used.push(pooled);
            }
        }
        self.count(&state);
        drop(state);
        drop(closed);
    }

    /// Reserves a place for each connection that should be made now.
    pub fn claim_places(self: &Arc<Self>, now: Instant) -> Vec<PendingConnection> {
        let mut state = self.lock();
        let count = if state.health.is_down() {
            // One attempt, even if enough connections are ready: only an attempt shows whether the hop is reachable
            // again.
            usize::from(state.bounds.most > 0 && state.pending == 0 && state.health.try_claim(now))
        } else {
            state.missing_connections(now)
        };
        state.pending += count;
        drop(state);
        (0..count).map(|_| PendingConnection { pool: Arc::clone(self), is_probe: false }).collect()
    }

    /// Reserves a place for a connection that measures the latency of a group member, if a probe is due. For a member
    /// that is down, [`claim_places`](Self::claim_places) makes the attempts.
    pub fn claim_probe(self: &Arc<Self>, now: Instant, is_slow: bool) -> Option<PendingConnection> {
        self.metrics.slow.set(is_slow.into());
        let mut state = self.lock();
        let is_due = !state.health.is_down() && !state.is_probed && state.load.needs_probe(now, is_slow);
        if !is_due {
            return None;
        }
        state.is_probed = true;
        state.pending += 1;
        Some(PendingConnection { pool: Arc::clone(self), is_probe: true })
    }

    /// The time of the next attempt while the hop is down; `None` if the hop is up or an attempt is in progress.
    pub fn retry_at(&self) -> Option<Instant> {
        let state = self.lock();
        state.health.retry().filter(|_| state.bounds.most > 0 && state.pending == 0)
    }

    /// Returns the state of the pool for `ekiden status`. `slow` is false here, because only the group of the hop
    /// determines it.
    pub fn view(&self) -> PoolView {
        let (state, now) = (self.lock(), Instant::now());
        PoolView {
            relay: self.hop.name.to_string(),
            up: !state.health.is_down(),
            slow: false,
            sessions: state.load.sessions(),
            latency_seconds: state.load.latency(now).map(|latency| latency.as_secs_f64()),
            ready: state.ready.len(),
            used: state.used.len(),
            wanted: state.demand.target_size(now, state.bounds.most),
            reused: self.metrics.reused.get(),
            hits: self.metrics.hits.get(),
            misses: self.metrics.misses.get(),
            stale: self.metrics.stale.get(),
        }
    }
}

impl HopPoolState {
    /// Returns the number of connections to start now.
    fn missing_connections(&self, now: Instant) -> usize {
        let target = self.demand.target_size(now, self.bounds.most);
        let free = self.demand.max_parallel(now).saturating_sub(self.pending);
        target.saturating_sub(self.ready.len() + self.used.len() + self.pending).min(free)
    }
}

/// A connection that is being established. The drop releases its place in the pool.
#[derive(Debug)]
pub struct PendingConnection {
    /// The pool that receives the connection.
    pub pool: Arc<HopPool>,
    /// Whether the connection is made to measure the latency of the hop.
    is_probe: bool,
}

impl PendingConnection {
    /// Adds the connection to the pool if there is room; the connection of a probe only while the pool is below its
    /// target size. `took` is the setup time.
    pub fn complete(self, connection: IdleConnection, took: Duration, now: Instant) {
        let metrics = &self.pool.metrics;
        metrics.made.inc();
        metrics.seconds.observe(took.as_secs_f64());
        let mut state = self.pool.lock();
        state.demand.on_made(took);
        state.load.on_connected(now, took, self.is_probe);
        let bounds = state.bounds;
        let most = if self.is_probe { state.demand.target_size(now, bounds.most) } else { bounds.most };
        if state.ready.len() + state.used.len() < most {
            let expires_at = now + with_jitter(bounds.age);
            state.ready.push_back(PooledConnection { connection, expires_at });
            self.pool.count(&state);
        }
    }

    /// Records that the connection could not be established.
    pub fn cancel(self) {
        self.pool.metrics.failed.inc();
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.pending -= 1;
        state.is_probed &= !self.is_probe;
    }
}

/// Returns whether the congestion control derives its pacing rate from delivery rate samples of the connection, as BBR
/// does. After small sessions, BBR paces a few packets over a fifth of a round trip; a new connection sends ten packets
/// at once (tcp_bbr.c).
fn is_paced_by_samples(stream: &TcpStream) -> bool {
    congestion::of_socket(stream).is_ok_and(|control| control.starts_with("bbr"))
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

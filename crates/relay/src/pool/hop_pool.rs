//! The state of one next hop and, for a relay, its ready connections, the oldest first.
//!
//! The lock is held while one connection is moved. Once a second the keeper polls all connections under the lock, with
//! one system call.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::wire::section::ResumptionTicket;
use ekiden_sys::poll::Poll;

use super::IdleConnection;
use super::health::{HopHealth, RetrySchedule, with_jitter};
use super::sizing::PoolDemand;
use crate::config::Hop;
use crate::events::metrics::pools::{PoolMetrics, RelayPoolMetrics};
use crate::status::PoolView;

/// The pool of one next hop.
#[derive(Debug)]
pub struct HopPool {
    /// The hop, with the parameters for dialling.
    pub hop: Arc<Hop>,
    tally: RelayPoolMetrics,
    state: Mutex<HopPoolState>,
    news: Mutex<()>,
}

#[derive(Debug)]
struct HopPoolState {
    ready: VecDeque<PooledConnection>,
    making: usize,
    bounds: PoolBounds,
    demand: PoolDemand,
    health: HopHealth,
    known: Option<ResumptionTicket>,
}

#[derive(Debug)]
struct PooledConnection {
    waiting: IdleConnection,
    until: Instant,
}

/// How many may wait, and for how long.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolBounds {
    /// Most ready connections; 0 if the hop is no relay or has left the configuration.
    pub most: usize,
    /// The oldest that is still good.
    pub age: Duration,
}

impl HopPool {
    /// A pool without connections.
    #[must_use]
    pub fn new(hop: &Arc<Hop>, counts: &PoolMetrics) -> Self {
        let pace = if hop.is_section() { RetrySchedule::KEEPER } else { RetrySchedule::SESSIONS };
        let state = HopPoolState {
            ready: VecDeque::new(),
            making: 0,
            bounds: PoolBounds::default(),
            demand: PoolDemand::new(Instant::now()),
            health: HopHealth::new(pace),
            known: None,
        };
        Self {
            hop: Arc::clone(hop),
            tally: counts.for_relay(&hop.name),
            state: Mutex::new(state),
            news: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HopPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets new bounds. Connections beyond the bounds are closed, the oldest first.
    pub fn set_bounds(&self, bounds: PoolBounds) {
        let mut state = self.lock();
        state.bounds = bounds;
        let keep = state.ready.len().min(bounds.most);
        let excess = state.ready.len() - keep;
        let closed: Vec<_> = state.ready.drain(..excess).collect();
        self.tally.ready.set(number(keep));
        drop(state);
        drop(closed);
    }

    /// The oldest that is alive, and whether the keeper has something to do.
    pub fn take(&self, now: Instant) -> (Option<IdleConnection>, bool) {
        let found = loop {
            let Some(made) = self.pop() else { break None };
            if made.until > now && is_alive(&made.waiting.stream) {
                break Some(made.waiting);
            }
            self.tally.stale.inc();
        };
        let counter = if found.is_some() { &self.tally.hits } else { &self.tally.misses };
        counter.inc();
        let mut state = self.lock();
        state.demand.on_taken(now);
        (found, state.missing_connections(now) > 0)
    }

    fn pop(&self) -> Option<PooledConnection> {
        let mut state = self.lock();
        let made = state.ready.pop_front();
        self.tally.ready.set(number(state.ready.len()));
        made
    }

    /// Whether the hop should be tried last. For a hop that only sessions try, one session may try again after each
    /// delay.
    pub fn is_down(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if self.hop.is_section() { state.health.is_down() } else { !state.health.try_claim(now) }
    }

    /// The ticket for a short handshake, if an earlier handshake left one.
    pub fn ticket(&self) -> Option<ResumptionTicket> {
        self.lock().known.clone()
    }

    /// Stores the ticket of a handshake.
    pub fn set_ticket(&self, gift: ResumptionTicket) {
        self.lock().known = Some(gift);
    }

    /// Lock to hold from a change until its event is emitted, so that the last event matches the state.
    pub fn lock_reporting(&self) -> MutexGuard<'_, ()> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a success would end an outage.
    pub fn has_failed(&self) -> bool {
        self.lock().health.is_down()
    }

    /// Records that the hop was not usable. Returns true if it was usable before.
    pub fn on_failure(&self, now: Instant) -> bool {
        self.lock().health.on_failure(now)
    }

    /// Records that an attempt since `begun` succeeded. Returns the length of the outage that it ended, if it did.
    pub fn on_success(&self, begun: Instant, now: Instant) -> Option<Duration> {
        self.lock().health.on_success(begun, now)
    }

    /// Closes all that are ready.
    pub fn clear(&self) {
        let mut state = self.lock();
        let closed = std::mem::take(&mut state.ready);
        self.tally.ready.set(0);
        drop(state);
        drop(closed);
    }

    /// Closes connections that are too old or that the relay has closed.
    pub fn remove_dead(&self, now: Instant) {
        let mut state = self.lock();
        let dead = find_dead(&state.ready);
        let all = std::mem::take(&mut state.ready).into_iter().zip(dead);
        let (good, bad): (Vec<_>, Vec<_>) = all.partition(|(made, dead)| made.until > now && !dead);
        self.tally.ready.set(number(good.len()));
        state.ready = good.into_iter().map(|(made, _)| made).collect();
        drop(state);
        drop(bad);
    }

    /// A place for each connection that should be made now.
    pub fn claim_places(self: &Arc<Self>, now: Instant) -> Vec<PendingConnection> {
        let mut state = self.lock();
        let count = if state.health.is_down() {
            // Even where enough are ready: there is no other way to find out.
            usize::from(state.bounds.most > 0 && state.making == 0 && state.health.try_claim(now))
        } else {
            state.missing_connections(now)
        };
        state.making += count;
        drop(state);
        (0..count).map(|_| PendingConnection { queue: Arc::clone(self) }).collect()
    }

    /// Time of the next attempt, while the hop is down and no attempt is under way.
    pub fn retry_at(&self) -> Option<Instant> {
        let state = self.lock();
        state.health.retry().filter(|_| state.bounds.most > 0 && state.making == 0)
    }

    /// The pool as `ekiden status` shows it.
    pub fn view(&self) -> PoolView {
        let state = self.lock();
        PoolView {
            relay: self.hop.name.to_string(),
            up: !state.health.is_down(),
            ready: state.ready.len(),
            wanted: state.demand.target_size(Instant::now(), state.bounds.most),
            hits: self.tally.hits.get(),
            misses: self.tally.misses.get(),
            stale: self.tally.stale.get(),
        }
    }
}

impl HopPoolState {
    /// How many to begin to make.
    fn missing_connections(&self, now: Instant) -> usize {
        let wanted = self.demand.target_size(now, self.bounds.most);
        let free = self.demand.max_parallel(now).saturating_sub(self.making);
        wanted.saturating_sub(self.ready.len() + self.making).min(free)
    }
}

/// A connection under construction. Dropping it gives up its place.
#[derive(Debug)]
pub struct PendingConnection {
    /// The pool that will hold it.
    pub queue: Arc<HopPool>,
}

impl PendingConnection {
    /// Adds the connection to the pool; `took` is its setup time.
    pub fn complete(self, waiting: IdleConnection, took: Duration, now: Instant) {
        let tally = &self.queue.tally;
        tally.made.inc();
        tally.seconds.observe(took.as_secs_f64());
        let mut state = self.queue.lock();
        state.demand.on_made(took);
        if state.ready.len() < state.bounds.most {
            let until = now + with_jitter(state.bounds.age);
            state.ready.push_back(PooledConnection { waiting, until });
            tally.ready.set(number(state.ready.len()));
        }
    }

    /// Gives up the connection.
    pub fn cancel(self) {
        self.queue.tally.failed.inc();
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.queue.lock().making -= 1;
    }
}

/// An unused connection is alive if nothing is readable on it, not even an end of stream.
fn is_alive(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Finds connections that have ended, with one poll(2).
fn find_dead(ready: &VecDeque<PooledConnection>) -> Vec<bool> {
    let mut poll = Poll::new(ready.iter().map(|made| made.waiting.stream.as_fd()).collect());
    // After an error all count as alive: `take` checks again.
    let _ = poll.wait(Some(Duration::ZERO));
    (0..ready.len()).map(|place| poll.is_ready(place)).collect()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

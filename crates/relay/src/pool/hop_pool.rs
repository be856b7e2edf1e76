//! What is known of one next hop, and for a relay the connections that wait for sessions, the oldest first.
//!
//! The lock is held for no more than moving one connection, but once a second the keeper asks the kernel about all of
//! them in one system call.

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

/// One next hop.
#[derive(Debug)]
pub struct HopPool {
    /// The hop; it is dialled as it says.
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
    /// Most that are ready; none where the hop is no relay, or the configuration has it no more.
    pub most: usize,
    /// The oldest that is still good.
    pub age: Duration,
}

impl HopPool {
    /// Nothing is ready.
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

    /// Other bounds from now on; what is too much is closed, the oldest first.
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

    /// Whether it should be tried last. Where only sessions try, one of them may again after each pause.
    pub fn is_down(&self, now: Instant) -> bool {
        let mut state = self.lock();
        if self.hop.is_section() { state.health.is_down() } else { !state.health.try_claim(now) }
    }

    /// What makes the next handshake shorter, where there has been one.
    pub fn ticket(&self) -> Option<ResumptionTicket> {
        self.lock().known.clone()
    }

    /// There has been one.
    pub fn set_ticket(&self, gift: ResumptionTicket) {
        self.lock().known = Some(gift);
    }

    /// Held from a change until it is told, so that what is told last is what is so.
    pub fn lock_reporting(&self) -> MutexGuard<'_, ()> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there would be news if it could be used.
    pub fn has_failed(&self) -> bool {
        self.lock().health.is_down()
    }

    /// It could not be used; whether that is news.
    pub fn on_failure(&self, now: Instant) -> bool {
        self.lock().health.on_failure(now)
    }

    /// It could be used, as an attempt since `begun` has found out; for how long not before, where that is news.
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

    /// Closes those that are too old, or that the relay has closed.
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

    /// When it is to be tried again, while it is down and nobody tries.
    pub fn retry_at(&self) -> Option<Instant> {
        let state = self.lock();
        state.health.retry().filter(|_| state.bounds.most > 0 && state.making == 0)
    }

    /// What `ekiden status` shows of it.
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

/// A connection that is being made; it is no more when this is dropped.
#[derive(Debug)]
pub struct PendingConnection {
    /// Where it is to wait.
    pub queue: Arc<HopPool>,
}

impl PendingConnection {
    /// It is ready, and has taken so long.
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

    /// It came to nothing.
    pub fn cancel(self) {
        self.queue.tally.failed.inc();
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.queue.lock().making -= 1;
    }
}

/// Nothing may have come on a connection that no session has used, not even its end.
fn is_alive(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Which of them have ended, by one system call.
fn find_dead(ready: &VecDeque<PooledConnection>) -> Vec<bool> {
    let mut poll = Poll::new(ready.iter().map(|made| made.waiting.stream.as_fd()).collect());
    // An error leaves all as they are: whoever takes one looks again.
    let _ = poll.wait(Some(Duration::ZERO));
    (0..ready.len()).map(|place| poll.is_ready(place)).collect()
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

//! Ready connections to next relays: dialled and authenticated in advance, so that sessions need no handshake.
//!
//! All threads share the pools: a thread takes a connection under a short lock, and the `keeper` thread replaces the
//! connection. The number of ready connections follows the demand (`sizing`). The keeper retries an unreachable relay
//! with increasing delays, so that sessions do not have to (`health`). For next hops that are not relays, no
//! connections are kept ready, but their health is tracked.

mod balance;
mod health;
mod hop_pool;
mod keeper;
mod sizing;

use std::fmt;
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::Event;
use ekiden_sys::poll::Poll;
use tokio::sync::Notify;

use crate::config::{Config, Hop};
use crate::dial::DialError;
use crate::dial::link::SectionLink;
use crate::status::PoolView;

pub use crate::events::metrics::pools::PoolMetrics;
pub use balance::SessionLoad;

use balance::PoolGroup;
use hop_pool::{HopPool, PoolBounds};

/// A connection to a relay on which no session runs.
#[derive(Debug)]
pub struct IdleConnection {
    /// The connection, not registered with a runtime.
    pub stream: TcpStream,
    /// The address of the relay.
    pub server: ServerAddr,
    /// The section, with the usage by its earlier sessions.
    pub link: SectionLink,
}

/// Returns whether an idle connection is alive: neither data nor an end of stream is readable. Unexpected bytes count
/// as an end.
pub fn is_alive(stream: &TcpStream) -> bool {
    stream.peek(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Returns whether each of these idle connections has ended, in their order. Uses one poll(2). After an error all
/// connections count as alive, so [`is_alive`] has to check a connection before its use.
pub fn find_ended<'a>(streams: impl Iterator<Item = &'a TcpStream>) -> Vec<bool> {
    let descriptors: Vec<_> = streams.map(AsFd::as_fd).collect();
    if descriptors.is_empty() {
        return Vec::new();
    }
    let count = descriptors.len();
    let mut poll = Poll::new(descriptors);
    let _ = poll.wait(Some(Duration::ZERO));
    (0..count).map(|index| poll.is_ready(index)).collect()
}

/// The pools of all next relays.
#[derive(Debug)]
pub struct Pools {
    inner: Arc<PoolsShared>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// State that the keeper shares with the other threads.
struct PoolsShared {
    served: RwLock<Arc<ServedHops>>,
    wake: Notify,
    ended: AtomicBool,
    counts: PoolMetrics,
    emit: Box<dyn Fn(&Event) + Send + Sync>,
}

/// The next hops of one configuration.
#[derive(Debug, Default)]
struct ServedHops {
    config: Option<Arc<Config>>,
    /// The hops of the configuration with their pools; a hop that is equal to a hop of the previous configuration keeps
    /// its pool.
    hops: Vec<(Arc<Hop>, Arc<HopPool>)>,
    groups: Vec<PoolGroup>,
}

impl Pools {
    /// Creates pools without relays. `emit` receives the events when a relay becomes unreachable or reachable again.
    #[must_use]
    pub fn new(counts: PoolMetrics, emit: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        let inner = PoolsShared {
            served: RwLock::default(),
            wake: Notify::new(),
            ended: AtomicBool::new(false),
            counts,
            emit: Box::new(emit),
        };
        Self { inner: Arc::new(inner), keeper: Mutex::default() }
    }

    /// Applies a configuration: from now on, connections are kept ready only to the relays of `config`, at most `most`
    /// to each relay.
    ///
    /// # Errors
    /// The keeper thread cannot be started.
    pub fn serve(&self, config: &Arc<Config>, most: usize) -> io::Result<()> {
        let previous = self.inner.served();
        let mut hops: Vec<(Arc<Hop>, Arc<HopPool>)> = Vec::new();
        for hop in config.relays.iter().flat_map(|relay| relay.members()) {
            let known = hops.iter().chain(&previous.hops).find(|(known, _)| known == hop);
            let pool = known.map(|(_, pool)| Arc::clone(pool));
            hops.push((Arc::clone(hop), pool.unwrap_or_else(|| Arc::new(HopPool::new(hop, &self.inner.counts)))));
        }
        let removed = previous.pools().filter(|pool| !hops.iter().any(|(_, kept)| Arc::ptr_eq(pool, kept)));
        removed.for_each(|pool| pool.set_bounds(PoolBounds::default()));
        let pool_of = |hop: &Arc<Hop>| {
            let entry = hops.iter().find(|(known, _)| Arc::ptr_eq(known, hop));
            Arc::clone(&entry.expect("invariant: every member has a pool").1)
        };
        for relay in &config.relays {
            let most = if config.may_dial(relay) { config.limits.ready_connections.min(most) } else { 0 };
            let (age, idle) = (config.timeouts.ready_age, config.timeouts.section_idle);
            relay.members().iter().for_each(|hop| pool_of(hop).set_bounds(PoolBounds { most, age, idle }));
        }
        let has_relays = config.relays.iter().any(|hop| config.may_dial(hop));
        let groups = config.relays.iter().filter_map(|relay| PoolGroup::new(relay, pool_of)).collect();
        self.inner.serve(ServedHops { config: Some(Arc::clone(config)), hops, groups });
        if has_relays { self.start_keeper() } else { Ok(()) }
    }

    fn start_keeper(&self) -> io::Result<()> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if keeper.is_none() {
            *keeper = Some(keeper::start(Arc::clone(&self.inner))?);
        }
        Ok(())
    }

    /// Returns the hops that a session of `client` dials for `hop`, in order of preference: the members of a group, or
    /// the hop itself.
    #[must_use]
    pub fn order(&self, hop: &Arc<Hop>, client: IpAddr) -> Vec<Arc<Hop>> {
        let served = self.inner.served();
        let is_same = |group: &&PoolGroup| Arc::ptr_eq(&group.hop, hop) || group.hop == *hop;
        let group = served.groups.iter().find(is_same);
        group.map_or_else(|| hop.members().to_vec(), |group| group.order(client, Instant::now()))
    }

    /// Counts a session that is about to be opened at `hop`; `None` if the configuration in force has no such hop.
    pub fn start_session(&self, hop: &Hop) -> Option<Arc<SessionLoad>> {
        self.inner.pool(hop).map(|pool| Arc::new(SessionLoad::new(pool)))
    }

    /// Takes a live connection to `hop` for a session with this encryption; `None` if no such connection is ready.
    pub fn take(&self, hop: &Hop, encrypt: bool) -> Option<IdleConnection> {
        let (connection, is_short) = self.inner.pool(hop)?.take(Instant::now(), encrypt);
        if is_short {
            self.inner.wake();
        }
        connection
    }

    /// Keeps a connection to `hop` for the next session, unless the configuration in force has no such hop.
    pub fn put_back(&self, hop: &Hop, connection: IdleConnection) {
        if let Some(pool) = self.inner.pool(hop) {
            pool.put_back(connection, Instant::now());
        }
    }

    /// Returns whether the last attempt to reach `hop` failed; for a group, whether the last attempts to all members
    /// failed. For a hop without ready connections, one session in each retry delay receives false and may try again.
    pub fn is_down(&self, hop: &Arc<Hop>) -> bool {
        let is_down = |member: &Arc<Hop>| self.inner.pool(member).is_some_and(|pool| pool.is_down(Instant::now()));
        hop.members().iter().all(is_down)
    }

    /// Records the result of an attempt by a session to reach `hop`; `failure` is `None` after a success.
    pub fn record_attempt(&self, hop: &Hop, failure: Option<&DialError>) {
        let Some(pool) = self.inner.pool(hop) else { return };
        let now = Instant::now();
        match failure {
            None => self.inner.on_success(&pool, now, now),
            // A lack of local resources is not a failure of the hop.
            Some(error) if error.cause == Cause::Exhausted => {}
            Some(error) => self.inner.on_failure(&pool, error, now),
        }
    }

    /// Closes all ready connections to `hop`, after a session found one dead.
    pub fn discard(&self, hop: &Hop) {
        if let Some(pool) = self.inner.pool(hop) {
            pool.clear();
            self.inner.wake();
        }
    }

    /// Returns the state of the pools for `ekiden status`.
    #[must_use]
    pub fn views(&self) -> Vec<PoolView> {
        let served = self.inner.served();
        let Some(config) = &served.config else { return Vec::new() };
        let relays = config.relays.iter().filter(|relay| config.may_dial(relay));
        let pools = relays.flat_map(|relay| relay.members()).filter_map(|hop| self.inner.pool(hop));
        let slow: Vec<_> = served.groups.iter().flat_map(|group| group.slowness(Instant::now())).collect();
        let is_slow = |pool: &Arc<HopPool>| slow.iter().any(|(known, is_slow)| *is_slow && Arc::ptr_eq(known, pool));
        pools.map(|pool| PoolView { slow: is_slow(&pool), ..pool.view() }).collect()
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Option<Arc<Config>> {
        self.inner.served().config.clone()
    }

    /// Closes all ready connections, and ends the keeper.
    pub fn close(&self) {
        self.inner.stop();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // An error means that the thread has panicked, so it has ended.
            let _ = keeper.join();
        }
        let served = self.inner.served();
        served.pools().for_each(|pool| pool.set_bounds(PoolBounds::default()));
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        // The keeper itself may drop the last handle, so the drop does not wait for the keeper.
        self.inner.stop();
    }
}

impl ServedHops {
    fn pools(&self) -> impl Iterator<Item = &Arc<HopPool>> {
        self.hops.iter().map(|(_, pool)| pool)
    }
}

impl PoolsShared {
    fn served(&self) -> Arc<ServedHops> {
        Arc::clone(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn serve(&self, served: ServedHops) {
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(served);
        self.wake();
    }

    fn pool(&self, hop: &Hop) -> Option<Arc<HopPool>> {
        let served = self.served();
        // Pointers are compared first: nearly every session uses a hop of the current configuration, and a comparison
        // of hops includes the computation of keys.
        let same = served.hops.iter().find(|(known, _)| std::ptr::eq(&raw const **known, hop));
        same.or_else(|| served.hops.iter().find(|(known, _)| **known == *hop)).map(|(_, pool)| Arc::clone(pool))
    }

    fn on_failure(&self, pool: &HopPool, error: &DialError, now: Instant) {
        let _reporting = pool.lock_reporting();
        if pool.on_failure(now) {
            // Ready connections may have failed together with this attempt.
            pool.remove_dead(now);
            let relay = pool.hop.name.to_string();
            (self.emit)(&Event::RelayUnreachable { relay, cause: error.cause, detail: error.remark.clone() });
            self.wake();
        }
    }

    fn on_success(&self, pool: &HopPool, started_at: Instant, now: Instant) {
        if !pool.has_failed() {
            return;
        }
        let _reporting = pool.lock_reporting();
        if let Some(duration) = pool.on_success(started_at, now) {
            (self.emit)(&Event::RelayReachable { relay: pool.hop.name.to_string(), duration });
            self.wake();
        }
    }

    fn wake(&self) {
        self.wake.notify_one();
    }

    async fn wait_woken(&self) {
        self.wake.notified().await;
    }

    fn stop(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    fn is_stopped(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

impl fmt::Debug for PoolsShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("served", &self.served).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

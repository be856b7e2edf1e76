//! The thread that fills the pools. The thread dials and performs handshakes in advance, and closes connections that
//! are too old or dead.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ekiden_proto::balance::PROBE_INTERVAL;
use ekiden_proto::cause::Cause;
use tokio::task::LocalSet;
use tokio::time::sleep_until;

use super::hop_pool::{HopPool, PendingConnection};
use super::{IdleConnection, PoolsShared};
use crate::config::Config;
use crate::dial::section::{self, OutgoingContext};
use crate::dial::{DialError, Resolver};

/// Interval of checks for dead and expired connections.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread, which ends when the pools are closed.
///
/// # Errors
/// The thread or its runtime cannot be created.
pub fn start(inner: Arc<PoolsShared>) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("keeper".to_owned());
    thread.spawn(move || LocalSet::new().block_on(&runtime, Keeper::new(inner).run()))
}

struct Keeper {
    inner: Arc<PoolsShared>,
    /// The current configuration with its resolver.
    served: Option<(Arc<Config>, Rc<Resolver>)>,
    next_check: Instant,
    /// When the members of groups are checked for due probes.
    next_probe: Instant,
}

impl Keeper {
    fn new(inner: Arc<PoolsShared>) -> Self {
        Self { inner, served: None, next_check: Instant::now(), next_probe: Instant::now() }
    }

    async fn run(mut self) {
        while !self.inner.is_stopped() {
            let next = self.run_once(Instant::now());
            tokio::select! {
                () = self.inner.wait_woken() => {}
                () = sleep_until(next.into()) => {}
            }
        }
    }

    /// Performs the work that is due. Returns the time of the next work.
    fn run_once(&mut self, now: Instant) -> Instant {
        let served = self.inner.served();
        let is_check_due = now >= self.next_check;
        if is_check_due {
            self.next_check = now + CHECK_INTERVAL;
        }
        let mut next = self.next_check;
        for pool in served.pools() {
            if is_check_due {
                pool.remove_dead(now);
            }
            for pending in pool.claim_places(now) {
                self.start_connection(pending, served.config.as_ref());
            }
            next = pool.retry_at().map_or(next, |retry| next.min(retry.max(now)));
        }
        if served.groups.is_empty() {
            return next;
        }
        if now >= self.next_probe {
            self.next_probe = now + PROBE_INTERVAL;
            for (pool, is_slow) in served.groups.iter().flat_map(|group| group.slowness(now)) {
                if let Some(pending) = pool.claim_probe(now, is_slow) {
                    self.start_connection(pending, served.config.as_ref());
                }
            }
        }
        next.min(self.next_probe)
    }

    fn start_connection(&mut self, pending: PendingConnection, config: Option<&Arc<Config>>) {
        if let Some((config, names)) = self.current_config(config) {
            tokio::task::spawn_local(make_connection(pending, config, names, Arc::clone(&self.inner)));
        }
    }

    /// Returns the current configuration, with a resolver that is kept until the configuration changes.
    fn current_config(&mut self, config: Option<&Arc<Config>>) -> Option<(Arc<Config>, Rc<Resolver>)> {
        let config = config?;
        if !self.served.as_ref().is_some_and(|(previous, _)| Arc::ptr_eq(previous, config)) {
            self.served = Some((Arc::clone(config), Rc::new(Resolver::new(&config.dns_servers))));
        }
        self.served.clone()
    }
}

/// Establishes one connection for a pool.
async fn make_connection(
    pending: PendingConnection,
    config: Arc<Config>,
    names: Rc<Resolver>,
    inner: Arc<PoolsShared>,
) {
    let pool = Arc::clone(&pending.pool);
    let started_at = Instant::now();
    let result = prepare(&pool, &config, &names).await;
    let now = Instant::now();
    match result {
        Ok(connection) => {
            pending.complete(connection, now.saturating_duration_since(started_at), now);
            inner.on_success(&pool, started_at, now);
        }
        Err(error) => {
            pending.cancel();
            inner.on_failure(&pool, &error, now);
        }
    }
    // A place is free again, so the keeper may have to start another connection.
    inner.wake();
}

async fn prepare(pool: &HopPool, config: &Config, names: &Resolver) -> Result<IdleConnection, DialError> {
    let hop = &pool.hop;
    let peering = hop.peering().expect("invariant: a pool belongs to a relay");
    let deadline = tokio::time::Instant::now() + config.timeouts.connect;
    let ticket = pool.ticket();
    let context = OutgoingContext { names, congestion: &config.congestion, marks: config.needed_marks() };
    let mut ready = section::prepare(hop, peering, ticket.as_ref(), context, deadline).await?;
    if let Some(new_ticket) = ready.resumption.take() {
        pool.set_ticket(new_ticket);
    }
    let stream = ready.stream.into_std().map_err(|_| DialError::at_hop(Cause::Exhausted, hop))?;
    Ok(IdleConnection { stream, server: ready.server, link: ready.link })
}

//! What all threads of the relay share: the log, the metrics, and the counts that limits speak of.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use ekiden_proto::event::{Closed, Event};
use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::section::{Tickets, TraceId};

use crate::admission::Admission;
use crate::choose::Choosing;
use crate::fleet::Directory;
use crate::gate::Held;
use crate::log::Log;
use crate::measure::{Book, History, Reports};
use crate::metrics::Metrics;
use crate::pool::Pools;
use crate::recent::Recent;
use crate::share::Shares;
use crate::traces::Traces;
use crate::tun::{Roll, Tunnels};
use crate::upgrade::Attempts;

/// Shared by all threads.
#[derive(Debug)]
pub struct Shared {
    /// Where events are written.
    pub log: Log,
    /// Where events are counted.
    pub metrics: Metrics,
    /// What happened lately.
    pub recent: Recent,
    next_session: AtomicU64,
    /// The places for sessions and for relays that have not opened one yet.
    pub admission: Arc<Admission>,
    /// The traces of sessions that have come from a relay and are under way.
    under_way: Mutex<HashSet<TraceId>>,
    /// What makes the next handshake of a relay shorter.
    pub tickets: Tickets,
    /// When this process began; tickets count their time from here, so that no change of the clock touches them.
    pub began: Instant,
    /// Ready connections to next relays.
    pub pools: Arc<Pools>,
    /// Who else there is.
    pub fleet: Directory,
    /// Interfaces whose rate sections share.
    pub shares: Arc<Shares>,
    /// Connections that the rules have caught.
    pub held: Held,
    /// The devices of tunnels.
    pub tunnels: Tunnels,
    /// Their lanes.
    pub lanes: Roll,
    /// What sections are like.
    pub book: Arc<Book>,
    /// Connections on which other relays say what theirs are like.
    pub reports: Reports,
    /// What was measured, by hour.
    pub history: History,
    /// Who chooses paths.
    pub choosing: Choosing,
    /// Upgrades that came to nothing.
    pub upgrades: Attempts,
    /// Sessions as OpenTelemetry has them.
    pub traces: Traces,
}

impl Shared {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        let (metrics, began) = (Metrics::new(), Instant::now());
        let book = Arc::new(Book::new(began));
        Arc::new_cyclic(|shared: &Weak<Self>| Self {
            pools: Arc::new(Pools::new(metrics.pools.clone(), emitter(shared.clone()))),
            fleet: Directory::new(shared.clone()),
            traces: Traces::new(metrics.traces.clone()),
            log,
            metrics,
            recent: Recent::default(),
            next_session: AtomicU64::new(1),
            admission: Arc::default(),
            under_way: Mutex::default(),
            tickets: Tickets::generate(),
            began,
            shares: Arc::default(),
            held: Held::default(),
            tunnels: Tunnels::default(),
            lanes: Roll::default(),
            reports: Reports::default(),
            history: History::default(),
            upgrades: Attempts::default(),
            choosing: Choosing::new(Arc::clone(&book)),
            book,
        })
    }

    /// Tells everyone who listens.
    pub fn emit(&self, event: &Event) {
        self.metrics.observe(event);
        self.recent.note(event);
        self.log.write(event);
    }

    /// Tells them how a session has ended; `sender` is the relay that had sent it.
    pub fn has_ended(&self, closed: Closed, sender: Option<PublicKey>) {
        let event = Event::Closed(Box::new(closed));
        self.emit(&event);
        if let Event::Closed(closed) = event {
            self.traces.ended(closed, sender);
        }
    }

    /// A number that no other session of this run has.
    pub fn next_session(&self) -> u64 {
        self.next_session.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a session that goes from relay to relay; false when it is here already, and so has come back.
    pub fn begin_trace(&self, trace: TraceId) -> bool {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(trace)
    }

    /// Forgets it.
    pub fn end_trace(&self, trace: &TraceId) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(trace);
    }
}

/// For parts of what is shared: to hold it whole would keep it for ever.
fn emitter(shared: Weak<Shared>) -> impl Fn(&Event) {
    move |event| {
        if let Some(shared) = shared.upgrade() {
            shared.emit(event);
        }
    }
}

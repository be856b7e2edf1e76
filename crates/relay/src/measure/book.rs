//! Where estimates gather: those of this relay by what is at the other end, and those that other relays have told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::Bounded;
use ekiden_proto::path::estimate::{Estimate, Sample};
use ekiden_proto::path::figures::Figures;
use ekiden_proto::path::prefix::Prefix;
use serde::Serialize;

use super::Place;
use super::history::Expected;

/// Most sections of our own: what was not used for longest goes.
const MOST_PLACES: usize = 1 << 16;

/// Most sections that one other relay may tell of.
pub(super) const MOST_TOLD: usize = 1 << 14;

/// Most networks that other relays are asked for.
const MOST_WANTED: usize = 1 << 12;

/// Most relays that are remembered to have used a section.
const MOST_USERS: usize = 32;

/// Bytes of sessions on a section make it busy for so long, if they are so many.
const BUSY: Duration = Duration::from_secs(10);
const MANY: u64 = 16 * 1024;

/// All that is known of sections; shared by all threads behind a short lock.
#[derive(Debug)]
pub struct Book {
    began: Instant,
    pages: Mutex<Pages>,
}

#[derive(Debug)]
pub(super) struct Pages {
    pub own: Bounded<Place, Entry>,
    /// By who has told.
    pub told: HashMap<PublicKey, Bounded<Place, Both>>,
    /// When a session of ours went there last.
    pub wanted: Bounded<Prefix, Duration>,
    /// The targets at which a relay is to look, and when it last looked at one of a network.
    pub looks: HashMap<PublicKey, Vec<SocketAddr>>,
    pub looked: Bounded<(PublicKey, Prefix), Duration>,
    /// What this hour is usually like.
    pub expected: Expected,
}

/// A direction of a section, as seen from one end of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Sending,
    Receiving,
}

/// What was measured of one section.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub both: Both,
    /// Whose sessions went there, where relays have sent them.
    pub users: Vec<PublicKey>,
    /// When sessions moved many bytes there last.
    busy: Option<Duration>,
    /// When somebody looked at it last, here or there.
    looked: Option<Duration>,
}

/// Both directions of a section, as seen from one end of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Both {
    /// Data from here to there.
    pub sending: Estimate,
    /// Data from there to here.
    pub receiving: Estimate,
    /// Whether connections are made from here to there; otherwise only from there to here.
    pub dialled: bool,
}

/// One section in `/api/paths`.
#[derive(Debug, Clone, Serialize)]
pub struct PlaceView {
    /// What is at its other end: the key of a relay, the address of a proxy, or a network of targets.
    pub to: String,
    /// The relay that has told of it; none for what we have measured ourselves.
    pub told_by: Option<PublicKey>,
    /// Data that we send.
    pub sending: EstimateView,
    /// Data that we receive.
    pub receiving: EstimateView,
    /// Whether sessions move bytes there at the moment.
    pub busy: bool,
}

/// One direction of it.
#[derive(Debug, Clone, Serialize)]
pub struct EstimateView {
    /// Round-trip time.
    pub rtt_seconds: Option<f64>,
    /// Share of segments lost.
    pub loss: Option<f64>,
    /// Bytes per second that it carries.
    pub rate: Option<f64>,
    /// Bytes per second that it carries at least.
    pub at_least: Option<f64>,
    /// Bytes that may be under way.
    pub window: Option<u64>,
    /// Segments behind all this.
    pub segments: f64,
    /// How sure it is, 0 to 1.
    pub confidence: f64,
    /// Time since the newest sample.
    pub age_seconds: f64,
}

impl Book {
    /// An empty one.
    #[must_use]
    pub fn new(began: Instant) -> Self {
        let pages = Pages {
            own: Bounded::new(MOST_PLACES),
            told: HashMap::new(),
            wanted: Bounded::new(MOST_WANTED),
            looks: HashMap::new(),
            looked: Bounded::new(MOST_PLACES),
            expected: Expected::default(),
        };
        Self { began, pages: Mutex::new(pages) }
    }

    /// The time by which estimates count.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a connection that we have made to `place` has shown, sending and receiving, while it carried `bytes` of
    /// a session. `user` is the relay whose session it was.
    pub fn note(&self, place: Place, user: Option<PublicKey>, samples: (&Sample, &Sample), bytes: u64) {
        let now = self.now();
        let mut pages = self.pages();
        let entry = pages.seen(place, samples, now);
        entry.both.dialled = true;
        entry.moved(bytes, now);
        match (place, user) {
            (Place::Targets(prefix), None) => pages.wanted.insert(prefix, now),
            (_, Some(user)) => entry.is_used_by(user),
            _ => {}
        }
    }

    /// The same for a connection that a relay has made to us.
    pub(super) fn note_caller(&self, caller: Place, samples: (&Sample, &Sample), bytes: u64) {
        let now = self.now();
        self.pages().seen(caller, samples, now).moved(bytes, now);
    }

    /// Takes in what a look at `place` has shown, by a connection that we have `dialled`, or been called by.
    pub(super) fn note_look(&self, place: Place, dialled: bool, samples: (&Sample, &Sample)) {
        let now = self.now();
        let mut pages = self.pages();
        let entry = pages.seen(place, samples, now);
        entry.both.dialled |= dialled;
        entry.looked = Some(now);
    }

    /// Whether nobody has looked at it for so long, and no session tells.
    #[must_use]
    pub(super) fn needs_look(&self, place: Place, after: Duration) -> bool {
        let now = self.now();
        let pages = self.pages();
        let lately = |at: Duration| now.saturating_sub(at) < after;
        pages.own.peek(&place).is_none_or(|entry| !entry.is_busy(now) && !entry.looked.is_some_and(lately))
    }

    /// Whether sessions move bytes there, so that nobody needs to look.
    #[must_use]
    pub fn is_busy(&self, place: Place) -> bool {
        let now = self.now();
        self.pages().own.peek(&place).is_some_and(|entry| entry.is_busy(now))
    }

    /// Our own estimates that have a sample of after `since`.
    pub(super) fn news(&self, since: Duration) -> Vec<(Place, Both)> {
        let pages = self.pages();
        let news = pages.own.iter().filter(|(_, entry)| entry.both.at() > since);
        news.map(|(place, entry)| (*place, entry.both)).collect()
    }

    /// From now on this is usual.
    pub(super) fn expects(&self, expected: Expected) {
        self.pages().expected = expected;
    }

    /// All of it, for `/api/paths`.
    #[must_use]
    pub fn estimates(&self) -> Vec<PlaceView> {
        let now = self.now();
        let pages = self.pages();
        let own = pages.own.iter().map(|(place, entry)| PlaceView {
            busy: entry.is_busy(now),
            ..PlaceView::of(*place, None, &entry.both, now)
        });
        let told = pages.told.iter().flat_map(|(relay, told)| {
            told.iter().map(move |(place, both)| PlaceView::of(*place, Some(*relay), both, now))
        });
        own.chain(told).collect()
    }
}

impl Pages {
    fn seen(&mut self, place: Place, (out, back): (&Sample, &Sample), now: Duration) -> &mut Entry {
        let entry = self.own.entry(place, Entry::default);
        entry.both.sending.note(out, now);
        entry.both.receiving.note(back, now);
        entry
    }
}

impl Entry {
    fn moved(&mut self, bytes: u64, now: Duration) {
        if bytes >= MANY {
            self.busy = Some(now);
        }
    }

    fn is_used_by(&mut self, user: PublicKey) {
        if self.users.contains(&user) {
            return;
        }
        if self.users.len() >= MOST_USERS {
            self.users.remove(0);
        }
        self.users.push(user);
    }

    fn is_busy(&self, now: Duration) -> bool {
        self.busy.is_some_and(|at| now.saturating_sub(at) < BUSY)
    }
}

impl Both {
    /// The time of the newest sample; none is zero.
    pub fn at(&self) -> Duration {
        self.sending.at().max(self.receiving.at())
    }

    /// The round trip is the same both ways.
    pub fn rtt(&self) -> Option<Duration> {
        self.sending.rtt().or(self.receiving.rtt())
    }
}

impl PlaceView {
    fn of(place: Place, told_by: Option<PublicKey>, both: &Both, now: Duration) -> Self {
        let (sending, receiving) = (EstimateView::of(&both.sending, now), EstimateView::of(&both.receiving, now));
        Self { to: place.to_string(), told_by, sending, receiving, busy: false }
    }
}

impl EstimateView {
    pub(super) fn of(estimate: &Estimate, now: Duration) -> Self {
        let Figures { rtt, loss, rate, at_least, window, segments } = estimate.figures();
        Self {
            rtt_seconds: rtt.map(|rtt| rtt.as_secs_f64()),
            loss,
            rate,
            at_least,
            window,
            segments,
            confidence: estimate.confidence(now),
            age_seconds: estimate.age(now).as_secs_f64(),
        }
    }
}

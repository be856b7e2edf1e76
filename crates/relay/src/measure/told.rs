//! What relays tell each other: which of our estimates somebody may hear, and what becomes of those we hear.
//!
//! Every relay that calls us may know our neighbours. Of a network of targets only those hear whose own sessions have
//! gone there through us: nobody learns where others go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::Bounded;
use ekiden_proto::path::estimate::{Estimate, Sample};
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::wire::section::report::{self, Ask, Entry, Subject};

use super::book::{Both, MOST_TOLD, Pages};
use super::{Book, Place};

/// How long a network is asked for that no session goes to any more.
const WANTED: Duration = Duration::from_secs(600);

/// The shortest time between two looks at one network from one relay: each is a connection to a target.
const LOOKED: Duration = Duration::from_secs(300);

/// Most looks that wait for one relay.
const MOST_LOOKS: usize = 16;

/// Most relays that may tell.
const MOST_TELLERS: usize = 1024;

/// What somebody has been told on one connection, so that only news is told again.
#[derive(Debug, Default)]
pub struct Heard(HashMap<Subject, Duration>);

impl Book {
    /// Answers a question: what is new since it was last `heard`, and concerns the one who asks first.
    #[must_use]
    pub fn answer(&self, ask: &Ask, asker: PublicKey, heard: &mut Heard) -> Vec<Entry> {
        let now = self.now();
        let pages = self.pages();
        let neighbours = pages.own.iter().filter(|_| ask.neighbours).filter_map(|(place, entry)| match place {
            Place::Relay(key) => Some((subject_of(*key, &entry.both), entry.both)),
            Place::Proxy(_) | Place::Targets(_) => None,
        });
        let targets = ask.prefixes.iter().filter_map(|prefix| {
            let entry = pages.own.peek(&Place::Targets(*prefix))?;
            entry.users.contains(&asker).then_some((Subject::Targets(*prefix), entry.both))
        });
        let mut news: Vec<_> =
            neighbours.chain(targets).filter(|(subject, both)| heard.is_news(subject, both)).collect();
        let of_asker = [Subject::Relay(asker), Subject::Caller(asker)];
        news.sort_by_key(|(subject, _)| !of_asker.contains(subject));
        news.truncate(report::MOST);
        news.into_iter().map(|(subject, both)| heard.tell(subject, &both, now)).collect()
    }

    /// What is known of the sections to other relays, for everybody.
    #[must_use]
    pub fn neighbours(&self) -> Vec<Entry> {
        let (now, pages) = (self.now(), self.pages());
        let entry = |(place, entry): (&Place, &super::book::Entry)| match place {
            Place::Relay(key) => Some(told(subject_of(*key, &entry.both), &entry.both, now)),
            Place::Proxy(_) | Place::Targets(_) => None,
        };
        pages.own.iter().filter_map(entry).collect()
    }

    /// Takes in what another relay has told. Networks that nobody asked for are left out.
    pub fn hear(&self, teller: PublicKey, entries: &[Entry]) {
        let now = self.now();
        let mut pages = self.pages();
        for entry in entries {
            let place = match entry.subject {
                Subject::Relay(key) | Subject::Caller(key) => Place::Relay(key),
                Subject::Targets(prefix) if pages.wanted.peek(&prefix).is_some() => Place::Targets(prefix),
                Subject::Targets(_) => continue,
            };
            let estimate = |told: &report::Told| Estimate::told(&told.figures, told.age, now);
            let dialled = !matches!(entry.subject, Subject::Caller(_));
            let both = Both { sending: estimate(&entry.sending), receiving: estimate(&entry.receiving), dialled };
            if let Some(places) = pages.told_by(teller) {
                places.insert(place, both);
            }
        }
    }

    /// Whether this relay has told us what it has measured later than that.
    #[must_use]
    pub fn is_told_by(&self, teller: &PublicKey, since: Duration) -> bool {
        let pages = self.pages();
        pages.told.get(teller).is_some_and(|told| told.iter().any(|(_, both)| both.at() > since))
    }

    /// Notes that a session goes to this network, so that other relays are asked for it.
    pub fn wants(&self, prefix: Prefix) {
        let now = self.now();
        self.pages().wanted.insert(prefix, now);
    }

    /// Some of the networks to ask for, from the place on where the last question ended, and where this one does.
    #[must_use]
    pub fn wanted(&self, from: Option<Prefix>) -> (Vec<Prefix>, Option<Prefix>) {
        let now = self.now();
        let pages = self.pages();
        let lately = pages.wanted.iter().filter(|(_, at)| now.saturating_sub(**at) < WANTED);
        let mut wanted: Vec<_> = lately.map(|(prefix, _)| *prefix).filter(|prefix| from < Some(*prefix)).collect();
        wanted.sort_unstable();
        wanted.truncate(report::MOST);
        let end = wanted.last().copied().filter(|_| wanted.len() == report::MOST);
        (wanted, end)
    }

    /// Has `relay` look at a target soon: it connects to it, and ends the connection. False where it has just looked at
    /// one of the same network, or has enough to do.
    pub fn look(&self, relay: PublicKey, target: SocketAddr) -> bool {
        let now = self.now();
        let mut pages = self.pages();
        let key = (relay, Prefix::from(target.ip()));
        if pages.looked.peek(&key).is_some_and(|at| now.saturating_sub(*at) < LOOKED) {
            return false;
        }
        let looks = pages.looks.entry(relay).or_default();
        if looks.len() >= MOST_LOOKS {
            return false;
        }
        looks.push(target);
        pages.looked.insert(key, now);
        true
    }

    /// The targets that `relay` is to look at.
    #[must_use]
    pub fn take_looks(&self, relay: &PublicKey) -> Vec<SocketAddr> {
        self.pages().looks.remove(relay).unwrap_or_default()
    }

    /// Notes how long `relay` took to connect to a target, as it says.
    pub fn looked(&self, relay: PublicKey, target: SocketAddr, took: Duration) {
        let now = self.now();
        let sample = Sample { rtt: Some(took), segments: 2, ..Sample::default() };
        let mut pages = self.pages();
        let Some(places) = pages.told_by(relay) else { return };
        let both = places.entry(Place::Targets(target.ip().into()), Both::default);
        both.sending.note(&sample, now);
        both.receiving.note(&sample, now);
    }
}

impl Pages {
    fn told_by(&mut self, teller: PublicKey) -> Option<&mut Bounded<Place, Both>> {
        let is_known = self.told.contains_key(&teller);
        let told = (is_known || self.told.len() < MOST_TELLERS).then(|| self.told.entry(teller));
        told.map(|told| told.or_insert_with(|| Bounded::new(MOST_TOLD)))
    }
}

impl Heard {
    fn is_news(&self, subject: &Subject, both: &Both) -> bool {
        both.at() > Duration::ZERO && self.0.get(subject).is_none_or(|at| both.at() > *at)
    }

    fn tell(&mut self, subject: Subject, both: &Both, now: Duration) -> Entry {
        self.0.insert(subject, both.at());
        told(subject, both, now)
    }
}

fn subject_of(key: PublicKey, both: &Both) -> Subject {
    if both.dialled { Subject::Relay(key) } else { Subject::Caller(key) }
}

fn told(subject: Subject, both: &Both, now: Duration) -> Entry {
    let told = |estimate: &Estimate| report::Told { figures: estimate.figures(), age: estimate.age(now) };
    Entry { subject, sending: told(&both.sending), receiving: told(&both.receiving) }
}

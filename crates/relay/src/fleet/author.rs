//! Our own entry: what is in it, and when it is worth writing again.

use std::time::{Duration, Instant};

use ekiden_proto::fleet::{Entry, MOST_NEIGHBOURS, Neighbour, SigningKey, State};

use super::directory::{Inner, Wish, since_1970, unix};
use crate::config::Fleet;

/// What has to change of a measurement before it is told again: this share of it.
const WORTH_TELLING: f64 = 0.1;

/// Writes what we say of ourselves. It outlives connections to etcd, so that numbers only grow.
#[derive(Debug)]
pub struct Author {
    signing: SigningKey,
    number: u64,
    told: Vec<Neighbour>,
    /// When the last entry was written.
    at: Option<Instant>,
}

impl Author {
    /// Nothing has been said so far.
    #[must_use]
    pub fn new(fleet: &Fleet) -> Self {
        Self { signing: SigningKey::of_relay(&fleet.own), number: 0, told: Vec::new(), at: None }
    }

    /// The next entry; none where nobody has certified us.
    pub fn write(&mut self, fleet: &Fleet, inner: &Inner, wish: Wish) -> Option<String> {
        let issued = fleet.certificate.clone()?;
        let used = inner.roster().as_ref().and_then(|roster| roster.number(&issued.certificate.key));
        // A clock makes numbers that grow over restarts even where no file has kept the last one; in milliseconds, for a
        // restart may take less than a second.
        let least = u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX);
        self.number = least.max(self.number + 1).max(used.map_or(0, |used| used.saturating_add(1)));
        self.told = inner.neighbours();
        self.told.truncate(MOST_NEIGHBOURS);
        self.at = Some(Instant::now());
        let state = if wish == Wish::Serve { State::Serving } else { State::Draining };
        let entry = Entry { issued, number: self.number, at: unix(), state, neighbours: self.told.clone() };
        Some(entry.sign(&self.signing))
    }

    /// Whether measurements are to be told now: they have changed, and the last entry is old enough.
    #[must_use]
    pub fn has_news(&self, inner: &Inner, every: Duration) -> bool {
        if self.at.is_some_and(|at| at.elapsed() < every) {
            return false;
        }
        let now = inner.neighbours();
        let known = |neighbour: &Neighbour| self.told.iter().find(|told| told.key == neighbour.key);
        let news = |neighbour| known(neighbour).is_none_or(|told| neighbour.differs(told, WORTH_TELLING));
        now.len().min(MOST_NEIGHBOURS) != self.told.len() || now.iter().take(MOST_NEIGHBOURS).any(news)
    }
}

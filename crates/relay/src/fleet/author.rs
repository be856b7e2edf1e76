//! Our own entry: what is in it, and when it is worth writing again.

use std::time::{Duration, Instant};

use ekiden_proto::fleet::{Entry, MOST_NEIGHBOURS, Neighbour, SigningKey, State};

use super::directory::{Inner, Wish, since_1970, unix};
use crate::config::Fleet;

/// What has to change of a measurement before it is told again: this share of it.
const WORTH_TELLING: f64 = 0.1;

/// So many numbers we may have used before that no file has kept, for it is written once a second, and at the end only
/// where the disk is quick.
const UNKEPT: u64 = 1000;

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
        let step = if self.number == 0 { UNKEPT } else { 1 };
        self.number = least.max(self.number + 1).max(used.map_or(0, |used| used.saturating_add(step)));
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use ekiden_proto::key::PublicKey;

    use super::super::Directory;
    use super::*;

    #[test]
    fn news_wait_until_the_last_entry_is_old_enough() {
        let neighbour =
            Neighbour { key: PublicKey([1; 32]), rtt: Duration::from_millis(9), loss_ppm: 0, rate: 0, age: 0 };
        // It has told of a neighbour, and knows of none now.
        let author =
            Author { signing: SigningKey::generate(), number: 1, told: vec![neighbour], at: Some(Instant::now()) };
        let directory = Directory::new(Weak::new());
        for (every, news) in [(Duration::from_secs(3600), false), (Duration::ZERO, true)] {
            assert_eq!(author.has_news(&directory.inner, every), news, "{every:?}");
        }
        assert!(!Author { told: Vec::new(), ..author }.has_news(&directory.inner, Duration::ZERO));
    }
}

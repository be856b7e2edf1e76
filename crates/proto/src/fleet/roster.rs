//! What is known of a fleet as time goes on: who is in it, and how large the numbers were that each has used.
//!
//! What the shared place takes away is not gone at once: it may have been restored from an old copy, or somebody may have
//! emptied it. A relay that has not said that it leaves stays known for a while, and whoever dials notices if it is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Entry, Refused, State, VerifyKey};
use crate::key::PublicKey;

/// The relays of a fleet. Times are since an origin of the caller's, and seconds since 1970 where certificates ask.
#[derive(Debug)]
pub struct Roster {
    fleet: VerifyKey,
    /// How long a relay stays known that is no longer listed.
    keep: Duration,
    members: BTreeMap<PublicKey, Member>,
    /// The largest number of each relay, and until when its certificate is valid.
    numbers: BTreeMap<PublicKey, (u64, u64)>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What it says of itself.
    pub entry: Entry,
    /// The same, as it was signed.
    pub text: String,
    /// When this came here.
    pub seen: Duration,
    /// Since when it is no longer listed.
    pub missing: Option<Duration>,
}

/// What an entry has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it was known.
    None,
    /// What it has measured.
    Measurements,
    /// Who is there: it has come, moved, or begun to drain.
    Members,
}

impl Roster {
    /// Nobody is known.
    #[must_use]
    pub fn new(fleet: VerifyKey, keep: Duration) -> Self {
        Self { fleet, keep, members: BTreeMap::new(), numbers: BTreeMap::new() }
    }

    /// Takes what stands at the place of the relay `key`.
    ///
    /// # Errors
    /// Why it is not believed; what was known stays.
    pub fn accept(&mut self, key: &PublicKey, bytes: &[u8], now: Duration, unix: u64) -> Result<Change, Refused> {
        if let Some(member) = self.members.get_mut(key)
            && member.text.as_bytes() == bytes
        {
            let was_missing = member.missing.take().is_some();
            return Ok(if was_missing { Change::Measurements } else { Change::None });
        }
        let known = self.members.get(key);
        let entry = Entry::read(bytes, &self.fleet, known.map(|member| &member.entry.issued))?;
        let certificate = &entry.issued.certificate;
        if certificate.key != *key {
            return Err(Refused::Misplaced);
        }
        certificate.is_valid(unix)?;
        if let Some((known, _)) = self.numbers.get(key)
            && entry.number <= *known
        {
            return Err(Refused::Replayed { found: entry.number, known: *known });
        }
        let same = |member: &Member| member.entry.issued == entry.issued && member.entry.state == entry.state;
        let change = if known.is_some_and(same) { Change::Measurements } else { Change::Members };
        self.numbers.insert(*key, (entry.number, certificate.not_after));
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.members.insert(*key, Member { entry, text, seen: now, missing: None });
        Ok(change)
    }

    /// Notes that a relay has used `number`: an entry of it with that or a smaller one is an old one.
    pub fn forbid(&mut self, key: PublicKey, number: u64, not_after: u64) {
        let (known, valid) = self.numbers.entry(key).or_insert((number, not_after));
        (*known, *valid) = (number.max(*known), not_after.max(*valid));
    }

    /// Notes that a relay is no longer listed; true when it is gone by that, because it had said that it leaves.
    pub fn unlisted(&mut self, key: &PublicKey, now: Duration) -> bool {
        let Some(member) = self.members.get_mut(key) else { return false };
        member.missing.get_or_insert(now);
        let left = member.entry.state == State::Draining;
        if left {
            self.members.remove(key);
        }
        left
    }

    /// Notes that these are all that are listed; true when somebody is gone by that.
    pub fn listed(&mut self, keys: &BTreeSet<PublicKey>, now: Duration) -> bool {
        let missing: Vec<_> = self.members.keys().filter(|key| !keys.contains(key)).copied().collect();
        // Every one of them, not up to the first that is gone.
        missing.iter().filter(|key| self.unlisted(key, now)).count() > 0
    }

    /// Forgets who was missing for too long, or whose certificate has ended; those who are gone by that, and why.
    pub fn forget(&mut self, now: Duration, unix: u64) -> Vec<(Member, Option<Refused>)> {
        let over = |member: &Member| {
            let ended = member.entry.issued.certificate.is_valid(unix).err();
            let missed = member.missing.is_some_and(|since| now.saturating_sub(since) >= self.keep);
            (ended.is_some() || missed).then_some(ended)
        };
        let gone: Vec<_> = self.members.iter().filter_map(|(key, member)| Some((*key, over(member)?))).collect();
        // An entry of a certificate that has ended is refused in any case.
        self.numbers.retain(|_, (_, not_after)| not_after.saturating_add(2 * super::TOLERANCE.as_secs()) >= unix);
        gone.into_iter().filter_map(|(key, why)| Some((self.members.remove(&key)?, why))).collect()
    }

    /// All that are known, by their keys.
    pub fn members(&self) -> impl Iterator<Item = (&PublicKey, &Member)> {
        self.members.iter()
    }

    /// One of them.
    #[must_use]
    pub fn member(&self, key: &PublicKey) -> Option<&Member> {
        self.members.get(key)
    }

    /// The largest number that a relay has used.
    #[must_use]
    pub fn number(&self, key: &PublicKey) -> Option<u64> {
        self.numbers.get(key).map(|(number, _)| *number)
    }

    /// The largest number of each relay, and until when its certificate is valid: also of those that are gone.
    pub fn numbers(&self) -> impl Iterator<Item = (&PublicKey, u64, u64)> {
        self.numbers.iter().map(|(key, (number, not_after))| (key, *number, *not_after))
    }
}

#[cfg(test)]
mod tests;

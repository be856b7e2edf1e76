//! The members of a fleet over time, and the largest sequence number of each.
//!
//! A member that disappears from the store is not removed at once: the store may have been restored from an old copy,
//! or emptied. A relay that has not announced its departure stays a member for a while; failed connections show whether
//! it is down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{EntryError, FleetEntry, RelayState, VerifyKey};
use crate::key::PublicKey;

/// The members of a fleet. Times are measured from an origin of the caller's choice, or in seconds since 1970 where
/// they are compared with certificates.
#[derive(Debug)]
pub struct MemberList {
    fleet: VerifyKey,
    /// Time after which a member is removed that is no longer listed in the store.
    missing_timeout: Duration,
    members: BTreeMap<PublicKey, FleetMember>,
    /// The largest sequence number of each relay, and the end of its certificate's validity.
    sequences: BTreeMap<PublicKey, (u64, u64)>,
}

/// A relay of the fleet, with its latest entry.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetMember {
    /// The entry of the member.
    pub entry: FleetEntry,
    /// The text of the entry with its signature, as stored.
    pub signed_text: String,
    /// Time at which this entry was received.
    pub received_at: Duration,
    /// Time since which the relay is no longer listed in the store; `None` while it is listed.
    pub missing_since: Option<Duration>,
}

/// The kind of change that an entry causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipChange {
    /// The entry was known.
    Unchanged,
    /// Only the measurements of the entry have changed.
    Measurements,
    /// Members: a relay was added, has moved, or drains.
    Members,
}

impl MemberList {
    /// Creates a fleet without members.
    #[must_use]
    pub fn new(fleet: VerifyKey, missing_timeout: Duration) -> Self {
        Self { fleet, missing_timeout, members: BTreeMap::new(), sequences: BTreeMap::new() }
    }

    /// Changes the time after which a member is removed that is no longer listed in the store.
    pub fn set_missing_timeout(&mut self, timeout: Duration) {
        self.missing_timeout = timeout;
    }

    /// Applies an entry that the store has under the public key `key` of a relay.
    ///
    /// # Errors
    /// The check that failed; the former entry stays in use.
    pub fn apply_entry(
        &mut self,
        key: &PublicKey,
        bytes: &[u8],
        now: Duration,
        unix: u64,
    ) -> Result<MembershipChange, EntryError> {
        if let Some(member) = self.members.get_mut(key)
            && member.signed_text.as_bytes() == bytes
        {
            let was_missing = member.missing_since.take().is_some();
            return Ok(if was_missing { MembershipChange::Measurements } else { MembershipChange::Unchanged });
        }
        let previous = self.members.get(key);
        let entry =
            FleetEntry::parse_and_verify(bytes, &self.fleet, previous.map(|member| &member.entry.signed_certificate))?;
        let certificate = &entry.signed_certificate.certificate;
        if certificate.key != *key {
            return Err(EntryError::KeyMismatch);
        }
        certificate.check_validity(unix)?;
        if let Some((known, _)) = self.sequences.get(key)
            && entry.sequence <= *known
        {
            return Err(EntryError::Replayed { found: entry.sequence, known: *known });
        }
        let is_same_membership = |member: &FleetMember| {
            member.entry.signed_certificate == entry.signed_certificate && member.entry.state == entry.state
        };
        let change = if previous.is_some_and(is_same_membership) {
            MembershipChange::Measurements
        } else {
            MembershipChange::Members
        };
        self.sequences.insert(*key, (entry.sequence, certificate.not_after));
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.members.insert(*key, FleetMember { entry, signed_text: text, received_at: now, missing_since: None });
        Ok(change)
    }

    /// Records that a relay has used the sequence number `number`: entries with this or a smaller number are rejected
    /// as replays.
    pub fn record_sequence(&mut self, key: PublicKey, number: u64, not_after: u64) {
        let (last_sequence, valid_until) = self.sequences.entry(key).or_insert((number, not_after));
        (*last_sequence, *valid_until) = (number.max(*last_sequence), not_after.max(*valid_until));
    }

    /// Records that a relay is no longer listed in the store; returns true if this removes the member, because it was
    /// draining.
    pub fn mark_missing(&mut self, key: &PublicKey, now: Duration) -> bool {
        let Some(member) = self.members.get_mut(key) else { return false };
        member.missing_since.get_or_insert(now);
        let is_draining = member.entry.state == RelayState::Draining;
        if is_draining {
            self.members.remove(key);
        }
        is_draining
    }

    /// Compares the members with the complete list of stored entries; returns true if this removes a member.
    pub fn reconcile_listed(&mut self, keys: &BTreeSet<PublicKey>, now: Duration) -> bool {
        let missing: Vec<_> = self.members.keys().filter(|key| !keys.contains(key)).copied().collect();
        // `count` instead of `any`, so that every missing member is marked.
        missing.iter().filter(|key| self.mark_missing(key, now)).count() > 0
    }

    /// Removes members that were missing for too long, or whose certificate has expired; returns them with the reason.
    pub fn remove_expired(&mut self, now: Duration, unix: u64) -> Vec<(FleetMember, Option<EntryError>)> {
        let removal_reason = |member: &FleetMember| {
            let validity_error = member.entry.signed_certificate.certificate.check_validity(unix).err();
            let is_missing =
                member.missing_since.is_some_and(|since| now.saturating_sub(since) >= self.missing_timeout);
            (validity_error.is_some() || is_missing).then_some(validity_error)
        };
        let removals: Vec<_> =
            self.members.iter().filter_map(|(key, member)| Some((*key, removal_reason(member)?))).collect();
        // Entries with an expired certificate are rejected in any case, so their numbers are not needed.
        self.sequences
            .retain(|_, (_, not_after)| not_after.saturating_add(2 * super::MAX_CLOCK_SKEW.as_secs()) >= unix);
        removals.into_iter().filter_map(|(key, reason)| Some((self.members.remove(&key)?, reason))).collect()
    }

    /// All members, ordered by public key.
    pub fn members(&self) -> impl Iterator<Item = (&PublicKey, &FleetMember)> {
        self.members.iter()
    }

    /// The member with this public key.
    #[must_use]
    pub fn member(&self, key: &PublicKey) -> Option<&FleetMember> {
        self.members.get(key)
    }

    /// The largest sequence number of a relay; `None` for an unknown relay.
    #[must_use]
    pub fn sequence(&self, key: &PublicKey) -> Option<u64> {
        self.sequences.get(key).map(|(number, _)| *number)
    }

    /// The largest sequence number of each relay, and the end of its certificate's validity, including relays that have
    /// left.
    pub fn sequences(&self) -> impl Iterator<Item = (&PublicKey, u64, u64)> {
        self.sequences.iter().map(|(key, (number, not_after))| (key, *number, *not_after))
    }
}

#[cfg(test)]
mod tests;

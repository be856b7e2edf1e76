//! The members of a fleet over time, and the highest entry number of each.
//!
//! A member that disappears from the store is not removed at once: the store may have been restored from an old copy or
//! emptied. A relay that has not announced its end stays a member for a while, and dialling it shows whether it is
//! dead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{EntryError, FleetEntry, RelayState, VerifyKey};
use crate::key::PublicKey;

/// The relays of a fleet. Times are since an origin of the caller's, and seconds since 1970 where certificates ask.
#[derive(Debug)]
pub struct MemberList {
    fleet: VerifyKey,
    /// How long a relay stays known that is no longer listed.
    missing_timeout: Duration,
    members: BTreeMap<PublicKey, FleetMember>,
    /// The largest number of each relay, and until when its certificate is valid.
    sequences: BTreeMap<PublicKey, (u64, u64)>,
}

/// A relay of the fleet, with its latest entry.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetMember {
    /// The entry of the member.
    pub entry: FleetEntry,
    /// The signed text of the entry.
    pub signed_text: String,
    /// When this came here.
    pub received_at: Duration,
    /// Since when it is no longer listed.
    pub missing_since: Option<Duration>,
}

/// The kind of change by an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipChange {
    /// Nothing: it was known.
    Unchanged,
    /// Only the measurements of the entry have changed.
    Measurements,
    /// Members: a relay was added, has moved, or drains.
    Members,
}

impl MemberList {
    /// A fleet without members.
    #[must_use]
    pub fn new(fleet: VerifyKey, missing_timeout: Duration) -> Self {
        Self { fleet, missing_timeout, members: BTreeMap::new(), sequences: BTreeMap::new() }
    }

    /// Applies the stored entry of the relay `key`.
    ///
    /// # Errors
    /// The check that failed; the former entry stays.
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

    /// Notes that a relay has used `number`: an entry of it with that or a smaller one is an old one.
    pub fn record_sequence(&mut self, key: PublicKey, number: u64, not_after: u64) {
        let (last_sequence, valid_until) = self.sequences.entry(key).or_insert((number, not_after));
        (*last_sequence, *valid_until) = (number.max(*last_sequence), not_after.max(*valid_until));
    }

    /// Notes that a relay is no longer listed; true when it is gone by that, because it had said that it leaves.
    pub fn mark_missing(&mut self, key: &PublicKey, now: Duration) -> bool {
        let Some(member) = self.members.get_mut(key) else { return false };
        member.missing_since.get_or_insert(now);
        let is_draining = member.entry.state == RelayState::Draining;
        if is_draining {
            self.members.remove(key);
        }
        is_draining
    }

    /// Records the complete list of stored entries; true when it removes a member.
    pub fn reconcile_listed(&mut self, keys: &BTreeSet<PublicKey>, now: Duration) -> bool {
        let missing: Vec<_> = self.members.keys().filter(|key| !keys.contains(key)).copied().collect();
        // Every one of them, not up to the first that is gone.
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
        // An entry of a certificate that has ended is refused in any case.
        self.sequences
            .retain(|_, (_, not_after)| not_after.saturating_add(2 * super::MAX_CLOCK_SKEW.as_secs()) >= unix);
        removals.into_iter().filter_map(|(key, reason)| Some((self.members.remove(&key)?, reason))).collect()
    }

    /// All that are known, by their keys.
    pub fn members(&self) -> impl Iterator<Item = (&PublicKey, &FleetMember)> {
        self.members.iter()
    }

    /// The member with this public key.
    #[must_use]
    pub fn member(&self, key: &PublicKey) -> Option<&FleetMember> {
        self.members.get(key)
    }

    /// The largest number that a relay has used.
    #[must_use]
    pub fn sequence(&self, key: &PublicKey) -> Option<u64> {
        self.sequences.get(key).map(|(number, _)| *number)
    }

    /// The largest number of each relay, and until when its certificate is valid: also of those that are gone.
    pub fn sequences(&self) -> impl Iterator<Item = (&PublicKey, u64, u64)> {
        self.sequences.iter().map(|(key, (number, not_after))| (key, *number, *not_after))
    }
}

#[cfg(test)]
mod tests;

//! Rejected entries and clock skew: each reason is reported once, and entries rejected for clock skew are rechecked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_proto::fleet::{EntryError, FleetMember, MAX_CLOCK_SKEW};
use ekiden_proto::key::PublicKey;

use super::directory::FleetShared;

/// Limit of relays in each collection: a writer to etcd can claim to be many relays.
const MAX_RELAYS: usize = 1000;

/// Reported rejections, and relays to recheck.
#[derive(Debug, Default)]
pub struct Rejections {
    /// Reasons reported for each relay.
    reported: Mutex<BTreeMap<PublicKey, BTreeSet<String>>>,
    /// Relays whose certificate is not valid at this time, but may become valid as clocks advance and are corrected.
    rechecks: Mutex<BTreeSet<PublicKey>>,
}

impl FleetShared {
    /// Records that the entry of `relay` is rejected, and reports each reason once.
    pub fn reject(&self, relay: &PublicKey, error: EntryError) {
        if matches!(error, EntryError::NotYetValid(_) | EntryError::Expired(_)) {
            self.schedule_recheck(*relay);
        }
        let reason = format!("{:?}", std::mem::discriminant(&error));
        self.warn_once(relay, reason, || format!("fleet: the entry of {relay} is rejected: {error}"));
    }

    /// Schedules a recheck of `relay`, whose validity depends on a clock.
    pub fn schedule_recheck(&self, relay: PublicKey) {
        let mut waiting = self.rechecks();
        if waiting.len() < MAX_RELAYS {
            waiting.insert(relay);
        }
    }

    /// Removes and returns the relays to recheck. Relays that are still rejected are scheduled again.
    pub fn take_rechecks(&self) -> BTreeSet<PublicKey> {
        std::mem::take(&mut *self.rechecks())
    }

    fn rechecks(&self) -> MutexGuard<'_, BTreeSet<PublicKey>> {
        self.rejections.rechecks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Warns about members whose clock differs from the clock of this host. Only the validity of certificates depends
    /// on clocks.
    pub fn check_clock(&self, member: Option<&FleetMember>, unix: u64) {
        let Some(FleetMember { entry, .. }) = member else { return };
        let certificate = &entry.signed_certificate.certificate;
        if certificate.is_within_clock_skew(unix) {
            self.warn_once(&certificate.key, "edge".to_owned(), || {
                format!(
                    "fleet: the certificate of {} is not valid by the clock of this host, but within the tolerance of \
                     5 minutes",
                    certificate.name
                )
            });
        } else if entry.created_at.abs_diff(unix) > MAX_CLOCK_SKEW.as_secs() {
            let (apart, name) = (entry.created_at.abs_diff(unix), &certificate.name);
            let word = if entry.created_at > unix { "ahead of" } else { "behind" };
            self.warn_once(&certificate.key, format!("clock {word}"), || {
                format!(
                    "fleet: the clock of {name} is {apart} s {word} the clock of this host: set the clocks, because \
                     certificates expire"
                )
            });
        }
    }

    fn warn_once(&self, relay: &PublicKey, reason: String, message: impl FnOnce() -> String) {
        let mut reported = self.rejections.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if reported.len() >= MAX_RELAYS && !reported.contains_key(relay)
            || !reported.entry(*relay).or_default().insert(reason)
        {
            return;
        }
        drop(reported);
        self.warn(message());
    }
}

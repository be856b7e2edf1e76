//! Who is not believed, and whose clock is off: told once for each reason, and looked at again where a clock is the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_proto::fleet::{EntryError, FleetMember, MAX_CLOCK_SKEW};
use ekiden_proto::key::PublicKey;

use super::directory::FleetShared;

/// Most relays of whom anything is noted here: whoever writes to etcd can claim to be many.
const MAX_RELAYS: usize = 1000;

/// What has been told, and who may be believed later.
#[derive(Debug, Default)]
pub struct Rejections {
    /// What was told of whom.
    reported: Mutex<BTreeMap<PublicKey, BTreeSet<String>>>,
    /// Whose certificate is not valid now. Clocks go on, and are set right.
    rechecks: Mutex<BTreeSet<PublicKey>>,
}

impl FleetShared {
    /// Notes that what stands at the place of `relay` is not believed, and tells the operator, once for each reason.
    pub fn reject(&self, relay: &PublicKey, why: EntryError) {
        if matches!(why, EntryError::NotYetValid(_) | EntryError::Expired(_)) {
            self.schedule_recheck(*relay);
        }
        let word = format!("{:?}", std::mem::discriminant(&why));
        self.warn_once(relay, word, || format!("fleet: the entry of {relay} is not believed: {why}"));
    }

    /// Notes that it depends on a clock whether `relay` is believed.
    pub fn schedule_recheck(&self, relay: PublicKey) {
        let mut waiting = self.rechecks();
        if waiting.len() < MAX_RELAYS {
            waiting.insert(relay);
        }
    }

    /// Those for whom it does. They are noted again if nothing has changed.
    pub fn take_rechecks(&self) -> BTreeSet<PublicKey> {
        std::mem::take(&mut *self.rechecks())
    }

    fn rechecks(&self) -> MutexGuard<'_, BTreeSet<PublicKey>> {
        self.rejections.rechecks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the operator whose clock is far from ours. Only the validity of certificates depends on it.
    pub fn check_clock(&self, member: Option<&FleetMember>, unix: u64) {
        let Some(FleetMember { entry, .. }) = member else { return };
        let certificate = &entry.signed_certificate.certificate;
        if certificate.is_within_clock_skew(unix) {
            self.warn_once(&certificate.key, "edge".to_owned(), || {
                format!(
                    "fleet: the certificate of {} is not valid by our clock; some minutes are let pass",
                    certificate.name
                )
            });
        } else if entry.created_at.abs_diff(unix) > MAX_CLOCK_SKEW.as_secs() {
            let (apart, name) = (entry.created_at.abs_diff(unix), &certificate.name);
            let word = if entry.created_at > unix { "ahead of" } else { "behind" };
            self.warn_once(&certificate.key, format!("clock {word}"), || {
                format!("fleet: the clock of {name} is {apart} s {word} ours: set them (certificates have an end)")
            });
        }
    }

    fn warn_once(&self, relay: &PublicKey, word: String, message: impl FnOnce() -> String) {
        let mut told = self.rejections.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MAX_RELAYS && !told.contains_key(relay) || !told.entry(*relay).or_default().insert(word) {
            return;
        }
        drop(told);
        self.warn(message());
    }
}

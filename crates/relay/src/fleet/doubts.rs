//! Who is not believed, and whose clock is off: told once for each reason, and looked at again where a clock is the reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_proto::fleet::{Member, Refused, TOLERANCE};
use ekiden_proto::key::PublicKey;

use super::directory::Inner;

/// Most relays of whom anything is noted here: whoever writes to etcd can claim to be many.
const MOST: usize = 1000;

/// What has been told, and who may be believed later.
#[derive(Debug, Default)]
pub struct Doubts {
    /// What was told of whom.
    told: Mutex<BTreeMap<PublicKey, BTreeSet<String>>>,
    /// Whose certificate is not valid now. Clocks go on, and are set right.
    waiting: Mutex<BTreeSet<PublicKey>>,
}

impl Inner {
    /// Notes that what stands at the place of `relay` is not believed, and tells the operator, once for each reason.
    pub fn doubt(&self, relay: &PublicKey, why: Refused) {
        if matches!(why, Refused::Early(_) | Refused::Expired(_)) {
            self.look_again_at(*relay);
        }
        let word = format!("{:?}", std::mem::discriminant(&why));
        self.once(relay, word, || format!("fleet: the entry of {relay} is not believed: {why}"));
    }

    /// Notes that it depends on a clock whether `relay` is believed.
    pub fn look_again_at(&self, relay: PublicKey) {
        let mut waiting = self.waiting();
        if waiting.len() < MOST {
            waiting.insert(relay);
        }
    }

    /// Those for whom it does. They are noted again if nothing has changed.
    pub fn take_waiting(&self) -> BTreeSet<PublicKey> {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeSet<PublicKey>> {
        self.doubts.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the operator whose clock is far from ours. Only the validity of certificates depends on it.
    pub fn look_at_clock(&self, member: Option<&Member>, unix: u64) {
        let Some(Member { entry, .. }) = member else { return };
        let certificate = &entry.issued.certificate;
        if certificate.is_at_the_edge(unix) {
            self.once(&certificate.key, "edge".to_owned(), || {
                format!(
                    "fleet: the certificate of {} is not valid by our clock; some minutes are let pass",
                    certificate.name
                )
            });
        } else if entry.at.abs_diff(unix) > TOLERANCE.as_secs() {
            let (apart, name) = (entry.at.abs_diff(unix), &certificate.name);
            let word = if entry.at > unix { "ahead of" } else { "behind" };
            self.once(&certificate.key, format!("clock {word}"), || {
                format!("fleet: the clock of {name} is {apart} s {word} ours: set them (certificates have an end)")
            });
        }
    }

    fn once(&self, relay: &PublicKey, word: String, message: impl FnOnce() -> String) {
        let mut told = self.doubts.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= MOST && !told.contains_key(relay) || !told.entry(*relay).or_default().insert(word) {
            return;
        }
        drop(told);
        self.warn(message());
    }
}

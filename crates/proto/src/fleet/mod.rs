//! A fleet: relays that find each other through a shared store, which does not have to be trusted.
//!
//! Trust has one root, the **fleet key** (Ed25519, RFC 8032). It signs a [`Certificate`] for each relay, once; write
//! access to the store without such a signature does not suffice to add a relay. A relay publishes a [`FleetEntry`]:
//! its certificate, whether it drains, and its measurements, signed by a key that only that relay has. Each entry has a
//! larger number than the one before, which prevents replays; [`MemberList`] remembers the numbers.
//!
//! Every signed text has one canonical form: `cat` shows the signed bytes, and they are equal everywhere. A certificate
//! names its fleet by the fleet's key, so it is not valid in another fleet.

mod certificate;
mod entry;
mod roster;
mod signing;

pub use certificate::{Certificate, CertificateRequest, SignedCertificate};
pub use entry::{FleetEntry, MAX_ENTRY_BYTES, MAX_NEIGHBOURS, Neighbour, RelayState};
pub use roster::{FleetMember, MemberList, MembershipChange};
pub use signing::{Signature, SigningKey, SigningKeyError, VerifyKey};

use std::time::Duration;

/// Tolerated clock skew between writer and reader: the validity of a certificate begins this much earlier and ends this
/// much later.
pub const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5 * 60);

/// The reason for which an entry or a certificate is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry is larger than [`MAX_ENTRY_BYTES`].
    #[error("larger than {MAX_ENTRY_BYTES} bytes")]
    TooLarge,
    /// The text is not in canonical form; the expected part is given.
    #[error("malformed: expected {0}")]
    Malformed(&'static str),
    /// The certificate belongs to another fleet.
    #[error("certificate of another fleet")]
    WrongFleet,
    /// The certificate is not signed by the fleet key.
    #[error("certificate not signed by the fleet key")]
    BadCertificateSignature,
    /// The entry is not signed by the key in its certificate.
    #[error("entry not signed by the key in its certificate")]
    BadEntrySignature,
    /// The entry is stored under the key of another relay.
    #[error("entry stored under the key of another relay")]
    KeyMismatch,
    /// The certificate becomes valid only in this many seconds.
    #[error("certificate not valid for another {0} s: check the clocks of this host and of the signer")]
    NotYetValid(u64),
    /// The certificate expired this many seconds ago.
    #[error("certificate expired {0} s ago: sign a new certificate with `ekiden fleet sign`")]
    Expired(u64),
    /// An entry with the same or a larger sequence number was accepted before.
    #[error("older than an accepted entry (number {found} after {known})")]
    Replayed {
        /// The sequence number of the entry.
        found: u64,
        /// The largest sequence number accepted so far.
        known: u64,
    },
}

//! OPEN and its answer: the plaintext of the first record each way.

use std::fmt;
use std::time::Duration;

use crate::addr::{ClientAddr, Target};
use crate::cause::Cause;
use crate::key::PublicKey;
use crate::wire::WireError;

/// Most relays that a path may still have.
pub const MOST_HOPS: u8 = 16;

/// Names one session on all relays it goes through.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// The beginning of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Whether the client was told "connected" already.
    pub early: bool,
    /// Whether the session's bytes are in records, here and on the sections that follow.
    pub encrypt: bool,
    /// Through how many relays more it may go.
    pub hops_left: u8,
    /// Its name on all relays.
    pub trace: TraceId,
    /// Whose session it is.
    pub client: ClientAddr,
    /// The relays that follow, in order.
    pub path: Vec<PublicKey>,
    /// Where the last of them goes.
    pub target: Target,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The way to the target stands, or why not.
    pub outcome: Result<(), Failure>,
    /// From OPEN to answer at each relay, the nearest first; whole microseconds, at most an hour.
    pub times: Vec<Duration>,
}

/// Why not, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The true cause.
    pub cause: Cause,
    /// The relay that found out: 0 for the one that answers, 1 for the next, ...
    pub relay: u8,
    /// Whether it speaks of the next hop rather than of the target.
    pub of_hop: bool,
}

impl Open {
    /// The plaintext.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        unimplemented!()
    }

    /// Reads the plaintext.
    ///
    /// # Errors
    /// It is none.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        let _ = plaintext;
        unimplemented!()
    }
}

impl Answer {
    /// The plaintext.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        unimplemented!()
    }

    /// Reads the plaintext. A cause of a later version is [`Cause::HopFailed`].
    ///
    /// # Errors
    /// It is none.
    pub fn read(plaintext: &[u8]) -> Result<Self, WireError> {
        let _ = plaintext;
        unimplemented!()
    }
}

impl TraceId {
    /// A new one, by chance.
    #[must_use]
    pub fn generate() -> Self {
        unimplemented!()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

serialize_as_text!(TraceId);

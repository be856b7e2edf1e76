//! The first frame each way: which versions its sender speaks, and a handshake message or a refusal.

use crate::wire::{Parsed, WireError};

/// The versions of the protocol that somebody speaks, all from the oldest to the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// The oldest; a hello is in its format.
    pub oldest: u8,
    /// The newest.
    pub newest: u8,
}

impl Versions {
    /// What this program speaks.
    pub const OURS: Self = Self { oldest: 1, newest: 1 };

    /// The newest that both speak.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u8> {
        let _ = other;
        unimplemented!()
    }
}

/// Why a relay does not want a connection. It is not authenticated: a hint for the operator, nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No version that both speak.
    #[error("it speaks versions {} to {} of the section protocol", .0.oldest, .0.newest)]
    Version(Versions),
    /// The hello was not made for this relay's key.
    #[error("it has another key than the one configured here")]
    WrongKey,
    /// Our own key is not among its peers.
    #[error("it does not know our key")]
    UnknownPeer,
}

/// The first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// What its sender speaks.
    pub versions: Versions,
    /// A handshake message, or why there is none.
    pub message: Result<Vec<u8>, Refusal>,
}

impl Hello {
    /// Bytes of the part that has a fixed length.
    pub const HEADER: usize = 10;

    /// How many bytes follow a header.
    ///
    /// # Errors
    /// It is none: the peer speaks another protocol.
    pub fn rest(header: &[u8; Self::HEADER]) -> Result<usize, WireError> {
        let _ = header;
        unimplemented!()
    }

    /// Reads a whole hello.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for anything else.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        let _ = bytes;
        unimplemented!()
    }

    /// The bytes of it.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        unimplemented!()
    }
}

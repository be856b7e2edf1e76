//! The handshake: Noise_IK_25519_ChaChaPoly_BLAKE2s, by the crate `snow`. The initiator knows whom it calls, and says who
//! it is under encryption; both have proved it when each has heard one message.

use super::hello::{Hello, Refusal, Versions};
use super::record::RecordKey;
use crate::key::{PrivateKey, PublicKey};
use crate::wire::WireError;

/// The side that dials.
pub struct Initiator {}

/// The side that was dialled.
pub struct Responder {}

/// What both sides have when the handshake is done: a key for each direction, as this side sees it.
#[derive(Debug)]
pub struct Transport {
    /// For what we send.
    pub seal: RecordKey,
    /// For what we receive.
    pub open: RecordKey,
    /// The version both speak.
    pub version: u8,
}

/// Why a handshake came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The other side said so.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// What it sent proves nothing.
    #[error("the handshake failed: {0}")]
    Wire(#[from] WireError),
}

impl Initiator {
    /// Begins a handshake with `peer`; the bytes are to be sent.
    #[must_use]
    pub fn begin(own: &PrivateKey, peer: &PublicKey, versions: Versions) -> (Self, Vec<u8>) {
        let _ = (own, peer, versions);
        unimplemented!()
    }

    /// Ends it with what came back.
    ///
    /// # Errors
    /// The other side refused, or is not who it should be.
    pub fn finish(self, answer: &Hello) -> Result<Transport, HandshakeError> {
        let _ = answer;
        unimplemented!()
    }
}

impl Responder {
    /// Reads the initiator's hello, and who it says it is. It is proved only when its first record can be opened.
    ///
    /// # Errors
    /// What to answer it: [`refusal`] makes the bytes.
    pub fn read(own: &PrivateKey, hello: &Hello, versions: Versions) -> Result<(Self, PublicKey), Refusal> {
        let _ = (own, hello, versions);
        unimplemented!()
    }

    /// Accepts it; the bytes are to be sent.
    #[must_use]
    pub fn accept(self) -> (Transport, Vec<u8>) {
        unimplemented!()
    }
}

/// The bytes of a refusal.
#[must_use]
pub fn refusal(versions: Versions, why: Refusal) -> Vec<u8> {
    Hello { versions, message: Err(why) }.write()
}

//! The keys of relays: Curve25519 key pairs, written in base64 like WireGuard's. A peer *is* its public key.

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

/// Bytes of a key.
pub const LENGTH: usize = 32;

/// Who a relay is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; LENGTH]);

/// What proves it. Never printed; wiped when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; LENGTH]>);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of 32 bytes in base64, 44 characters, as `ekiden keygen` prints it")]
pub struct KeyError;

impl PrivateKey {
    /// A new one, from the system's randomness.
    #[must_use]
    pub fn generate() -> Self {
        unimplemented!()
    }

    /// Reads the private key in the text of a key file: what `ekiden keygen` prints, or the key alone.
    ///
    /// # Errors
    /// There is none in it, or more than one.
    pub fn from_file(text: &str) -> Result<Self, KeyError> {
        let _ = text;
        unimplemented!()
    }

    /// Its other half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        unimplemented!()
    }

    /// The key as a key file holds it.
    #[must_use]
    pub fn text(&self) -> Zeroizing<String> {
        unimplemented!()
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; LENGTH] {
        &self.0
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let _ = text;
        unimplemented!()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        unimplemented!()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(...)")
    }
}

serialize_as_text!(PublicKey);

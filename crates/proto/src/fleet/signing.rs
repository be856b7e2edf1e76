//! Ed25519 signatures (RFC 8032, crate `ring`), and parsing of signed text: lines `name: value` in a fixed order,
//! without omissions or additions.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use zeroize::Zeroizing;

use super::EntryError;
use crate::key::PrivateKey;

const KEY_LENGTH: usize = 32;

/// Length of a signature, in bytes.
const SIGNATURE_LENGTH: usize = 64;

/// An Ed25519 signing key. Never printed; its seed is zeroized on drop.
pub struct SigningKey {
    seed: Zeroizing<[u8; KEY_LENGTH]>,
    pair: Ed25519KeyPair,
}

/// The public key that verifies signatures of a [`SigningKey`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifyKey(pub [u8; KEY_LENGTH]);

/// An Ed25519 signature (RFC 8032).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; SIGNATURE_LENGTH]);

/// The text is not a valid key or signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a fleet key of 32 bytes in base64, 44 characters, as `ekiden fleet keygen` prints it")]
pub struct SigningKeyError;

impl SigningKey {
    /// Generates a key from the system's random numbers.
    ///
    /// # Panics
    /// The system has no source of random numbers.
    #[must_use]
    pub fn generate() -> Self {
        let mut seed = Zeroizing::new([0; KEY_LENGTH]);
        SystemRandom::new().fill(&mut *seed).expect("the system has no randomness");
        Self::from_seed(seed)
    }

    /// Derives the key with which a relay signs its entries from the relay's own key (HKDF, RFC 5869), so that there is
    /// no second key file to keep. Neither key reveals the other.
    #[must_use]
    pub fn derive_for_relay(key: &PrivateKey) -> Self {
        let mut seed = Zeroizing::new([0; KEY_LENGTH]);
        let secret = Salt::new(HKDF_SHA256, b"ekiden fleet").extract(key.as_bytes());
        let filled = secret.expand(&[b"signing key of a relay, 1"], SeedLength).and_then(|made| made.fill(&mut *seed));
        filled.expect("invariant: HKDF has 32 bytes");
        Self::from_seed(seed)
    }

    /// Parses a key file, as [`SigningKey::to_key_file`] writes it.
    ///
    /// # Errors
    /// The text has no private key, or a public key that does not match the private key.
    pub fn from_file(text: &str) -> Result<Self, SigningKeyError> {
        let find = |name| text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
        let seed = find(PRIVATE_LABEL).and_then(decode::<KEY_LENGTH>).ok_or(SigningKeyError)?;
        let key = Self::from_seed(Zeroizing::new(seed));
        match find(PUBLIC_LABEL) {
            Some(public) if public.parse() != Ok(key.verify_key()) => Err(SigningKeyError),
            _ => Ok(key),
        }
    }

    /// The text of a key file with this key.
    #[must_use]
    pub fn to_key_file(&self) -> Zeroizing<String> {
        let seed = Zeroizing::new(STANDARD.encode(*self.seed));
        Zeroizing::new(format!("{PRIVATE_LABEL} {}\n{PUBLIC_LABEL} {}\n", seed.as_str(), self.verify_key()))
    }

    /// The public key of this signing key.
    #[must_use]
    pub fn verify_key(&self) -> VerifyKey {
        VerifyKey(self.pair.public_key().as_ref().try_into().expect("invariant: keys of this curve have 32 bytes"))
    }

    /// Signs `text`, which begins with its type, so that a signature is valid for one type of text only.
    #[must_use]
    pub fn sign(&self, text: &str) -> Signature {
        let made = self.pair.sign(text.as_bytes());
        Signature(made.as_ref().try_into().expect("invariant: signatures of this curve have 64 bytes"))
    }

    fn from_seed(seed: Zeroizing<[u8; KEY_LENGTH]>) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&*seed).expect("invariant: every 32 bytes are a seed");
        Self { seed, pair }
    }
}

const PRIVATE_LABEL: &str = "fleet-private-key:";
const PUBLIC_LABEL: &str = "fleet-public-key:";

/// The output length for HKDF: that of a seed.
struct SeedLength;

impl KeyType for SeedLength {
    fn len(&self) -> usize {
        KEY_LENGTH
    }
}

impl VerifyKey {
    /// Whether `signature` is a valid signature of `text` by the private key of this public key.
    #[must_use]
    pub fn has_signed(&self, text: &str, signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(text.as_bytes(), &signature.0).is_ok()
    }
}

/// Decodes exactly `N` bytes in canonical base64.
fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl FromStr for VerifyKey {
    type Err = SigningKeyError;
    fn from_str(text: &str) -> Result<Self, SigningKeyError> {
        decode(text).map(Self).ok_or(SigningKeyError)
    }
}

impl FromStr for Signature {
    type Err = SigningKeyError;
    fn from_str(text: &str) -> Result<Self, SigningKeyError> {
        decode(text).map(Self).ok_or(SigningKeyError)
    }
}

impl fmt::Display for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(&self.0, &STANDARD).fmt(f)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(&self.0, &STANDARD).fmt(f)
    }
}

impl fmt::Debug for VerifyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(...)")
    }
}

serialize_as_text!(VerifyKey);

/// The lines of a signed text that are not parsed yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineReader<'a>(pub &'a str);

impl<'a> LineReader<'a> {
    /// Consumes the next line, which must be `first`.
    pub fn expect_heading(&mut self, first: &'static str) -> Result<(), EntryError> {
        if self.next_line() == Some(first) { Ok(()) } else { Err(EntryError::Malformed(first)) }
    }

    /// Consumes the next line, which must be `name: value`, and parses the value.
    pub fn read_value<T: FromStr>(&mut self, name: &'static str) -> Result<T, EntryError> {
        self.read_optional(name)?.ok_or(EntryError::Malformed(name))
    }

    /// Consumes the next line if it is `name: value`, and parses the value.
    pub fn read_optional<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, EntryError> {
        let before = *self;
        let value = self.next_line().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
        match value {
            Some(value) => value.parse().map(Some).map_err(|_| EntryError::Malformed(name)),
            None => {
                *self = before;
                Ok(None)
            }
        }
    }

    fn next_line(&mut self) -> Option<&'a str> {
        let (line, rest) = self.0.split_once('\n')?;
        self.0 = rest;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_reads_back_and_malformed_files_are_rejected() {
        let key = SigningKey::generate();
        assert_eq!(SigningKey::from_file(&key.to_key_file()).unwrap().verify_key(), key.verify_key());
        let other =
            format!("{}{PUBLIC_LABEL} {}\n", &key.to_key_file().lines().next().unwrap_or_default(), key.verify_key());
        assert!(SigningKey::from_file(&other).is_err(), "{PRIVATE_LABEL} and more on one line");
        let swapped =
            key.to_key_file().replace(&key.verify_key().to_string(), &SigningKey::generate().verify_key().to_string());
        assert_eq!(SigningKey::from_file(&swapped).err(), Some(SigningKeyError));
        assert_eq!(SigningKey::from_file("").err(), Some(SigningKeyError));
    }

    #[test]
    fn derived_signing_key_is_deterministic_and_distinct() {
        let (one, other) = (PrivateKey::generate(), PrivateKey::generate());
        let signing = SigningKey::derive_for_relay(&one);
        assert_eq!(signing.verify_key(), SigningKey::derive_for_relay(&one).verify_key());
        assert_ne!(signing.verify_key(), SigningKey::derive_for_relay(&other).verify_key());
        assert_ne!(signing.verify_key().0, one.public_key().0);
        assert_ne!(*signing.seed, *one.as_bytes());
    }

    #[test]
    fn signature_is_bound_to_its_text_and_key() {
        let (key, other) = (SigningKey::generate(), SigningKey::generate());
        let signature = key.sign("text");
        assert!(key.verify_key().has_signed("text", &signature));
        assert!(!key.verify_key().has_signed("texts", &signature));
        assert!(!other.verify_key().has_signed("text", &signature));
        assert_eq!(signature.to_string().parse(), Ok(signature));
    }

    #[test]
    fn debug_output_hides_the_signing_key() {
        assert_eq!(format!("{:?}", SigningKey::generate()), "SigningKey(...)");
    }
}

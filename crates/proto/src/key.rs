//! The keys of relays: Curve25519 key pairs in base64, as in WireGuard. A peer is identified by its public key.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Dh;
use zeroize::Zeroizing;

/// Length of a key, in bytes.
pub const KEY_LENGTH: usize = 32;

/// The public key of a relay, which identifies it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; KEY_LENGTH]);

/// A private key. Never printed; zeroized on drop.
#[derive(Clone)]
pub struct PrivateKey(Zeroizing<[u8; KEY_LENGTH]>);

/// The text is not a valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key of 32 bytes in base64, 44 characters, as `ekiden keygen` prints it")]
pub struct KeyError;

impl PrivateKey {
    /// Generates a key from the system's random numbers.
    ///
    /// # Panics
    /// The system has no source of random numbers.
    #[must_use]
    pub fn generate() -> Self {
        let mut curve = curve();
        let mut rng = DefaultResolver.resolve_rng().expect("invariant: snow was built with its random source");
        curve.generate(&mut *rng).expect("the system has no randomness");
        Self(Zeroizing::new(to_array(curve.privkey())))
    }

    /// Parses a key file: the output of `ekiden keygen`, or a key alone.
    ///
    /// # Errors
    /// The text has no private key, several, or a public key that does not match.
    pub fn from_file(text: &str) -> Result<Self, KeyError> {
        let mut private = None;
        let mut public = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let earlier = match line.split_once(':') {
                None => private.replace(line),
                Some(("private-key", key)) => private.replace(key.trim()),
                Some(("public-key", key)) => public.replace(key.trim()),
                Some(_) => return Err(KeyError),
            };
            if earlier.is_some() {
                return Err(KeyError);
            }
        }
        let private = Self(decode(private.ok_or(KeyError)?)?);
        match public {
            Some(public) if public.parse() != Ok(private.public_key()) => Err(KeyError),
            _ => Ok(private),
        }
    }

    /// The public half of the key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let mut curve = curve();
        curve.set(&*self.0);
        PublicKey(to_array(curve.pubkey()))
    }

    /// The key in base64, as in a key file.
    #[must_use]
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(STANDARD.encode(self.as_bytes()))
    }

    /// The raw bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; KEY_LENGTH] {
        &self.0
    }
}

/// X25519 (RFC 7748), as used by the handshake.
fn curve() -> Box<dyn Dh> {
    DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("invariant: snow was built with this curve")
}

fn to_array(key: &[u8]) -> [u8; KEY_LENGTH] {
    key.try_into().expect("invariant: keys of this curve are 32 bytes long")
}

/// Decodes exactly one key in canonical base64.
fn decode(text: &str) -> Result<Zeroizing<[u8; KEY_LENGTH]>, KeyError> {
    // The decoder needs room for whole groups of three bytes.
    let mut bytes = Zeroizing::new([0; KEY_LENGTH.next_multiple_of(3)]);
    let length = STANDARD.decode_slice(text, &mut *bytes).map_err(|_| KeyError)?;
    if length == KEY_LENGTH { Ok(Zeroizing::new(to_array(&bytes[..KEY_LENGTH]))) } else { Err(KeyError) }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let key = Self(*decode(text)?);
        if key.is_contributory() { Ok(key) } else { Err(KeyError) }
    }
}

impl PublicKey {
    /// Whether only the owner of the private key can use this key. With a point of small order, such as 32 zeros, every
    /// exchange yields zeros (RFC 7748, 6.1): a placeholder in a list of peers would admit every client.
    fn is_contributory(&self) -> bool {
        let mut curve = curve();
        curve.set(&[1; KEY_LENGTH]);
        let mut shared = [0; KEY_LENGTH];
        curve.dh(&self.0, &mut shared).is_ok() && shared != [0; KEY_LENGTH]
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Base64Display::new(&self.0, &STANDARD).fmt(f)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Alice's keys in RFC 7748, 6.1.
    const PRIVATE: &str = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=";
    const PUBLIC: &str = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=";

    #[test]
    fn public_key_matches_the_vector_of_rfc_7748() {
        let key = PrivateKey::from_file(PRIVATE).unwrap();
        assert_eq!(key.public_key().to_string(), PUBLIC);
        assert_eq!(PUBLIC.parse(), Ok(key.public_key()));
        assert_eq!(key.to_base64().as_str(), PRIVATE);
        assert_eq!(key.as_bytes()[..2], [0x77, 0x07]);
    }

    #[test]
    fn generated_keys_differ_and_read_back() {
        let (one, other) = (PrivateKey::generate(), PrivateKey::generate());
        assert_ne!(one.public_key(), other.public_key());
        assert_eq!(PrivateKey::from_file(&one.to_base64()).unwrap().public_key(), one.public_key());
    }

    #[test]
    fn key_files_hold_one_private_key() {
        for text in [
            format!("private-key: {PRIVATE}\npublic-key: {PUBLIC}\n"),
            format!("public-key: {PUBLIC}\r\nprivate-key: {PRIVATE}\r\n"),
            format!("# of the relay in Osaka\n\n  private-key:{PRIVATE}"),
            format!("{PRIVATE}\n"),
            format!("{PRIVATE}\npublic-key: {PUBLIC}\n"),
        ] {
            assert_eq!(PrivateKey::from_file(&text).unwrap().public_key().to_string(), PUBLIC, "{text:?}");
        }
        for text in [
            String::new(),
            format!("public-key: {PUBLIC}\n"),
            format!("{PRIVATE}\n{PRIVATE}\n"),
            format!("private-key: {PRIVATE}\n{PRIVATE}\n"),
            format!("private-key: {PRIVATE}\npublic-key: {PRIVATE}\n"),
            format!("private-key: {PRIVATE}\npublic-key: {PUBLIC}\npublic-key: {PUBLIC}\n"),
            format!("secret-key: {PRIVATE}\n"),
            format!("private-key: {PRIVATE} of osaka\n"),
        ] {
            assert_eq!(PrivateKey::from_file(&text).err(), Some(KeyError), "{text:?}");
        }
    }

    #[test]
    fn only_32_bytes_in_base64_are_a_key() {
        for text in [
            "",
            "=",
            &PUBLIC[..43],
            &PUBLIC[..40],
            &format!("{PUBLIC}="),
            &format!(" {PUBLIC}"),
            &PUBLIC.replace('/', "_"),
            // The last character has two unused bits, which must be zero.
            &PUBLIC.replace("mo=", "mp="),
            &STANDARD.encode([7; 31]),
            &STANDARD.encode([7; 33]),
            &STANDARD.encode([7; 64]),
        ] {
            assert_eq!(text.parse::<PublicKey>(), Err(KeyError), "{text:?}");
        }
    }

    #[test]
    fn low_order_public_keys_are_rejected() {
        // Zero, one, and p - 1 for the prime p = 2^255 - 19.
        let mut last = [0xff; KEY_LENGTH];
        (last[0], last[31]) = (0xec, 0x7f);
        let mut one = [0; KEY_LENGTH];
        one[0] = 1;
        for key in [[0; KEY_LENGTH], one, last] {
            assert_eq!(PublicKey(key).to_string().parse::<PublicKey>(), Err(KeyError), "{key:?}");
        }
    }

    #[test]
    fn debug_output_hides_the_private_key() {
        let shown = format!("{:?}", PrivateKey::from_file(PRIVATE).unwrap());
        assert_eq!(shown, "PrivateKey(...)");
    }
}

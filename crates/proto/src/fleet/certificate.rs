//! Certificates of fleet members: a text about one relay, signed by the fleet key.

use std::fmt;
use std::str::FromStr;

use super::signing::LineReader;
use super::signing::{Signature, SigningKey, VerifyKey};
use super::{EntryError, MAX_CLOCK_SKEW};
use crate::addr::Target;
use crate::key::{PrivateKey, PublicKey};

const HEADING: &str = "ekiden fleet certificate 1";

/// Longest name of a relay, in bytes.
const MAX_RELAY_NAME: usize = 64;

/// The content that the fleet key signs for a relay. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The public key of the fleet that the relay belongs to.
    pub fleet: VerifyKey,
    /// The name of the relay in the fleet.
    pub name: String,
    /// The address of the relay's section listener.
    pub address: Target,
    /// The public key of the relay.
    pub key: PublicKey,
    /// The key that verifies the relay's entries.
    pub verify_key: VerifyKey,
    /// The start of the validity, in seconds since the Unix epoch.
    pub not_before: u64,
    /// The end of the validity, in seconds since the Unix epoch.
    pub not_after: u64,
}

/// A [`Certificate`] with its signature, not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCertificate {
    /// The certificate that the signature covers.
    pub certificate: Certificate,
    signature: Signature,
}

/// The request that a relay sends to the holder of the fleet key: `KEY.SIGNING-KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The public key of the relay.
    pub key: PublicKey,
    /// The key that verifies the relay's entries.
    pub verify_key: VerifyKey,
}

impl Certificate {
    /// Signs the certificate with the fleet key. The field `fleet` is set to the public key of `key`.
    #[must_use]
    pub fn sign(mut self, key: &SigningKey) -> SignedCertificate {
        self.fleet = key.verify_key();
        let signature = key.sign(&self.signed_text());
        SignedCertificate { certificate: self, signature }
    }

    /// The text that the signature covers.
    fn signed_text(&self) -> String {
        let Self { fleet, name, address, key, verify_key: signing, not_before, not_after } = self;
        format!(
            "{HEADING}\nfleet: {fleet}\nname: {name}\naddress: {address}\nkey: {key}\nsigning-key: {signing}\n\
             not-before: {not_before}\nnot-after: {not_after}\n"
        )
    }

    /// Checks that the certificate is valid at `unix`, with a tolerance of [`MAX_CLOCK_SKEW`].
    ///
    /// # Errors
    /// The time until the certificate becomes valid, or since it expired.
    pub fn check_validity(&self, unix: u64) -> Result<(), EntryError> {
        let tolerance = MAX_CLOCK_SKEW.as_secs();
        if unix.saturating_add(tolerance) < self.not_before {
            return Err(EntryError::NotYetValid(self.not_before - unix));
        }
        if unix > self.not_after.saturating_add(tolerance) {
            return Err(EntryError::Expired(unix - self.not_after));
        }
        Ok(())
    }

    /// Whether `unix` is outside the validity, so that the certificate is accepted only because of the tolerated clock
    /// skew.
    #[must_use]
    pub fn is_within_clock_skew(&self, unix: u64) -> bool {
        !(self.not_before..=self.not_after).contains(&unix)
    }
}

impl SignedCertificate {
    /// Parses the text of a certificate file.
    ///
    /// # Errors
    /// The text is not in canonical form.
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        let mut lines = LineReader(text);
        let issued = Self::parse_from(&mut lines)?;
        if lines.0.is_empty() { Ok(issued) } else { Err(EntryError::Malformed("nothing behind the signature")) }
    }

    /// Parses a certificate at the beginning of `lines`.
    pub(super) fn parse_from(lines: &mut LineReader<'_>) -> Result<Self, EntryError> {
        let before = lines.0;
        lines.expect_heading(HEADING)?;
        let certificate = Certificate {
            fleet: lines.read_value("fleet")?,
            name: lines.read_value::<RelayName>("name")?.0,
            address: lines.read_value("address")?,
            key: lines.read_value("key")?,
            verify_key: lines.read_value("signing-key")?,
            not_before: lines.read_value("not-before")?,
            not_after: lines.read_value("not-after")?,
        };
        let issued = Self { certificate, signature: lines.read_value("signature")? };
        // Numbers and hosts can be written in more than one way; only the canonical form is signed.
        if before.strip_suffix(lines.0) == Some(&issued.to_string()) {
            Ok(issued)
        } else {
            Err(EntryError::Malformed("a certificate as `ekiden fleet sign` writes it"))
        }
    }

    /// Verifies the signature with the key of `fleet`.
    ///
    /// # Errors
    /// The certificate belongs to another fleet, or the signature is not valid.
    pub fn verify(&self, fleet: &VerifyKey) -> Result<(), EntryError> {
        if self.certificate.fleet != *fleet {
            return Err(EntryError::WrongFleet);
        }
        let signed = fleet.has_signed(&self.certificate.signed_text(), &self.signature);
        if signed { Ok(()) } else { Err(EntryError::BadCertificateSignature) }
    }
}

/// The text of a certificate file.
impl fmt::Display for SignedCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature: {}", self.certificate.signed_text(), self.signature)
    }
}

impl CertificateRequest {
    /// The request of the relay with this private key.
    #[must_use]
    pub fn for_relay(key: &PrivateKey) -> Self {
        Self { key: key.public_key(), verify_key: SigningKey::derive_for_relay(key).verify_key() }
    }
}

impl fmt::Display for CertificateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.key, self.verify_key)
    }
}

impl FromStr for CertificateRequest {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "the output of `ekiden fleet request`: two keys with a dot between";
        let (key, signing) = text.trim().split_once('.').ok_or(EXPECTED)?;
        Ok(Self { key: key.parse().map_err(|_| EXPECTED)?, verify_key: signing.parse().map_err(|_| EXPECTED)? })
    }
}

/// The name of a relay.
struct RelayName(String);

impl FromStr for RelayName {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let is_valid = (1..=MAX_RELAY_NAME).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_valid { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

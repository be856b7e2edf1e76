//! Who belongs to a fleet: one text for each relay, signed by the fleet key.

use std::fmt;
use std::str::FromStr;

use super::lines::Lines;
use super::signing::{Signature, SigningKey, VerifyKey};
use super::{Refused, TOLERANCE};
use crate::addr::Target;
use crate::key::{PrivateKey, PublicKey};

const HEADING: &str = "ekiden fleet certificate 1";

/// Longest name of a relay.
const LONGEST_NAME: usize = 64;

/// What the fleet key says of a relay. Times are seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Which fleet it belongs to.
    pub fleet: VerifyKey,
    /// Its name there.
    pub name: String,
    /// Where its section listener can be reached.
    pub address: Target,
    /// Who it is.
    pub key: PublicKey,
    /// What it signs with.
    pub signing: VerifyKey,
    /// From when on it belongs there.
    pub not_before: u64,
    /// Until when.
    pub not_after: u64,
}

/// A [`Certificate`] with its signature, which may be anybody's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// What is signed.
    pub certificate: Certificate,
    signature: Signature,
}

/// What a relay asks the holder of the fleet key to sign: `KEY.SIGNING-KEY`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Who it is.
    pub key: PublicKey,
    /// What it signs with.
    pub signing: VerifyKey,
}

impl Certificate {
    /// Signs it. `fleet` becomes the key's other half.
    #[must_use]
    pub fn sign(mut self, key: &SigningKey) -> Issued {
        self.fleet = key.public();
        let signature = key.sign(&self.text());
        Issued { certificate: self, signature }
    }

    /// The bytes that are signed.
    fn text(&self) -> String {
        let Self { fleet, name, address, key, signing, not_before, not_after } = self;
        format!(
            "{HEADING}\nfleet: {fleet}\nname: {name}\naddress: {address}\nkey: {key}\nsigning-key: {signing}\n\
             not-before: {not_before}\nnot-after: {not_after}\n"
        )
    }

    /// Whether it is valid at `unix`, give or take [`TOLERANCE`].
    ///
    /// # Errors
    /// How far it is from that.
    pub fn is_valid(&self, unix: u64) -> Result<(), Refused> {
        let tolerance = TOLERANCE.as_secs();
        if unix.saturating_add(tolerance) < self.not_before {
            return Err(Refused::Early(self.not_before - unix));
        }
        if unix > self.not_after.saturating_add(tolerance) {
            return Err(Refused::Expired(unix - self.not_after));
        }
        Ok(())
    }

    /// Whether it is valid only because clocks may be apart.
    #[must_use]
    pub fn is_at_the_edge(&self, unix: u64) -> bool {
        !(self.not_before..=self.not_after).contains(&unix)
    }
}

impl Issued {
    /// Reads the text of a certificate file.
    ///
    /// # Errors
    /// It is in another way than the one to write it.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let mut lines = Lines(text);
        let issued = Self::read(&mut lines)?;
        if lines.0.is_empty() { Ok(issued) } else { Err(Refused::Garbled("nothing behind the signature")) }
    }

    /// Reads one at the beginning of `lines`.
    pub(super) fn read(lines: &mut Lines<'_>) -> Result<Self, Refused> {
        let before = lines.0;
        lines.heading(HEADING)?;
        let certificate = Certificate {
            fleet: lines.value("fleet")?,
            name: lines.value::<Name>("name")?.0,
            address: lines.value("address")?,
            key: lines.value("key")?,
            signing: lines.value("signing-key")?,
            not_before: lines.value("not-before")?,
            not_after: lines.value("not-after")?,
        };
        let issued = Self { certificate, signature: lines.value("signature")? };
        // Numbers, hosts and the like can be written in more than one way; signed is one of them.
        if before.strip_suffix(lines.0) == Some(&issued.to_string()) {
            Ok(issued)
        } else {
            Err(Refused::Garbled("a certificate as `ekiden fleet sign` writes it"))
        }
    }

    /// Whether the key of `fleet` has signed it.
    ///
    /// # Errors
    /// It has not.
    pub fn verify(&self, fleet: &VerifyKey) -> Result<(), Refused> {
        if self.certificate.fleet != *fleet {
            return Err(Refused::Foreign);
        }
        let signed = fleet.has_signed(&self.certificate.text(), &self.signature);
        if signed { Ok(()) } else { Err(Refused::Unsigned) }
    }
}

/// The text of a certificate file.
impl fmt::Display for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature: {}", self.certificate.text(), self.signature)
    }
}

impl Request {
    /// That of the relay with this key.
    #[must_use]
    pub fn of(key: &PrivateKey) -> Self {
        Self { key: key.public(), signing: SigningKey::of_relay(key).public() }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.key, self.signing)
    }
}

impl FromStr for Request {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "what `ekiden fleet request` prints: two keys with a dot between";
        let (key, signing) = text.trim().split_once('.').ok_or(EXPECTED)?;
        Ok(Self { key: key.parse().map_err(|_| EXPECTED)?, signing: signing.parse().map_err(|_| EXPECTED)? })
    }
}

/// The name of a relay.
struct Name(String);

impl FromStr for Name {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let good = (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(known);
        if good { Ok(Self(text.to_owned())) } else { Err(()) }
    }
}

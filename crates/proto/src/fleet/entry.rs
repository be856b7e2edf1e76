//! The entry that a relay publishes: its certificate, whether it drains, and measurements to its neighbours.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::EntryError;
use super::certificate::SignedCertificate;
use super::signing::LineReader;
use super::signing::{Signature, SigningKey, VerifyKey};
use crate::key::PublicKey;

const HEADING: &str = "ekiden fleet entry 1";

/// Largest size of an entry, in bytes.
pub const MAX_ENTRY_BYTES: usize = 64 << 10;

/// Largest number of neighbours in an entry.
pub const MAX_NEIGHBOURS: usize = 400;

/// The entry that a relay publishes about itself in the store.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetEntry {
    /// The certificate of the relay.
    pub signed_certificate: SignedCertificate,
    /// Sequence number, which grows with every entry of this relay.
    pub sequence: u64,
    /// Time at which the entry was written, by the relay's own clock, in seconds since 1970. It is not used in
    /// decisions.
    pub created_at: u64,
    /// Whether the relay accepts new sessions.
    pub state: RelayState,
    /// Measurements toward other relays.
    pub neighbours: Vec<Neighbour>,
}

/// Whether a relay accepts new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayState {
    /// The relay accepts new sessions.
    Serving,
    /// The relay accepts no new sessions, and stops when its open sessions have ended.
    Draining,
}

/// The measurements on the section to another relay, for the bytes sent to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// The public key of the other relay.
    pub key: PublicKey,
    /// The round-trip time to the other relay.
    pub rtt: Duration,
    /// Share of packets lost, in millionths.
    pub loss_ppm: u32,
    /// Measured rate in bytes per second; 0 if unknown.
    pub rate: u64,
    /// Age of the measurements, in seconds.
    pub age: u64,
}

impl FleetEntry {
    /// Returns the text of the entry, signed with the relay's own key.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> String {
        let text = self.signed_text();
        format!("{text}signature: {}\n", key.sign(&text))
    }

    /// The text that the signature covers.
    fn signed_text(&self) -> String {
        let Self { signed_certificate: issued, sequence: number, created_at: at, state, neighbours } = self;
        let mut text = format!("{HEADING}\n{issued}number: {number}\nat: {at}\nstate: {state}\n");
        for neighbour in neighbours.iter().take(MAX_NEIGHBOURS) {
            text.push_str(&format!("neighbour: {neighbour}\n"));
        }
        text
    }

    /// Parses an entry and verifies both signatures: that of the fleet key on the certificate, and that of the relay on
    /// the entry. The [`MemberList`](super::MemberList) decides whether the entry is valid now and not a replay.
    /// `known` is a certificate that was verified before, and is not verified again.
    ///
    /// # Errors
    /// The check that failed.
    pub fn parse_and_verify(
        bytes: &[u8],
        fleet: &VerifyKey,
        known: Option<&SignedCertificate>,
    ) -> Result<Self, EntryError> {
        if bytes.len() > MAX_ENTRY_BYTES {
            return Err(EntryError::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| EntryError::Malformed(HEADING))?;
        let (entry, signature) = Self::parse(text)?;
        if known != Some(&entry.signed_certificate) {
            entry.signed_certificate.verify(fleet)?;
        }
        let signed = entry.signed_certificate.certificate.verify_key.has_signed(&entry.signed_text(), &signature);
        if signed { Ok(entry) } else { Err(EntryError::BadEntrySignature) }
    }

    fn parse(text: &str) -> Result<(Self, Signature), EntryError> {
        let mut lines = LineReader(text);
        lines.expect_heading(HEADING)?;
        let mut entry = Self {
            signed_certificate: SignedCertificate::parse_from(&mut lines)?,
            sequence: lines.read_value("number")?,
            created_at: lines.read_value("at")?,
            state: lines.read_value("state")?,
            neighbours: Vec::new(),
        };
        while let Some(neighbour) = lines.read_optional("neighbour")? {
            if entry.neighbours.len() == MAX_NEIGHBOURS {
                return Err(EntryError::Malformed("fewer neighbours"));
            }
            entry.neighbours.push(neighbour);
        }
        let signature = lines.read_value("signature")?;
        // Numbers can be written in more than one way; only the canonical form is signed.
        if format!("{}signature: {signature}\n", entry.signed_text()) == text {
            Ok((entry, signature))
        } else {
            Err(EntryError::Malformed("an entry as a relay writes it"))
        }
    }
}

impl Neighbour {
    /// Whether the measurements are worth publishing after `published`: a figure has changed by more than `share`. A
    /// change of age alone is not: readers add the elapsed time.
    #[must_use]
    pub fn differs_from(&self, published: &Self, share: f64) -> bool {
        let differs = |current: f64, old: f64, floor: f64| (current - old).abs() > share * old.max(floor);
        let milliseconds = |span: Duration| span.as_secs_f64() * 1e3;
        differs(milliseconds(self.rtt), milliseconds(published.rtt), 1.0)
            || differs(f64::from(self.loss_ppm), f64::from(published.loss_ppm), 1000.0)
            || differs(self.rate as f64, published.rate as f64, 10_000.0)
    }
}

impl RelayState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for RelayState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RelayState {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Serving, Self::Draining].into_iter().find(|state| state.as_str() == text).ok_or(())
    }
}

/// `KEY RTT-in-microseconds LOSS-in-millionths RATE-in-bytes-per-second AGE-in-seconds`.
impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {} {}", self.key, self.rtt.as_micros(), self.loss_ppm, self.rate, self.age)
    }
}

impl FromStr for Neighbour {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(());
        let neighbour = Self {
            key: word()?.parse().map_err(|_| ())?,
            rtt: Duration::from_micros(word()?.parse().map_err(|_| ())?),
            loss_ppm: word()?.parse().ok().filter(|ppm| *ppm <= 1_000_000).ok_or(())?,
            rate: word()?.parse().map_err(|_| ())?,
            age: word()?.parse().map_err(|_| ())?,
        };
        if words.next().is_none() { Ok(neighbour) } else { Err(()) }
    }
}

serialize_as_text!(RelayState);

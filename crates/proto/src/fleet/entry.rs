//! What a relay says of itself: its certificate, whether it drains, and how far it is to its neighbours.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::Refused;
use super::certificate::Issued;
use super::lines::Lines;
use super::signing::{Signature, SigningKey, VerifyKey};
use crate::key::PublicKey;

const HEADING: &str = "ekiden fleet entry 1";

/// Most bytes of an entry.
pub const MOST_BYTES: usize = 64 << 10;

/// Most neighbours in an entry.
pub const MOST_NEIGHBOURS: usize = 400;

/// A relay's word about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Who it is.
    pub issued: Issued,
    /// Grows with every entry of this relay.
    pub number: u64,
    /// When it was made, by the relay's own clock: seconds since 1970. Nothing is decided by it.
    pub at: u64,
    /// Whether it takes new sessions.
    pub state: State,
    /// What it has measured, toward relays only.
    pub neighbours: Vec<Neighbour>,
}

/// Whether a relay takes new sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does.
    Serving,
    /// It ends when those that it has are over.
    Draining,
}

/// What a relay knows of the section to another: of the bytes that it sends there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// The other relay.
    pub key: PublicKey,
    /// Round-trip time.
    pub rtt: Duration,
    /// Share of packets lost, in millionths.
    pub loss_ppm: u32,
    /// What has come through, in bytes a second; 0 when unknown.
    pub rate: u64,
    /// How old that is, in seconds.
    pub age: u64,
}

impl Entry {
    /// Its text, signed by the relay's own key.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> String {
        let text = self.text();
        format!("{text}signature: {}\n", key.sign(&text))
    }

    /// The bytes that are signed.
    fn text(&self) -> String {
        let Self { issued, number, at, state, neighbours } = self;
        let mut text = format!("{HEADING}\n{issued}number: {number}\nat: {at}\nstate: {state}\n");
        for neighbour in neighbours.iter().take(MOST_NEIGHBOURS) {
            text.push_str(&format!("neighbour: {neighbour}\n"));
        }
        text
    }

    /// Reads an entry, and says whether it is what it claims: of this fleet, and of the relay in it. Whether it is
    /// valid now, and not an old one, is for the [`Roster`](super::Roster) to say. `known` is a certificate that
    /// was verified before.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn read(bytes: &[u8], fleet: &VerifyKey, known: Option<&Issued>) -> Result<Self, Refused> {
        if bytes.len() > MOST_BYTES {
            return Err(Refused::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Refused::Garbled(HEADING))?;
        let (entry, signature) = Self::parse(text)?;
        if known != Some(&entry.issued) {
            entry.issued.verify(fleet)?;
        }
        let signed = entry.issued.certificate.signing.has_signed(&entry.text(), &signature);
        if signed { Ok(entry) } else { Err(Refused::NotItsOwn) }
    }

    fn parse(text: &str) -> Result<(Self, Signature), Refused> {
        let mut lines = Lines(text);
        lines.heading(HEADING)?;
        let mut entry = Self {
            issued: Issued::read(&mut lines)?,
            number: lines.value("number")?,
            at: lines.value("at")?,
            state: lines.value("state")?,
            neighbours: Vec::new(),
        };
        while let Some(neighbour) = lines.optional("neighbour")? {
            if entry.neighbours.len() == MOST_NEIGHBOURS {
                return Err(Refused::Garbled("fewer neighbours"));
            }
            entry.neighbours.push(neighbour);
        }
        let signature = lines.value("signature")?;
        // Numbers can be written in more than one way; signed is one of them.
        if format!("{}signature: {signature}\n", entry.text()) == text {
            Ok((entry, signature))
        } else {
            Err(Refused::Garbled("an entry as a relay writes it"))
        }
    }
}

impl Neighbour {
    /// Whether it is worth telling after `told`: something has changed by more than `share` of what it was. Age alone is
    /// not: who reads it counts on.
    #[must_use]
    pub fn differs(&self, told: &Self, share: f64) -> bool {
        let far = |now: f64, then: f64, least: f64| (now - then).abs() > share * then.max(least);
        let milliseconds = |span: Duration| span.as_secs_f64() * 1e3;
        far(milliseconds(self.rtt), milliseconds(told.rtt), 1.0)
            || far(f64::from(self.loss_ppm), f64::from(told.loss_ppm), 1000.0)
            || far(self.rate as f64, told.rate as f64, 10_000.0)
    }
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for State {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Serving, Self::Draining].into_iter().find(|state| state.word() == text).ok_or(())
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

serialize_as_text!(State);

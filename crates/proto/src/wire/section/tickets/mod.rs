//! Resumption handshakes between relays that have completed a handshake before: Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s,
//! with one multiplication on the curve instead of the four of a first handshake.
//!
//! In the first handshake the listener issues a secret and a *ticket*: the secret and the dialler's key, sealed with a
//! key that only the listener has. So the listener keeps no state, and a ticket is useless without its secret. Both
//! sides still add ephemeral keys, so secrets that are stolen later do not decrypt recorded traffic.

use std::time::Duration;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::key::{KEY_LENGTH, PublicKey};
use crate::wire::cursor::Cursor;
use crate::wire::{Parsed, WireError};

/// Time from issue to expiry of a ticket.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(3600);

/// Longest ticket, in bytes.
const MAX_TICKET: usize = 512;

const NONCE_LENGTH: usize = 12;

/// A secret that two relays share.
pub type Secret = Zeroizing<[u8; KEY_LENGTH]>;

/// The secret and the listener's ticket, which the dialler keeps for a resumption.
#[derive(Clone)]
pub struct ResumptionTicket {
    /// The secret that both relays share.
    pub(super) secret: Secret,
    /// The ticket to send to the listener.
    pub(super) ticket: Vec<u8>,
}

/// The secret of a ticket is never printed.
impl std::fmt::Debug for ResumptionTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResumptionTicket(...)")
    }
}

/// The listener's key for tickets, which exists only in memory: a restart invalidates all tickets.
pub struct TicketIssuer {
    key: LessSafeKey,
    rng: SystemRandom,
}

impl std::fmt::Debug for TicketIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tickets(...)")
    }
}

impl ResumptionTicket {
    /// Reads the secret and ticket at the end of the listener's payload; `None` if there are none.
    pub(super) fn parse(gift: &[u8]) -> Option<Self> {
        let (secret, ticket) = gift.split_first_chunk()?;
        let fits = (1..=MAX_TICKET).contains(&ticket.len());
        fits.then(|| Self { secret: Zeroizing::new(*secret), ticket: ticket.to_vec() })
    }

    /// Encodes the secret and ticket for the end of the listener's payload.
    pub(super) fn write(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([&self.secret[..], &self.ticket].concat())
    }

    /// Encodes the ticket that precedes a handshake message: its length in two bytes, then the ticket.
    pub(super) fn encode_prefix(&self) -> Vec<u8> {
        let length = u16::try_from(self.ticket.len()).expect("invariant: the length of a ticket fits 16 bits");
        [&length.to_be_bytes(), &self.ticket[..]].concat()
    }
}

/// Reads the ticket that precedes a handshake message.
pub(super) fn parse_ticket(message: &[u8]) -> Parsed<&[u8]> {
    let mut cursor = Cursor::new(message);
    let length = usize::from(u16::from_be_bytes(cursor.array()?));
    if length > MAX_TICKET {
        return Err(WireError::TooLarge);
    }
    Ok((cursor.take(length)?, cursor.position()))
}

impl TicketIssuer {
    /// Creates an issuer with a new random key.
    ///
    /// # Panics
    /// The system's random number generator fails.
    #[must_use]
    pub fn generate() -> Self {
        let rng = SystemRandom::new();
        let key = UnboundKey::new(&CHACHA20_POLY1305, &*random_secret(&rng)).expect("invariant: keys have 32 bytes");
        Self { key: LessSafeKey::new(key), rng }
    }

    /// Issues a secret and a ticket for `peer`, valid for the listener key `listener`. `now` is the time since an
    /// origin that the caller chooses.
    #[must_use]
    pub fn issue(&self, listener: &PublicKey, peer: &PublicKey, now: Duration) -> ResumptionTicket {
        let secret = random_secret(&self.rng);
        let expiry = now.saturating_add(TICKET_LIFETIME).as_secs().to_be_bytes();
        let mut sealed = Zeroizing::new([&secret[..], &peer.0, &expiry].concat());
        // A random nonce needs no counter, and a key seals too few tickets for two nonces to be equal.
        let nonce: [u8; NONCE_LENGTH] =
            *random_secret(&self.rng).first_chunk().expect("invariant: a secret is longer than a nonce");
        let (nonce_now, aad) = (Nonce::assume_unique_for_key(nonce), Aad::from(listener.0));
        let tag = self.key.seal_in_place_separate_tag(nonce_now, aad, &mut sealed);
        let tag = tag.expect("invariant: a ticket is short enough to seal");
        ResumptionTicket { ticket: [&nonce[..], &sealed, tag.as_ref()].concat(), secret }
    }

    /// Opens a ticket and returns its secret and the peer's key; `None` for a ticket of another listener key, an
    /// altered one or an expired one.
    pub(super) fn redeem(&self, listener: &PublicKey, ticket: &[u8], now: Duration) -> Option<(Secret, PublicKey)> {
        let (nonce, sealed) = ticket.split_first_chunk::<NONCE_LENGTH>()?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let (nonce, aad) = (Nonce::assume_unique_for_key(*nonce), Aad::from(listener.0));
        let opened = self.key.open_in_place(nonce, aad, &mut sealed).ok()?;
        let (secret, rest) = opened.split_first_chunk()?;
        let (peer, expiry) = rest.split_first_chunk()?;
        let expiry = Duration::from_secs(u64::from_be_bytes(*expiry.first_chunk()?));
        (now < expiry).then(|| (Zeroizing::new(*secret), PublicKey(*peer)))
    }
}

fn random_secret(rng: &SystemRandom) -> Secret {
    let mut bytes = Zeroizing::new([0; KEY_LENGTH]);
    rng.fill(&mut *bytes).expect("the system has no randomness");
    bytes
}

#[cfg(test)]
mod tests;

//! The handshake: Noise_IK_25519_ChaChaPoly_BLAKE2s, with the crate `snow`. The initiator is configured with the
//! responder's key and sends its own key encrypted; both sides are authenticated when each has received one message.
//!
//! All negotiated values are authenticated: the initiator's versions are in the prologue, the responder's versions and
//! the cipher preferences of both CPUs are in the payloads. Noise: <https://noiseprotocol.org/noise.html>.

use std::time::Duration;

use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use super::hello::{self, Hello, Refusal, Versions};
use super::record::{Cipher, RecordKey};
use super::tickets::{self, ResumptionTicket, TicketIssuer};
use crate::key::{self, PrivateKey, PublicKey};
use crate::wire::WireError;

const PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";
/// The resumption handshake of relays that share the secret of a ticket.
const RESUMPTION_PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Flag in a payload: the sender's CPU has instructions for AES.
const AES: u8 = 1;

/// The side that dials.
pub struct NoiseInitiator {
    noise: HandshakeState,
    versions: Versions,
    aes: bool,
}

/// The side that was dialled.
pub struct NoiseResponder {
    noise: HandshakeState,
    versions: Versions,
    version: u8,
    aes: bool,
    both_aes: bool,
}

/// The result of a handshake, from the point of view of this side: a key for each direction.
#[derive(Debug)]
pub struct TransportKeys {
    /// The key that seals records to send.
    pub send_key: RecordKey,
    /// The key that opens received records.
    pub open: RecordKey,
    /// The newest version that both sides support.
    pub version: u8,
    /// The secret and ticket for a resumption, if the peer has issued a ticket.
    pub resumption: Option<ResumptionTicket>,
}

/// The reason why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer has refused the connection.
    #[error("refused: {0}")]
    Refused(#[from] Refusal),
    /// The peer's message is malformed or does not authenticate the peer.
    #[error("the handshake failed: {0}")]
    Wire(#[from] WireError),
}

impl NoiseInitiator {
    /// Begins a handshake with `peer`. Returns the bytes to send.
    #[must_use]
    pub fn begin(own: &PrivateKey, peer: &PublicKey, versions: Versions) -> (Self, Vec<u8>) {
        let prologue = Hello::encode_versions(versions);
        let noise = builder(own, &prologue).remote_public_key(&peer.0).expect("invariant: the remote key is set once");
        Self::begin_with(noise, versions, aes_in_hardware(), None)
    }

    /// Begins a resumption with a ticket from an earlier handshake. Returns the bytes to send.
    #[must_use]
    pub fn resume(ticket: &ResumptionTicket, versions: Versions) -> (Self, Vec<u8>) {
        let ticket_prefix = ticket.encode_prefix();
        let prologue = [&Hello::encode_versions(versions), &ticket_prefix[..]].concat();
        Self::begin_with(
            resumption_builder(&ticket.secret, &prologue),
            versions,
            aes_in_hardware(),
            Some(&ticket_prefix),
        )
    }

    /// Begins a handshake. In a resumption, `ticket_prefix` precedes the message.
    fn begin_with(noise: Builder, versions: Versions, aes: bool, ticket_prefix: Option<&[u8]>) -> (Self, Vec<u8>) {
        let mut noise = noise.build_initiator().expect("invariant: it has all it needs");
        let message = [ticket_prefix.unwrap_or_default(), &write(&mut noise, &[flags(aes)])].concat();
        let hello = Hello { versions, is_resumption: ticket_prefix.is_some(), message: Ok(message) };
        (Self { noise, versions, aes }, hello.write())
    }

    /// Completes the handshake with the peer's answer.
    ///
    /// # Errors
    /// The peer has refused the connection, or does not have the expected key.
    pub fn finish(mut self, answer: &Hello) -> Result<TransportKeys, HandshakeError> {
        let message = answer.message.as_ref().map_err(|refusal| *refusal)?;
        let payload =
            read(&mut self.noise, message).ok_or(WireError::Invalid("the peer does not have the configured key"))?;
        let [oldest, newest, flags, ref ticket_bytes @ ..] = payload[..] else {
            return Err(WireError::Invalid("a handshake message without versions").into());
        };
        if answer.versions != (Versions { oldest, newest }) {
            return Err(WireError::Invalid("the versions were altered in transit").into());
        }
        let version = self.versions.common(answer.versions).ok_or(Refusal::Version(answer.versions))?;
        let ticket = ResumptionTicket::parse(ticket_bytes);
        let [up, down] = record_keys(self.noise, self.aes && flags & AES != 0);
        Ok(TransportKeys { send_key: up, open: down, version, resumption: ticket })
    }
}

impl NoiseResponder {
    /// Reads the initiator's hello and returns the key that the initiator claims. The key is authenticated when the
    /// initiator's first record has been opened.
    ///
    /// # Errors
    /// The refusal to send, encoded by [`write_refusal`].
    pub fn read(own: &PrivateKey, hello: &Hello, versions: Versions) -> Result<(Self, PublicKey), Refusal> {
        let prologue = Hello::encode_versions(hello.versions);
        Self::read_with(builder(own, &prologue), hello, versions, aes_in_hardware())
    }

    fn read_with(noise: Builder, hello: &Hello, versions: Versions, aes: bool) -> Result<(Self, PublicKey), Refusal> {
        let (message, version) = Self::check_versions(hello, versions)?;
        let responder = Self::read_message(noise, message, versions, version, aes).ok_or(Refusal::WrongKey)?;
        let peer = responder.noise.get_remote_static().and_then(|key| key.try_into().ok()).map(PublicKey);
        Ok((responder, peer.expect("invariant: the first message of IK carries the initiator's key")))
    }

    /// Reads the hello of a resumption and redeems its ticket; `now` has the origin of the one for
    /// [`TicketIssuer::issue`].
    ///
    /// # Errors
    /// The refusal to send, encoded by [`write_refusal`].
    pub fn read_resumption(
        tickets: &TicketIssuer,
        listener: &PublicKey,
        hello: &Hello,
        versions: Versions,
        now: Duration,
    ) -> Result<(Self, PublicKey), Refusal> {
        let (message, version) = Self::check_versions(hello, versions)?;
        let (ticket, used) = tickets::parse_ticket(message).map_err(|_| Refusal::UnknownTicket)?;
        let (secret, peer) = tickets.redeem(listener, ticket, now).ok_or(Refusal::UnknownTicket)?;
        let (ticket_prefix, message) = message.split_at(used);
        let prologue = [&Hello::encode_versions(hello.versions), ticket_prefix].concat();
        let noise = resumption_builder(&secret, &prologue);
        let responder =
            Self::read_message(noise, message, versions, version, aes_in_hardware()).ok_or(Refusal::UnknownTicket)?;
        Ok((responder, peer))
    }

    /// Returns the message of a hello, and the newest version that both sides support.
    fn check_versions(hello: &Hello, versions: Versions) -> Result<(&[u8], u8), Refusal> {
        // Only a dialled side refuses, so a refusal from the dialling side is another protocol.
        let message = hello.message.as_ref().map_err(|_| Refusal::Version(versions))?;
        let version = versions.common(hello.versions).ok_or(Refusal::Version(versions))?;
        Ok((message, version))
    }

    /// Reads the first message; `None` if it was not encrypted with the expected keys.
    fn read_message(noise: Builder, message: &[u8], versions: Versions, version: u8, aes: bool) -> Option<Self> {
        let mut noise = noise.build_responder().expect("invariant: it has all it needs");
        let flags = *read(&mut noise, message)?.first()?;
        Some(Self { noise, versions, version, aes, both_aes: aes && flags & AES != 0 })
    }

    /// Accepts the connection, and sends `ticket` for a later resumption if there is one. Returns the keys and the
    /// bytes to send.
    #[must_use]
    pub fn accept(mut self, ticket: Option<&ResumptionTicket>) -> (TransportKeys, Vec<u8>) {
        let Versions { oldest, newest } = self.versions;
        let mut payload = Zeroizing::new(vec![oldest, newest, flags(self.aes)]);
        if let Some(ticket) = ticket {
            payload.extend_from_slice(&ticket.write());
        }
        let message = Ok(write(&mut self.noise, &payload));
        let [up, down] = record_keys(self.noise, self.both_aes);
        let transport = TransportKeys { send_key: down, open: up, version: self.version, resumption: None };
        (transport, Hello { versions: self.versions, is_resumption: false, message }.write())
    }
}

/// Encodes a hello with a refusal.
#[must_use]
pub fn write_refusal(versions: Versions, why: Refusal) -> Vec<u8> {
    Hello { versions, is_resumption: false, message: Err(why) }.write()
}

fn builder<'a>(own: &'a PrivateKey, prologue: &'a [u8]) -> Builder<'a> {
    let pattern = PATTERN.parse().expect("invariant: snow knows the pattern");
    let builder =
        Builder::new(pattern).local_private_key(own.as_bytes()).and_then(|builder| builder.prologue(prologue));
    builder.expect("invariant: each key is set once")
}

fn resumption_builder<'a>(secret: &'a [u8; key::KEY_LENGTH], prologue: &'a [u8]) -> Builder<'a> {
    let pattern = RESUMPTION_PATTERN.parse().expect("invariant: snow knows the pattern");
    let builder = Builder::new(pattern).psk(0, secret).and_then(|builder| builder.prologue(prologue));
    builder.expect("invariant: each key is set once")
}

fn write(noise: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; hello::MAX_MESSAGE];
    let length = noise
        .write_message(payload, &mut message)
        .expect("invariant: the initiator and the responder alternate, and the buffer is large enough");
    message.truncate(length);
    message
}

/// Reads the payload of a message; `None` if it was not encrypted with the expected keys.
fn read(noise: &mut HandshakeState, message: &[u8]) -> Option<Vec<u8>> {
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload).ok()?;
    payload.truncate(length);
    Some(payload)
}

const fn flags(aes: bool) -> u8 {
    if aes { AES } else { 0 }
}

/// Derives the keys from initiator to responder and from responder to initiator.
///
/// The keys are the two keys with which Noise would seal its transport messages, used in the same way: one key for each
/// direction, one cipher (which both sides have chosen under authentication), and a counter as nonce. `snow` does not
/// seal the records because it only seals from one buffer into another, and does not use the ciphers of `ring`.
fn record_keys(mut noise: HandshakeState, aes: bool) -> [RecordKey; 2] {
    assert!(noise.is_handshake_finished(), "invariant: both messages have passed");
    let cipher = if aes { Cipher::AesGcm } else { Cipher::ChaChaPoly };
    let (up, down) = noise.dangerously_get_raw_split();
    [up, down].map(Zeroizing::new).map(|key: Zeroizing<[u8; key::KEY_LENGTH]>| RecordKey::new(cipher, &key))
}

/// Whether this CPU has instructions for AES and for the multiplication of GCM; software would be slow.
#[cfg(target_arch = "x86_64")]
fn aes_in_hardware() -> bool {
    std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq")
}

/// Whether this CPU has instructions for AES and for the multiplication of GCM (one feature here); software would be slow.
#[cfg(target_arch = "aarch64")]
fn aes_in_hardware() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// Support for AES is not detected on other CPUs.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn aes_in_hardware() -> bool {
    false
}

#[cfg(test)]
mod tests;

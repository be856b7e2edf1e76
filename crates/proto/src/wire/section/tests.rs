//! Handshakes in memory: with right and wrong keys, with different versions, and with an attacker between the relays.

use super::noise::{HandshakeError, write_refusal};
use super::record::{HEADER_LENGTH, TAG_LENGTH};
use super::*;
use crate::key::{PrivateKey, PublicKey};
use crate::wire::WireError;
use crate::wire::feeding::feed;

const OURS: Versions = Versions::SUPPORTED;
const FUTURE: Versions = Versions { oldest: 4, newest: 5 };

fn versions(oldest: u8, newest: u8) -> Versions {
    Versions { oldest, newest }
}

/// The keys of two relays, each of which has the public key of the other.
struct HandshakePair {
    dialler: PrivateKey,
    listener: PrivateKey,
}

impl HandshakePair {
    fn new() -> Self {
        Self { dialler: PrivateKey::generate(), listener: PrivateKey::generate() }
    }

    fn begin(&self, versions: Versions) -> (NoiseInitiator, Hello) {
        let (initiator, bytes) = NoiseInitiator::begin(&self.dialler, &self.listener.public_key(), versions);
        (initiator, feed(&bytes, Hello::parse))
    }

    fn read(&self, hello: &Hello, versions: Versions) -> Result<NoiseResponder, Refusal> {
        let (responder, peer) = NoiseResponder::read(&self.listener, hello, versions)?;
        assert_eq!(peer, self.dialler.public_key());
        Ok(responder)
    }

    /// Runs a handshake. Returns the keys of both sides, those of the dialler first.
    fn handshake(&self, one: Versions, other: Versions) -> Result<(TransportKeys, TransportKeys), HandshakeError> {
        let (initiator, hello) = self.begin(one);
        let (transport, bytes) = self.read(&hello, other)?.accept(None);
        Ok((initiator.finish(&feed(&bytes, Hello::parse))?, transport))
    }
}

fn seal(key: &mut RecordKey, plaintext: &[u8]) -> Vec<u8> {
    let mut record = [&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat();
    key.seal(&mut record);
    record
}

fn open(key: &mut RecordKey, mut record: Vec<u8>) -> Result<Vec<u8>, WireError> {
    let range = key.open(&mut record)?;
    Ok(record[range].to_vec())
}

/// Sends a record in each direction.
fn exchange_records(one: &mut TransportKeys, other: &mut TransportKeys) {
    assert_eq!(open(&mut other.open, seal(&mut one.send_key, b"up")).as_deref(), Ok(b"up".as_slice()));
    assert_eq!(open(&mut one.open, seal(&mut other.send_key, b"down")).as_deref(), Ok(b"down".as_slice()));
}

#[test]
fn each_direction_has_a_key_of_its_own() {
    let (mut up, mut down) = HandshakePair::new().handshake(OURS, OURS).unwrap();
    let record = seal(&mut up.send_key, b"to you");
    assert!(open(&mut up.open, record.clone()).is_err(), "reflected to its sender");
    assert!(open(&mut down.open, record).is_ok());
}

#[test]
fn a_hello_for_another_key_is_refused() {
    let (pair, other) = (HandshakePair::new(), HandshakePair::new());
    let (initiator, hello) = pair.begin(OURS);
    let why = NoiseResponder::read(&other.listener, &hello, OURS).err().unwrap();
    assert_eq!(why, Refusal::WrongKey);
    let answer = feed(&write_refusal(OURS, why), Hello::parse);
    assert_eq!(initiator.finish(&answer).err(), Some(HandshakeError::Refused(Refusal::WrongKey)));
}

#[test]
fn answer_without_the_key_of_the_listener_is_refused() {
    let (pair, impostor) = (HandshakePair::new(), HandshakePair::new());
    let (initiator, _) = pair.begin(OURS);
    let (_, to_impostor) = NoiseInitiator::begin(&pair.dialler, &impostor.listener.public_key(), OURS);
    let (responder, _) = NoiseResponder::read(&impostor.listener, &feed(&to_impostor, Hello::parse), OURS).unwrap();
    let (_, bytes) = responder.accept(None);
    let error = initiator.finish(&feed(&bytes, Hello::parse)).unwrap_err();
    assert_eq!(error.to_string(), "the handshake failed: the peer does not have the configured key");
}

#[test]
fn changed_and_truncated_hellos_are_refused() {
    let pair = HandshakePair::new();
    let (_, hello) = pair.begin(OURS);
    let length = hello.message.as_ref().unwrap().len();
    for bit in 0..length * 8 {
        let mut changed = hello.clone();
        changed.message.as_mut().unwrap()[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(pair.read(&changed, OURS).err(), Some(Refusal::WrongKey), "bit {bit}");
    }
    for length in 0..length {
        let short = Hello { message: Ok(hello.message.as_ref().unwrap()[..length].to_vec()), ..hello };
        assert_eq!(pair.read(&short, OURS).err(), Some(Refusal::WrongKey), "{length} bytes");
    }
}

#[test]
fn changed_bit_of_the_answer_is_detected() {
    let pair = HandshakePair::new();
    let error_with_changed_bit = |bit: usize| {
        let (initiator, hello) = pair.begin(OURS);
        let (_, bytes) = pair.read(&hello, OURS).unwrap().accept(None);
        let mut answer = feed(&bytes, Hello::parse);
        answer.message.as_mut().unwrap()[bit / 8] ^= 1 << (bit % 8);
        initiator.finish(&answer).err()
    };
    for bit in 0..51 * 8 {
        assert!(matches!(error_with_changed_bit(bit), Some(HandshakeError::Wire(_))), "bit {bit}");
    }
}

#[test]
fn records_do_not_open_after_a_replayed_hello() {
    let pair = HandshakePair::new();
    let (initiator, hello) = pair.begin(OURS);
    let (mut listener, bytes) = pair.read(&hello, OURS).unwrap().accept(None);
    let mut dialler = initiator.finish(&feed(&bytes, Hello::parse)).unwrap();
    let recorded = seal(&mut dialler.send_key, b"OPEN");
    assert!(open(&mut listener.open, recorded.clone()).is_ok());

    // The listener answers the replayed hello, but with a new ephemeral key, so the recorded records do not decrypt.
    let (mut again, _) = pair.read(&hello, OURS).unwrap().accept(None);
    assert!(open(&mut again.open, recorded).is_err());
}

#[test]
fn a_replayed_answer_is_refused() {
    let pair = HandshakePair::new();
    let (_, hello) = pair.begin(OURS);
    let (_, recorded) = pair.read(&hello, OURS).unwrap().accept(None);
    let (later, _) = pair.begin(OURS);
    assert!(later.finish(&feed(&recorded, Hello::parse)).is_err());
}

#[test]
fn highest_common_version_is_negotiated() {
    let pair = HandshakePair::new();
    for (one, other, common) in [
        (versions(1, 1), OURS, 1),
        (OURS, versions(1, 1), 1),
        (OURS, OURS, 3),
        (versions(1, 4), OURS, 3),
        (versions(1, 2), OURS, 2),
        (versions(1, 4), versions(1, 3), 3),
        (FUTURE, versions(1, 9), 5),
    ] {
        let (mut up, mut down) = pair.handshake(one, other).unwrap();
        assert_eq!((up.version, down.version), (common, common), "{one:?} {other:?}");
        exchange_records(&mut up, &mut down);
    }
}

#[test]
fn version_refusal_names_the_supported_versions() {
    let pair = HandshakePair::new();
    assert_eq!(pair.handshake(FUTURE, OURS).err(), Some(HandshakeError::Refused(Refusal::Version(OURS))));

    let (initiator, hello) = pair.begin(OURS);
    let why = pair.read(&hello, FUTURE).err().unwrap();
    assert_eq!(why, Refusal::Version(FUTURE));
    let error = initiator.finish(&feed(&write_refusal(FUTURE, why), Hello::parse)).unwrap_err();
    assert_eq!(error.to_string(), "refused: it supports versions 4 to 5 of the section protocol");
}

#[test]
fn hello_of_an_unsupported_version_is_not_decrypted() {
    let hello = Hello { versions: FUTURE, is_resumption: false, message: Ok(b"nothing we could read".to_vec()) };
    let why = NoiseResponder::read(&PrivateKey::generate(), &hello, OURS).err();
    assert_eq!(why, Some(Refusal::Version(OURS)));
}

#[test]
fn hello_with_a_refusal_is_refused() {
    for why in [Refusal::Version(OURS), Refusal::WrongKey, Refusal::UnknownPeer] {
        let hello = feed(&write_refusal(OURS, why), Hello::parse);
        assert_eq!(NoiseResponder::read(&PrivateKey::generate(), &hello, OURS).err(), Some(Refusal::Version(OURS)));
    }
}

#[test]
fn version_downgrade_in_transit_is_detected() {
    let pair = HandshakePair::new();
    let (both, first) = (versions(1, 2), versions(1, 1));

    // The attacker changes the offered versions on the way to the listener.
    let (_, mut hello) = pair.begin(both);
    hello.versions = first;
    assert_eq!(pair.read(&hello, both).err(), Some(Refusal::WrongKey));

    // The attacker changes the listener's versions on the way back.
    let (initiator, hello) = pair.begin(both);
    let (_, bytes) = pair.read(&hello, both).unwrap().accept(None);
    let mut answer = feed(&bytes, Hello::parse);
    answer.versions = first;
    let error = initiator.finish(&answer).unwrap_err();
    assert_eq!(error.to_string(), "the handshake failed: the versions were altered in transit");
}

#[test]
fn first_hello_does_not_contain_the_public_keys() {
    let pair = HandshakePair::new();
    let (_, hello) = pair.begin(OURS);
    let message = hello.message.unwrap();
    for PublicKey(key) in [pair.dialler.public_key(), pair.listener.public_key()] {
        assert!(!message.windows(key.len()).any(|window| window == key));
    }
}

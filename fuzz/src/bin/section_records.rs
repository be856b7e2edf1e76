//! Records, and the messages in the first record. OPEN and ANSWER have exactly one encoding. A record opens once, in
//! order, unchanged.
#![no_main]

use std::cell::RefCell;

use ekiden_proto::cause::Cause;
use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use ekiden_proto::wire::section::{
    Hello, NoiseInitiator, NoiseResponder, Open, OpenAnswer, RecordKey, TransportKeys, Versions,
};

thread_local! {
    /// The keys of both ends of a connection, the dialler's first.
    static ENDS: RefCell<(TransportKeys, TransportKeys)> = RefCell::new(connect());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_open(bytes);
    check_answer(bytes);
    ENDS.with_borrow_mut(|(up, down)| {
        check_foreign_record(&mut down.open, bytes);
        check_round_trip(&mut up.send_key, &mut down.open, bytes);
        check_round_trip(&mut down.send_key, &mut up.open, bytes);
    });
});

fn connect() -> (TransportKeys, TransportKeys) {
    let (dialler, listener) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = NoiseInitiator::begin(&dialler, &listener.public_key(), Versions::SUPPORTED);
    let (hello, _) = Hello::parse(&hello).expect("our own hello");
    let (responder, _) = NoiseResponder::read(&listener, &hello, Versions::SUPPORTED).expect("a hello for this key");
    let (down, answer) = responder.accept(None);
    let (answer, _) = Hello::parse(&answer).expect("our own hello");
    (initiator.finish(&answer).expect("an answer from this key"), down)
}

fn check_open(bytes: &[u8]) {
    if let Ok(open) = Open::read(bytes) {
        assert!(bytes.len() <= Open::MAX_LENGTH);
        assert_eq!(open.write(), bytes);
    }
}

fn check_answer(bytes: &[u8]) {
    if let Ok(answer) = OpenAnswer::read(bytes) {
        assert!(bytes.len() <= OpenAnswer::MAX_LENGTH);
        let mut written = answer.write();
        // The code of a cause of a later protocol version is not preserved.
        if Cause::from_code(bytes[0]).code() != bytes[0] {
            written[0] = bytes[0];
        }
        assert_eq!(written, bytes);
        assert_eq!(OpenAnswer::read(&answer.write()), Ok(answer));
    }
}

/// Checks that a record from a sender without the key does not open.
fn check_foreign_record(key: &mut RecordKey, bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk() {
        assert_eq!(RecordKey::body_length(*header).is_ok(), u16::from_be_bytes(*header) >= TAG_LENGTH as u16);
    }
    assert!(key.open(&mut bytes.to_vec()).is_err());
}

/// Checks that a sealed record does not open with one bit changed, opens unchanged, and opens only once.
fn check_round_trip(seal: &mut RecordKey, open: &mut RecordKey, bytes: &[u8]) {
    let mut record = [&[0; HEADER_LENGTH], bytes, &[0; TAG_LENGTH]].concat();
    seal.seal(&mut record);
    let bit =
        bytes.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) % (record.len() * 8);
    let mut changed = record.clone();
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(open.open(&mut changed).is_err(), "bit {bit} was changed");
    let mut opened = record.clone();
    let plaintext = open.open(&mut opened).expect("a record in order");
    assert_eq!(opened[plaintext], *bytes);
    assert!(open.open(&mut record).is_err(), "opened a second time");
}

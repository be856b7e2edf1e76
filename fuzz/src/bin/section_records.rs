//! Records and what is in the first of them. What reads as OPEN or ANSWER has no other form, and a record opens once, at
//! its place, unchanged.
#![no_main]

use std::cell::RefCell;

use ekiden_proto::cause::Cause;
use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::record::{HEADER, TAG};
use ekiden_proto::wire::section::{Answer, Hello, Initiator, Open, RecordKey, Responder, Transport, Versions};

thread_local! {
    /// Both ends of a connection, the dialler's first.
    static ENDS: RefCell<(Transport, Transport)> = RefCell::new(connect());
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    opens(bytes);
    answers(bytes);
    ENDS.with_borrow_mut(|(up, down)| {
        strangers(&mut down.open, bytes);
        passes(&mut up.seal, &mut down.open, bytes);
        passes(&mut down.seal, &mut up.open, bytes);
    });
});

fn connect() -> (Transport, Transport) {
    let (dialler, listener) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = Initiator::begin(&dialler, &listener.public(), Versions::OURS);
    let (hello, _) = Hello::parse(&hello).expect("our own hello");
    let (responder, _) = Responder::read(&listener, &hello, Versions::OURS).expect("for this key");
    let (down, answer) = responder.accept(None);
    let (answer, _) = Hello::parse(&answer).expect("our own hello");
    (initiator.finish(&answer).expect("from this key"), down)
}

fn opens(bytes: &[u8]) {
    if let Ok(open) = Open::read(bytes) {
        assert!(bytes.len() <= Open::MOST);
        assert_eq!(open.write(), bytes);
    }
}

fn answers(bytes: &[u8]) {
    if let Ok(answer) = Answer::read(bytes) {
        assert!(bytes.len() <= Answer::MOST);
        let mut written = answer.write();
        // A cause of a later version is the one thing that we cannot write.
        if Cause::from_code(bytes[0]).code() != bytes[0] {
            written[0] = bytes[0];
        }
        assert_eq!(written, bytes);
        assert_eq!(Answer::read(&answer.write()), Ok(answer));
    }
}

/// Whatever comes from somebody without the key stays closed.
fn strangers(key: &mut RecordKey, bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk() {
        assert_eq!(RecordKey::rest(*header).is_ok(), u16::from_be_bytes(*header) >= TAG as u16);
    }
    assert!(key.open(&mut bytes.to_vec()).is_err());
}

/// The bytes as plaintext: closed when one bit is changed, and then open, once.
fn passes(seal: &mut RecordKey, open: &mut RecordKey, bytes: &[u8]) {
    let mut record = [&[0; HEADER], bytes, &[0; TAG]].concat();
    seal.seal(&mut record);
    let bit =
        bytes.iter().fold(0, |sum: usize, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) % (record.len() * 8);
    let mut changed = record.clone();
    changed[bit / 8] ^= 1 << (bit % 8);
    assert!(open.open(&mut changed).is_err(), "bit {bit} was changed");
    let mut opened = record.clone();
    let plaintext = open.open(&mut opened).expect("a record in its place");
    assert_eq!(opened[plaintext], *bytes);
    assert!(open.open(&mut record).is_err(), "opened a second time");
}

//! A stream of records that arrives in pieces of any size, with a bit inverted, a byte inserted or bytes removed: the
//! opened bytes are a prefix of the sealed bytes, and the end is found only after all of them. While bytes other than
//! records may follow the first record, nothing is read beyond it.
//!
//! Input: the change (1 byte), its offset (2), the number of records with the cipher and the limit of the first record
//! (1), a byte for the length of each record, and the sizes of the reads.
#![no_main]

use ekiden_proto::wire::section::RecordKey;
use ekiden_proto::wire::section::reader::RecordReader;
use ekiden_proto::wire::section::record::{Cipher, HEADER_LENGTH, MAX_PLAINTEXT, TAG_LENGTH};

/// Maximum plaintext of the first record in bytes, if it is limited.
const FIRST: usize = 100;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(([change, place @ .., kind], rest)) = bytes.split_first_chunk::<4>() else { return };
    let cipher = if kind & 0x40 == 0 { Cipher::ChaChaPoly } else { Cipher::AesGcm };
    let limited = kind & 0x80 != 0;
    let (lengths, reads) = rest.split_at((usize::from(kind & 0x3f) % 40).min(rest.len()));
    let lengths = lengths.iter().map(|byte| length(*byte));
    let first = lengths.clone().next().unwrap_or(0);

    let mut sealing = key(cipher);
    let (mut plain, mut stream) = (Vec::new(), Vec::new());
    for length in lengths {
        let plaintext: Vec<u8> = (plain.len()..plain.len() + length).map(|at| (at * 31 >> 3) as u8).collect();
        seal(&mut sealing, &plaintext, &mut stream);
        plain.extend(plaintext);
    }
    seal(&mut sealing, b"", &mut stream);

    let at = usize::from(u16::from_be_bytes(*place)) % stream.len();
    match change % 4 {
        0 => {}
        1 => stream[at] ^= 1 << (change / 4 % 8),
        2 => stream.insert(at, change / 4),
        _ => drop(stream.drain(at..(at + usize::from(change / 4) + 1).min(stream.len()))),
    }
    let (opened, ended) = open(key(cipher), limited, &stream, reads);
    assert!(plain.starts_with(&opened), "bytes that were not sealed");
    assert!(!ended || opened.len() == plain.len(), "an end before the last byte");
    if change % 4 == 0 {
        // A byte inserted beside an equal byte or after the end may leave all records valid, so only an unchanged
        // stream has a known result.
        assert_eq!(ended, !limited || first <= FIRST, "the end of an unchanged stream");
    }
});

/// Maps a byte to a plaintext length: short records, of which several are opened at once, records longer than a read,
/// and the maximum.
fn length(byte: u8) -> usize {
    match byte {
        0xff => MAX_PLAINTEXT,
        _ if byte % 8 == 7 => 1 + usize::from(byte) * 80,
        _ => 1 + usize::from(byte),
    }
}

/// Returns a fixed key for both sides, because a handshake per input would take most of the time.
fn key(cipher: Cipher) -> RecordKey {
    RecordKey::new(cipher, &[7; 32])
}

fn seal(key: &mut RecordKey, plaintext: &[u8], stream: &mut Vec<u8>) {
    let start = stream.len();
    stream.extend([&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat());
    key.seal(&mut stream[start..]);
}

/// Opens records until the end record, an error or the last byte. Returns the opened bytes and whether the end record
/// was found.
fn open(key: RecordKey, mut limited: bool, stream: &[u8], reads: &[u8]) -> (Vec<u8>, bool) {
    let mut reader = RecordReader::new(key, FIRST);
    if !limited {
        reader.allow_read_ahead();
    }
    let mut reads = reads.iter().map(|read| usize::from(*read) * 16 + 1);
    let (mut opened, mut at) = (Vec::new(), 0);
    loop {
        let record = if at % 2 == 0 { reader.next_batch() } else { reader.next_record() };
        match record {
            Err(_) => return (opened, false),
            Ok(Some(record)) => {
                assert_eq!(
                    (record.plaintext.start, record.record.len()),
                    (HEADER_LENGTH, record.plaintext.end + TAG_LENGTH)
                );
                if limited {
                    assert!(record.plaintext.len() <= FIRST);
                    assert!(reader.buffer_mut().is_empty(), "bytes after the first record were read");
                    reader.allow_read_ahead();
                    limited = false;
                }
                if record.plaintext.is_empty() {
                    return (opened, true);
                }
                opened.extend_from_slice(&record.record[record.plaintext]);
            }
            Ok(None) => {
                assert!(!reader.has_result());
                let size = reader.read_size().expect("no result yet, so more bytes are needed");
                assert!(
                    (1..=HEADER_LENGTH + MAX_PLAINTEXT + TAG_LENGTH + HEADER_LENGTH).contains(&size),
                    "a read of {size} bytes"
                );
                let read = size.min(reads.next().unwrap_or(usize::MAX)).min(stream.len() - at);
                if read == 0 {
                    return (opened, false);
                }
                reader.buffer_mut().extend_from_slice(&stream[at..at + read]);
                reader.on_read(size, read);
                at += read;
            }
        }
    }
}

//! Records: a length in two bytes, then ciphertext and tag. The cipher is AES-256-GCM if both sides have it in
//! hardware, else ChaCha20-Poly1305. The nonce is the record's number, so a dropped, repeated or reordered record does
//! not open.

use std::ops::Range;

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

use crate::wire::WireError;

/// Bytes before the ciphertext: its length, tag included, in network order.
pub const HEADER_LENGTH: usize = 2;
/// Length of the authentication tag after the ciphertext, in bytes.
pub const TAG_LENGTH: usize = 16;
/// Maximum length of a record's plaintext, in bytes.
pub const MAX_PLAINTEXT: usize = 65_535 - TAG_LENGTH;

/// The cipher that seals records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-GCM: the faster cipher on a CPU with instructions for AES.
    AesGcm,
    /// ChaCha20-Poly1305 (RFC 8439): the faster cipher on any other CPU.
    ChaChaPoly,
}

/// The key of one direction, and the number of the next record.
pub struct RecordKey {
    key: LessSafeKey,
    /// The number of the next record. The last number, 2^64 - 1, is never used, as it is reserved by Noise.
    next: u64,
}

impl std::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordKey(...)")
    }
}

impl RecordKey {
    /// Creates a key whose next record has number 0. Only one `RecordKey` of the same bytes may seal: a nonce must not
    /// be used twice.
    #[must_use]
    pub fn new(cipher: Cipher, key: &[u8; 32]) -> Self {
        let algorithm = match cipher {
            Cipher::AesGcm => &AES_256_GCM,
            Cipher::ChaChaPoly => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key).expect("invariant: both ciphers have keys of 32 bytes");
        Self { key: LessSafeKey::new(key), next: 0 }
    }

    /// The cipher of this key.
    #[must_use]
    pub fn cipher(&self) -> Cipher {
        if *self.key.algorithm() == AES_256_GCM { Cipher::AesGcm } else { Cipher::ChaChaPoly }
    }

    /// Returns the number of bytes that follow a header: ciphertext and tag.
    ///
    /// # Errors
    /// [`WireError`] for a length that is less than that of a tag.
    pub fn body_length(header: [u8; HEADER_LENGTH]) -> Result<usize, WireError> {
        let length = usize::from(u16::from_be_bytes(header));
        if length >= TAG_LENGTH { Ok(length) } else { Err(WireError::Invalid("a record shorter than its tag")) }
    }

    /// Seals a record in place. `record` has space for the header, then the plaintext, then space for the tag.
    ///
    /// # Panics
    /// `record` is shorter than header and tag, the plaintext is longer than [`MAX_PLAINTEXT`], or the key was used
    /// 2^64 - 1 times.
    pub fn seal(&mut self, record: &mut [u8]) {
        let (header, rest) = record.split_first_chunk_mut::<HEADER_LENGTH>().expect("invariant: room for the header");
        let length = u16::try_from(rest.len()).expect("invariant: no more plaintext than a record can have");
        *header = length.to_be_bytes();
        let (plaintext, tag) = rest.split_last_chunk_mut::<TAG_LENGTH>().expect("invariant: room for the tag");
        let nonce = self.nonce().expect("invariant: no connection sends 2^64 records");
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(*header), plaintext);
        tag.copy_from_slice(sealed.expect("invariant: 64 KiB are not too much for these ciphers").as_ref());
        self.next += 1;
    }

    /// Opens a whole record in place and returns the range of its plaintext. An empty plaintext is the end of the
    /// stream.
    ///
    /// # Errors
    /// The record was altered, dropped, repeated or reordered, or sealed with another key. The stream cannot be used
    /// after an error.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Range<usize>, WireError> {
        let forged = WireError::Invalid("a record that was altered, repeated or reordered");
        let (header, rest) = record.split_first_chunk_mut::<HEADER_LENGTH>().ok_or(forged)?;
        let nonce = self.nonce().ok_or(forged)?;
        // The length of a record is part of the authenticated data, so a record with another length does not open.
        let plaintext = self.key.open_in_place(nonce, Aad::from(*header), rest).map_err(|_| forged)?.len();
        self.next += 1;
        Ok(HEADER_LENGTH..HEADER_LENGTH + plaintext)
    }

    /// The nonce: four zero bytes and the record's number in network order. Noise has this format for AESGCM; here both
    /// ciphers use it.
    fn nonce(&self) -> Option<Nonce> {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.next.to_be_bytes());
        (self.next < u64::MAX).then(|| Nonce::assume_unique_for_key(nonce))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 32] = [7; 32];
    const BOTH: [Cipher; 2] = [Cipher::AesGcm, Cipher::ChaChaPoly];

    fn seal(key: &mut RecordKey, plaintext: &[u8]) -> Vec<u8> {
        let mut record = [&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat();
        key.seal(&mut record);
        record
    }

    fn open(key: &mut RecordKey, record: &[u8]) -> Result<Vec<u8>, WireError> {
        let mut record = record.to_vec();
        let range = key.open(&mut record)?;
        Ok(record[range].to_vec())
    }

    #[test]
    fn records_round_trip() {
        for cipher in BOTH {
            let (mut sender, mut receiver) = (RecordKey::new(cipher, &KEY), RecordKey::new(cipher, &KEY));
            assert_eq!(sender.cipher(), cipher);
            for plaintext in [b"".as_slice(), b"a", &[b'x'; MAX_PLAINTEXT], b"", b"the last"] {
                let record = seal(&mut sender, plaintext);
                assert_eq!(RecordKey::body_length([record[0], record[1]]), Ok(record.len() - HEADER_LENGTH));
                assert!(plaintext.is_empty() || record[HEADER_LENGTH..HEADER_LENGTH + plaintext.len()] != *plaintext);
                assert_eq!(open(&mut receiver, &record).as_deref(), Ok(plaintext));
            }
        }
    }

    #[test]
    fn any_changed_bit_is_detected() {
        for cipher in BOTH {
            let record = seal(&mut RecordKey::new(cipher, &KEY), b"plaintext");
            for bit in 0..record.len() * 8 {
                let mut changed = record.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(open(&mut RecordKey::new(cipher, &KEY), &changed).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn records_open_once_and_in_their_order() {
        for cipher in BOTH {
            let mut sender = RecordKey::new(cipher, &KEY);
            let [first, second] = [b"first", b"other"].map(|text| seal(&mut sender, text));
            let mut receiver = RecordKey::new(cipher, &KEY);
            assert!(open(&mut receiver, &second).is_err(), "reordered, or the record before is missing");
            assert!(open(&mut receiver, &first).is_ok());
            assert!(open(&mut receiver, &first).is_err(), "replayed");
            assert!(open(&mut receiver, &second).is_ok());
        }
    }

    #[test]
    fn truncated_and_oversized_records_fail_to_decrypt() {
        for cipher in BOTH {
            let record = seal(&mut RecordKey::new(cipher, &KEY), b"plaintext");
            for end in 0..record.len() {
                assert!(open(&mut RecordKey::new(cipher, &KEY), &record[..end]).is_err(), "{end} bytes");
            }
            let longer = [record.as_slice(), b"x"].concat();
            assert!(open(&mut RecordKey::new(cipher, &KEY), &longer).is_err());
            // The length field is part of the authenticated data.
            let mut shorter = record[..record.len() - 1].to_vec();
            shorter[1] -= 1;
            assert!(open(&mut RecordKey::new(cipher, &KEY), &shorter).is_err());
        }
        assert!(RecordKey::body_length([0, 15]).is_err());
        assert_eq!(RecordKey::body_length([0, 16]), Ok(TAG_LENGTH));
        assert_eq!(RecordKey::body_length([0xff, 0xff]), Ok(MAX_PLAINTEXT + TAG_LENGTH));
    }

    #[test]
    fn records_do_not_open_with_another_key_or_cipher() {
        let record = seal(&mut RecordKey::new(Cipher::AesGcm, &KEY), b"plaintext");
        assert!(open(&mut RecordKey::new(Cipher::AesGcm, &[8; 32]), &record).is_err());
        assert!(open(&mut RecordKey::new(Cipher::ChaChaPoly, &KEY), &record).is_err());
    }

    #[test]
    fn exhausted_key_opens_no_record() {
        let mut sender = RecordKey { next: u64::MAX - 1, ..RecordKey::new(Cipher::AesGcm, &KEY) };
        let mut receiver = RecordKey { next: u64::MAX - 1, ..RecordKey::new(Cipher::AesGcm, &KEY) };
        let record = seal(&mut sender, b"the last");
        assert!(open(&mut receiver, &record).is_ok());
        assert!(open(&mut receiver, &record).is_err());
        assert_eq!(receiver.next, u64::MAX);
    }

    #[test]
    #[should_panic(expected = "no connection sends 2^64")]
    fn exhausted_key_panics_on_seal() {
        seal(&mut RecordKey { next: u64::MAX, ..RecordKey::new(Cipher::AesGcm, &KEY) }, b"one too many");
    }

    #[test]
    fn debug_output_hides_keys() {
        assert_eq!(format!("{:?}", RecordKey::new(Cipher::AesGcm, &KEY)), "RecordKey(...)");
    }
}

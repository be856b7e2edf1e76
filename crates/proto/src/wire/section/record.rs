//! Records: two bytes of length, then as many of ciphertext and tag. The cipher is AES-256-GCM where both sides have it in
//! hardware, else ChaCha20-Poly1305; the nonce is the record's number, so that none can be left out, repeated or moved.

use std::ops::Range;

use crate::wire::WireError;

/// Bytes before the ciphertext: its length, tag included, in network order.
pub const HEADER: usize = 2;
/// Bytes behind it.
pub const TAG: usize = 16;
/// Most bytes of plaintext in a record.
pub const MOST: usize = 65_535 - TAG;

/// The key of one direction, and how many records it was used for.
pub struct RecordKey {}

impl std::fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RecordKey(...)")
    }
}

impl RecordKey {
    /// Bytes that follow a header: ciphertext and tag.
    ///
    /// # Errors
    /// Fewer than a tag has.
    pub fn rest(header: [u8; HEADER]) -> Result<usize, WireError> {
        let _ = header;
        unimplemented!()
    }

    /// Makes a record in place: `record` has room for the header, the plaintext, and room for the tag.
    pub fn seal(&mut self, record: &mut [u8]) {
        let _ = record;
        unimplemented!()
    }

    /// Opens a whole record in place and says where its plaintext is. An empty one is the end of the stream.
    ///
    /// # Errors
    /// It was changed, left out, repeated or moved, or is nobody's we know.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Range<usize>, WireError> {
        let _ = record;
        unimplemented!()
    }
}

//! Chunks: the plain form of a session on a section that carries another session afterwards. A chunk is a length of
//! four bytes in network order, then as many bytes of the stream. Length 0 announces a record: the end of the stream
//! with the stream's length in bytes.
//!
//! A reader reads at most [`ChunkReader::missing_header`] bytes beyond the current chunk, so it never reads a byte of
//! the next session.

use crate::wire::WireError;

/// Bytes of the length before each chunk.
pub const HEADER_LENGTH: usize = 4;

/// Maximum length of a chunk, in bytes.
pub const MAX_LENGTH: u32 = 1 << 24;

/// Bytes of plaintext in the record that ends a stream of chunks.
pub const END_LENGTH: usize = 8;

/// The header of a chunk of `length` bytes.
///
/// # Panics
/// `length` is above [`MAX_LENGTH`].
#[must_use]
pub fn header(length: usize) -> [u8; HEADER_LENGTH] {
    let length = u32::try_from(length).ok().filter(|length| *length <= MAX_LENGTH);
    length.expect("invariant: a pipe and a buffer hold less than a chunk").to_be_bytes()
}

/// The plaintext of the record that ends a stream of `bytes` bytes.
#[must_use]
pub const fn end_plaintext(bytes: u64) -> [u8; END_LENGTH] {
    bytes.to_be_bytes()
}

/// The position in a stream of chunks.
#[derive(Debug, Default)]
pub struct ChunkReader {
    header: [u8; HEADER_LENGTH],
    /// Bytes of `header` that have arrived.
    arrived: usize,
    /// Bytes of the current chunk that have not arrived.
    left: u32,
    /// Bytes of all chunks that have arrived.
    bytes: u64,
    is_ended: bool,
}

impl ChunkReader {
    /// Bytes of the current chunk that have not been read; 0 before a header and at the end.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left as usize
    }

    /// Bytes of the next header that have not been read; 0 at the end.
    #[must_use]
    pub const fn missing_header(&self) -> usize {
        if self.is_ended { 0 } else { HEADER_LENGTH - self.arrived }
    }

    /// Whether the header of length 0 has been read: the record that ends the stream follows.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Records that `bytes` bytes of the current chunk were read.
    ///
    /// # Panics
    /// `bytes` is more than [`left`](Self::left).
    pub fn on_payload(&mut self, bytes: usize) {
        let read = u32::try_from(bytes).ok().filter(|read| *read <= self.left);
        self.left -= read.expect("invariant: a read is limited to the chunk");
        self.bytes += bytes as u64;
    }

    /// Reads bytes of a header: at most [`missing_header`](Self::missing_header), after all bytes of the current chunk.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] for a length above [`MAX_LENGTH`].
    pub fn on_header(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.header[self.arrived..][..bytes.len()].copy_from_slice(bytes);
        self.arrived += bytes.len();
        if self.arrived < HEADER_LENGTH {
            return Ok(());
        }
        self.arrived = 0;
        match u32::from_be_bytes(self.header) {
            0 => self.is_ended = true,
            length if length > MAX_LENGTH => return Err(WireError::TooLarge),
            length => self.left = length,
        }
        Ok(())
    }

    /// Checks that the length in the record that ends the stream is the number of bytes read.
    ///
    /// # Errors
    /// [`WireError::Invalid`] if the lengths differ.
    pub fn check_end(&self, plaintext: &[u8]) -> Result<(), WireError> {
        if plaintext == end_plaintext(self.bytes) {
            Ok(())
        } else {
            Err(WireError::Invalid("a stream whose length differs from the length in its end record"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_stream_is_read_in_pieces_of_any_size() {
        let stream = [&header(3)[..], b"abc", &header(1), b"d", &header(0)].concat();
        for piece in 1..=stream.len() {
            let (mut reader, mut rest, mut payload) = (ChunkReader::default(), &stream[..], Vec::new());
            while !reader.is_ended() {
                let most = if reader.left() > 0 { reader.left() } else { reader.missing_header() };
                let (read, behind) = rest.split_at(piece.min(most));
                if reader.left() > 0 {
                    reader.on_payload(read.len());
                    payload.extend_from_slice(read);
                } else {
                    reader.on_header(read).unwrap();
                }
                rest = behind;
            }
            assert_eq!((&payload[..], rest.len(), reader.missing_header()), (&b"abcd"[..], 0, 0));
            assert_eq!(reader.check_end(&end_plaintext(4)), Ok(()));
            for wrong in [&end_plaintext(3)[..], &end_plaintext(5), b"", b"\0\0\0\x04"] {
                assert!(reader.check_end(wrong).is_err(), "{wrong:?}");
            }
        }
    }

    #[test]
    fn a_chunk_above_the_bound_is_refused() {
        let mut reader = ChunkReader::default();
        assert_eq!(reader.on_header(&(MAX_LENGTH + 1).to_be_bytes()), Err(WireError::TooLarge));
        let mut reader = ChunkReader::default();
        reader.on_header(&MAX_LENGTH.to_be_bytes()).unwrap();
        assert_eq!(reader.left(), MAX_LENGTH as usize);
    }
}

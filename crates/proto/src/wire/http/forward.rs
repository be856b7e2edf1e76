//! Forwarding of a chunked body: the framing is parsed and written anew, and the data is counted but not parsed.

use super::chunked::{ChunkHead, parse_chunk_end, parse_trailers, write_chunk_head, write_trailers};
use super::head::Headers;
use crate::wire::Parsed;

/// Longest trailer section, in bytes.
pub const MAX_TRAILERS: usize = 16 * 1024;

/// The coding of the body for the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyCoding {
    /// Chunks, for an HTTP/1.1 receiver.
    Chunks,
    /// The data without framing, for an HTTP/1.0 receiver.
    Plain,
}

/// One piece of the framing of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkFraming {
    /// The line before a chunk's data, with the size in bytes; 0 if trailers follow.
    Head(u64),
    /// The CR LF after a chunk's data.
    End,
    /// The trailer section after a chunk of size 0.
    Trailers(Headers),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedFraming {
    Head,
    End,
    Trailers,
    Nothing,
}

/// Parses the framing of one body piece by piece. After each piece the caller forwards as many bytes of data as
/// [`on_framing`](Self::on_framing) returns: the first of them may be appended to [`output`](Self::output), the others
/// are sent after the bytes in `output`.
#[derive(Debug)]
pub struct ChunkForwarder {
    coding: BodyCoding,
    expected: ExpectedFraming,
    /// Bytes to send to the receiver. The framing before data stays here until the data arrives, so that a small chunk
    /// is sent in one write.
    pub output: Vec<u8>,
}

impl ChunkForwarder {
    /// Creates a forwarder at the beginning of a body.
    #[must_use]
    pub fn new(coding: BodyCoding) -> Self {
        Self { coding, expected: ExpectedFraming::Head, output: Vec::new() }
    }

    /// Parses the next piece of framing.
    ///
    /// # Errors
    /// Those of [`ChunkHead::parse`], [`parse_chunk_end`] and [`parse_trailers`].
    ///
    /// # Panics
    /// The trailers were already parsed.
    pub fn parse(&self, bytes: &[u8]) -> Parsed<ChunkFraming> {
        match self.expected {
            ExpectedFraming::Head => ChunkHead::parse(bytes).map(|(size, used)| (ChunkFraming::Head(size), used)),
            ExpectedFraming::End => parse_chunk_end(bytes).map(|((), used)| (ChunkFraming::End, used)),
            ExpectedFraming::Trailers => {
                parse_trailers(bytes, MAX_TRAILERS).map(|(trailers, used)| (ChunkFraming::Trailers(trailers), used))
            }
            ExpectedFraming::Nothing => unreachable!("invariant: nothing is read behind the trailers"),
        }
    }

    /// Processes a piece that [`parse`](Self::parse) has returned, and returns the number of bytes of data that follow
    /// it.
    pub fn on_framing(&mut self, piece: &ChunkFraming) -> u64 {
        let chunks = self.coding == BodyCoding::Chunks;
        match piece {
            ChunkFraming::Head(0) => self.expected = ExpectedFraming::Trailers,
            ChunkFraming::Head(size) => {
                self.expected = ExpectedFraming::End;
                if chunks {
                    self.output.extend_from_slice(write_chunk_head(*size).as_bytes());
                }
                return *size;
            }
            ChunkFraming::End => {
                self.expected = ExpectedFraming::Head;
                if chunks {
                    self.output.extend_from_slice(b"\r\n");
                }
            }
            ChunkFraming::Trailers(trailers) => {
                self.expected = ExpectedFraming::Nothing;
                if chunks {
                    self.output.extend_from_slice(write_chunk_head(0).as_bytes());
                    self.output.extend_from_slice(&write_trailers(trailers));
                }
            }
        }
        0
    }

    /// Whether the body is complete, including its trailers.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.expected == ExpectedFraming::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::WireError;

    /// Returns the bytes that the receiver of a whole body gets.
    fn forward(mut body: &[u8], coding: BodyCoding) -> Result<Vec<u8>, WireError> {
        let mut chunks = ChunkForwarder::new(coding);
        while !chunks.is_complete() {
            let (piece, used) = chunks.parse(body)?;
            let size = usize::try_from(chunks.on_framing(&piece)).unwrap();
            let data = body[used..].get(..size).ok_or(WireError::Incomplete)?;
            chunks.output.extend_from_slice(data);
            body = &body[used + size..];
        }
        assert_eq!(body, b"behind the body");
        Ok(chunks.output)
    }

    #[test]
    fn chunk_framing_is_rewritten_or_removed() {
        let body = b"0005;a=b\r\nhello\r\nA\r\n0123456789\r\n0\r\nHost: a\r\nX-Sum:1\r\n\r\nbehind the body";
        let chunks = b"5\r\nhello\r\na\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n";
        assert_eq!(forward(body, BodyCoding::Chunks).unwrap(), chunks);
        assert_eq!(forward(body, BodyCoding::Plain).unwrap(), b"hello0123456789");
    }

    #[test]
    fn oversized_chunks_and_truncated_bodies_are_errors() {
        for coding in [BodyCoding::Chunks, BodyCoding::Plain] {
            let longer = forward(b"4\r\nhello\r\n0\r\n\r\n", coding);
            assert_eq!(longer, Err(WireError::Invalid("chunk data does not end in CR LF")));
            for body in ["", "5\r\nhell", "5\r\nhello\r\n", "0\r\n", "0\r\nX-Sum: 1\r\n"] {
                assert_eq!(forward(body.as_bytes(), coding), Err(WireError::Incomplete), "{body:?}");
            }
        }
    }
}

//! A reader of a binary message from front to back. If bytes are missing, the result is [`WireError::Incomplete`].

use super::WireError;

/// A position in the bytes received so far.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The number of bytes read so far.
    pub(super) const fn position(&self) -> usize {
        self.at
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let bytes = self.bytes.get(self.at..self.at + count).ok_or(WireError::Incomplete)?;
        self.at += count;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let bytes = self.bytes[self.at..].first_chunk::<N>().ok_or(WireError::Incomplete)?;
        self.at += N;
        Ok(*bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn port(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads one byte, which must be `expected`.
    pub(super) fn expect(&mut self, expected: u8, message: &'static str) -> Result<(), WireError> {
        if self.byte()? == expected { Ok(()) } else { Err(WireError::Invalid(message)) }
    }

    /// Reads a length byte, and as many bytes.
    pub(super) fn length_prefixed(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.byte()?;
        self.take(usize::from(count))
    }

    /// Reads bytes up to a NUL, which is removed and not returned. There are at most `longest` bytes before the NUL,
    /// else the error is `otherwise`.
    pub(super) fn until_nul(&mut self, longest: usize, otherwise: &'static str) -> Result<&'a [u8], WireError> {
        let rest = &self.bytes[self.at..];
        let within = &rest[..rest.len().min(longest + 1)];
        match within.iter().position(|byte| *byte == 0) {
            Some(end) => {
                self.at += end + 1;
                Ok(&rest[..end])
            }
            None if within.len() > longest => Err(WireError::Invalid(otherwise)),
            None => Err(WireError::Incomplete),
        }
    }
}

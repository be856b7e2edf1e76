//! Splits a stream of bytes into records and opens them; computes how many bytes to read next.

use std::ops::Range;

use super::record::{HEADER_LENGTH, MAX_PLAINTEXT, RecordKey, TAG_LENGTH};
use crate::wire::WireError;

/// Bytes of one read at first, when the length of the next record is not known.
pub const READ_STEP: usize = 4096;

/// Maximum bytes of one read when the length of the next record is not known: the size doubles as long as reads are
/// filled by small records.
const MAX_READ_STEP: usize = 64 * 1024;

/// An opened record: a buffer, and the range of the plaintext in it.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenedRecord {
    /// Header, plaintext and room for a tag, so that the buffer can be sealed again in place.
    pub record: Vec<u8>,
    /// The plaintext; an empty one is the end of the stream.
    pub plaintext: Range<usize>,
}

/// Splits a stream into records and opens them. The caller appends at most [`read_size`](Self::read_size) bytes to
/// [`buffer_mut`](Self::buffer_mut), and then takes records until none is complete.
#[derive(Debug)]
pub struct RecordReader {
    key: RecordKey,
    /// Received bytes of records that have not been opened.
    arrived: Vec<u8>,
    /// Bytes of one read when the length of the next record is not known.
    step: usize,
    /// Maximum length of the next record's plaintext. Nothing is read beyond that record, because the bytes after it
    /// may be no record. `None` once all following bytes are records.
    first_limit: Option<usize>,
    /// Whether records of another session may follow the end of a stream.
    is_reusable: bool,
}

impl RecordReader {
    /// Creates a reader of a stream whose first record has at most `first` bytes of plaintext. Nothing is read beyond
    /// that record before [`allow_read_ahead`](Self::allow_read_ahead).
    #[must_use]
    pub fn new(key: RecordKey, first: usize) -> Self {
        Self { key, arrived: Vec::new(), step: READ_STEP, first_limit: Some(first), is_reusable: false }
    }

    /// Declares that all following bytes are records, so that reads may go beyond the next record.
    pub fn allow_read_ahead(&mut self) {
        self.first_limit = None;
    }

    /// Declares that records of another session may follow the end of a stream.
    pub fn allow_next_session(&mut self) {
        self.is_reusable = true;
    }

    /// Declares that the next record has at most `most` bytes of plaintext; nothing is read beyond that record.
    pub fn expect_record(&mut self, most: usize) {
        self.first_limit = Some(most);
    }

    /// Whether [`next_record`](Self::next_record) returns a record or an error without further bytes.
    #[must_use]
    pub fn has_result(&self) -> bool {
        !matches!(self.complete_length(0), Ok(None))
    }

    /// Whether received bytes have not been opened.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Returns the maximum number of bytes to read now: 1 or more unless the reader [has a result](Self::has_result).
    ///
    /// # Errors
    /// [`WireError`] if the length in the next header is less than that of a tag, or above the limit for this record.
    pub fn read_size(&self) -> Result<usize, WireError> {
        let buffered = self.arrived.len();
        // The header of the next record is read too, so that each of several long records takes one read.
        let next_header = if self.first_limit.is_some() { 0 } else { HEADER_LENGTH };
        Ok(match self.length_at(0)? {
            Some(length) if self.first_limit.is_some() || length >= READ_STEP => length + next_header - buffered,
            None if self.first_limit.is_some() => HEADER_LENGTH - buffered,
            _ => self.step,
        })
    }

    /// The buffer to which the caller appends bytes that have arrived.
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.arrived
    }

    /// Records that a read of at most `size` bytes returned `read` bytes, and adapts the size of the next read.
    pub fn on_read(&mut self, size: usize, read: usize) {
        if size == self.step {
            self.step = if read < size { READ_STEP } else { (self.step * 2).min(MAX_READ_STEP) };
        }
    }

    /// Opens the next record; `None` until all of it has arrived.
    ///
    /// # Errors
    /// [`WireError`] for a record that was altered, dropped, repeated or reordered, and for bytes after the end of the
    /// stream. The stream cannot be used after an error.
    pub fn next_record(&mut self) -> Result<Option<OpenedRecord>, WireError> {
        self.complete_length(0)?.map(|length| self.open(length)).transpose()
    }

    /// Like [`next_record`](Self::next_record), but opens consecutive small records that have arrived into one buffer.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub fn next_batch(&mut self) -> Result<Option<OpenedRecord>, WireError> {
        match self.complete_batch() {
            Some(end) => self.open_batch(end).map(Some),
            None => self.next_record(),
        }
    }

    /// The length of the record that begins at `at`; `None` until its header has arrived.
    fn length_at(&self, at: usize) -> Result<Option<usize>, WireError> {
        let Some(header) = self.arrived[at..].first_chunk::<HEADER_LENGTH>() else { return Ok(None) };
        let body_length = RecordKey::body_length(*header)?;
        if self.first_limit.is_some_and(|limit| body_length > limit + TAG_LENGTH) {
            Err(WireError::TooLarge)
        } else {
            Ok(Some(HEADER_LENGTH + body_length))
        }
    }

    /// The length of the record that begins at `at`; `None` until all of it has arrived.
    fn complete_length(&self, at: usize) -> Result<Option<usize>, WireError> {
        Ok(self.length_at(at)?.filter(|length| at + *length <= self.arrived.len()))
    }

    /// The end of the consecutive small records that have arrived, if there are several. The record that ends the
    /// stream and invalid records are excluded: [`next_record`](Self::next_record) handles each of them alone.
    fn complete_batch(&self) -> Option<usize> {
        let (mut end, mut records) = (0, 0);
        while let Ok(Some(length)) = self.complete_length(end)
            && (HEADER_LENGTH + TAG_LENGTH + 1..READ_STEP).contains(&length)
            && end + length <= MAX_PLAINTEXT
        {
            (end, records) = (end + length, records + 1);
        }
        (records > 1 && self.first_limit.is_none()).then_some(end)
    }

    /// Opens the records up to `end`. Stops before a record that does not open; that is an error if it is the first
    /// one.
    fn open_batch(&mut self, end: usize) -> Result<OpenedRecord, WireError> {
        let mut record = Vec::with_capacity(HEADER_LENGTH + end + TAG_LENGTH);
        record.extend_from_slice(&[0; HEADER_LENGTH]);
        let mut at = 0;
        while at < end {
            let length = self.complete_length(at)?.expect("invariant: the row was complete");
            match self.key.open(&mut self.arrived[at..at + length]) {
                Ok(plain) => record.extend_from_slice(&self.arrived[at..][plain]),
                Err(error) if at == 0 => return Err(error),
                Err(_) => break,
            }
            at += length;
        }
        self.arrived = self.arrived.split_off(at);
        let plain = HEADER_LENGTH..record.len();
        record.extend_from_slice(&[0; TAG_LENGTH]);
        Ok(OpenedRecord { record, plaintext: plain })
    }

    fn open(&mut self, length: usize) -> Result<OpenedRecord, WireError> {
        let rest = self.arrived.split_off(length);
        let mut record = std::mem::replace(&mut self.arrived, rest);
        let plain = self.key.open(&mut record)?;
        if plain.is_empty() && self.first_limit.is_none() && !self.is_reusable && !self.arrived.is_empty() {
            return Err(WireError::Invalid("bytes after the end of the stream"));
        }
        Ok(OpenedRecord { record, plaintext: plain })
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Cipher;
    use super::*;

    fn sealed(key: &mut RecordKey, plaintext: &[u8]) -> Vec<u8> {
        let mut record = [&[0; HEADER_LENGTH], plaintext, &[0; TAG_LENGTH]].concat();
        key.seal(&mut record);
        record
    }

    fn reader() -> (RecordKey, RecordReader) {
        let key = || RecordKey::new(Cipher::ChaChaPoly, &[7; 32]);
        let mut reader = RecordReader::new(key(), 100);
        reader.allow_read_ahead();
        (key(), reader)
    }

    /// Regression: the error was reported only after more bytes had arrived, which may never happen.
    #[test]
    fn impossible_record_length_is_an_error_at_once() {
        let (mut key, mut reader) = reader();
        let stream = [sealed(&mut key, b"first"), vec![0, 15]].concat();
        reader.buffer_mut().extend(stream);
        assert!(reader.next_batch().unwrap().is_some());
        assert!(reader.has_result());
        assert!(reader.next_batch().is_err());
    }

    /// A peer that has sent and received END sends the next OPEN at once, so one read may return an END and an OPEN.
    #[test]
    fn records_of_the_next_session_may_follow_the_end() {
        let (mut key, mut reader) = reader();
        reader.allow_next_session();
        let stream =
            [sealed(&mut key, b"last"), sealed(&mut key, b""), sealed(&mut key, b"OPEN"), sealed(&mut key, b"first")];
        reader.buffer_mut().extend(stream.concat());
        let mut next = |most: Option<usize>| {
            match most {
                Some(most) => reader.expect_record(most),
                None => reader.allow_read_ahead(),
            }
            reader.next_batch().map(|opened| opened.map(|opened| opened.record[opened.plaintext].to_vec()))
        };
        assert_eq!(next(None), Ok(Some(b"last".to_vec())));
        assert_eq!(next(None), Ok(Some(b"".to_vec())));
        assert_eq!(next(Some(3)), Err(WireError::TooLarge));
        assert_eq!(next(Some(4)), Ok(Some(b"OPEN".to_vec())));
        assert_eq!(next(None), Ok(Some(b"first".to_vec())));
    }

    #[test]
    fn bytes_after_the_end_are_refused() {
        let (mut key, mut reader) = reader();
        let end = sealed(&mut key, b"");
        reader.buffer_mut().extend(&end);
        assert!(reader.next_record().unwrap().unwrap().plaintext.is_empty());
        let (mut key, mut reader) = self::reader();
        let end = sealed(&mut key, b"");
        reader.buffer_mut().extend([&end[..], &[0]].concat());
        assert!(reader.next_record().is_err());
    }
}

//! Encryption of a section: opens and seals records in place.
//!
//! Each record is read into its own buffer and decrypted in place. The bytes are written from the same buffer: as
//! plaintext to a plain section, encrypted again to another encrypted section. Only bytes that a full socket does not
//! accept are copied.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;

use ekiden_proto::wire::section::reader::RecordReader;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, MAX_PLAINTEXT, TAG_LENGTH};
use ekiden_proto::wire::section::{RecordKey, TransportKeys};
use ekiden_sys::recv::append;
use tokio::net::TcpStream;

pub use ekiden_proto::wire::section::reader::OpenedRecord;

use super::flow::read_once;
use super::framing::invalid;

/// The keys of a section, and the buffer of the record that is being read.
#[derive(Debug)]
pub struct RecordCipher {
    sealer: RefCell<RecordKey>,
    opener: RefCell<RecordReader>,
}

impl RecordCipher {
    /// Creates a cipher with the keys of a handshake. The first record has at most `first` bytes of plaintext; no byte
    /// after that record is read.
    #[must_use]
    pub fn new(transport: TransportKeys, first: usize) -> Self {
        let opener = RecordReader::new(transport.open, first);
        Self { sealer: RefCell::new(transport.send_key), opener: RefCell::new(opener) }
    }

    /// Allows reads beyond the current record: all following bytes are records.
    pub fn allow_read_ahead(&self) {
        self.opener.borrow_mut().allow_read_ahead();
    }

    /// Allows records of another session after the record that ends a stream.
    pub fn allow_next_session(&self) {
        self.opener.borrow_mut().allow_next_session();
    }

    /// Limits the plaintext of the next record to `most` bytes; no byte after that record is read.
    pub fn expect_record(&self, most: usize) {
        self.opener.borrow_mut().expect_record(most);
    }

    /// Encrypts the plaintext between header and tag in place.
    pub fn seal(&self, record: &mut [u8]) {
        self.sealer.borrow_mut().seal(record);
    }

    /// Encrypts `plaintext` into as many records as needed.
    #[must_use]
    pub fn seal_all(&self, plaintext: &[u8]) -> Vec<u8> {
        let pieces = plaintext.len().div_ceil(MAX_PLAINTEXT);
        let mut records = Vec::with_capacity(plaintext.len() + pieces * (HEADER_LENGTH + TAG_LENGTH));
        for piece in plaintext.chunks(MAX_PLAINTEXT) {
            let start = records.len();
            records.extend_from_slice(&[0; HEADER_LENGTH]);
            records.extend_from_slice(piece);
            records.extend_from_slice(&[0; TAG_LENGTH]);
            self.seal(&mut records[start..]);
        }
        records
    }

    /// Returns the record that ends a stream: a record without plaintext.
    #[must_use]
    pub fn end_record(&self) -> Vec<u8> {
        let mut record = vec![0; HEADER_LENGTH + TAG_LENGTH];
        self.seal(&mut record);
        record
    }

    /// Returns whether the next read needs no bytes from the socket: a complete record or an invalid length is
    /// buffered.
    #[must_use]
    pub fn has_record(&self) -> bool {
        self.opener.borrow().has_result()
    }

    /// Returns whether bytes were read that do not form a complete record yet.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        self.opener.borrow().has_buffered()
    }

    /// Reads once, unless a complete record is buffered, and opens the record. `None` if the record is incomplete.
    ///
    /// # Errors
    /// As read(2); `ConnectionReset` if the stream ends before its last record; `InvalidData` for a record that was
    /// altered, dropped, repeated or reordered, and for bytes after the end of the stream.
    pub fn read(&self, from: &TcpStream) -> io::Result<Option<OpenedRecord>> {
        let mut opener = self.opener.borrow_mut();
        receive(&mut opener, from)?;
        opener.next_record().map_err(invalid)
    }

    /// As [`RecordCipher::read`], but opens consecutive small records together.
    ///
    /// # Errors
    /// As [`RecordCipher::read`].
    pub fn read_batch(&self, from: &TcpStream) -> io::Result<Option<OpenedRecord>> {
        let mut opener = self.opener.borrow_mut();
        receive(&mut opener, from)?;
        opener.next_batch().map_err(invalid)
    }

    /// Waits for a record.
    ///
    /// # Errors
    /// As [`RecordCipher::read`].
    pub async fn next_record(&self, from: &TcpStream) -> io::Result<OpenedRecord> {
        loop {
            if !self.has_record() {
                from.readable().await?;
            }
            match self.read(from) {
                Ok(Some(opened)) => return Ok(opened),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Reads from the socket once, unless [`RecordCipher::has_record`] is true.
fn receive(opener: &mut RecordReader, from: &TcpStream) -> io::Result<()> {
    if opener.has_result() {
        return Ok(());
    }
    let size = opener.read_size().map_err(invalid)?;
    let arrived = opener.buffer_mut();
    arrived.reserve_exact(size);
    let read = read_once(from, size, || append(from.as_fd(), arrived, size))?;
    opener.on_read(size, read);
    // A complete stream ends with an empty record, so this stream is truncated.
    if read == 0 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;

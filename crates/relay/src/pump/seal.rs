//! The encrypted side of a section: records in, records out, in place.
//!
//! A record is read into a buffer of its own, opened there, and written from there: as it is to a plain section, sealed
//! again to another encrypted one. Nothing is copied but what a full socket leaves behind.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use ekiden_proto::wire::WireError;
use ekiden_proto::wire::section::record::{HEADER, MOST, TAG};
use ekiden_proto::wire::section::{RecordKey, Transport};
use ekiden_sys::recv::append;
use tokio::net::TcpStream;

use super::reading::read_once;

/// How much is read when it is not known how long the next record is, at first.
const STEP: usize = 4096;

/// And at most, when all that was read before was there: small records come one behind the other.
const MOST_STEP: usize = 64 * 1024;

/// The keys of a section, and what is half read of it.
#[derive(Debug)]
pub struct Seal {
    sealer: RefCell<RecordKey>,
    opener: RefCell<Opener>,
}

#[derive(Debug)]
struct Opener {
    key: RecordKey,
    /// What has arrived of records that are not opened yet.
    arrived: Vec<u8>,
    /// How much is read when it is not known how long the next record is.
    step: usize,
    /// Longest plaintext of the first record, behind which nothing is read, because what follows may be no record. `None`
    /// when there are only records.
    first: Option<usize>,
}

/// A record that was opened: a buffer, and where the plaintext is in it.
#[derive(Debug)]
pub struct Opened {
    /// Header, plaintext, and room for a tag: it can be sealed again as it is.
    pub record: Vec<u8>,
    /// The plaintext.
    pub plain: Range<usize>,
}

impl Seal {
    /// The keys that a handshake has brought. The first record has at most `first` bytes of plaintext, and nothing is read
    /// behind it.
    #[must_use]
    pub fn new(transport: Transport, first: usize) -> Self {
        let opener = Opener { key: transport.open, arrived: Vec::new(), step: STEP, first: Some(first) };
        Self { sealer: RefCell::new(transport.seal), opener: RefCell::new(opener) }
    }

    /// From here on everything that arrives is records.
    pub fn only_records(&self) {
        self.opener.borrow_mut().first = None;
    }

    /// Makes a record of what lies between header and tag.
    pub fn seal(&self, record: &mut [u8]) {
        self.sealer.borrow_mut().seal(record);
    }

    /// Makes records of `plaintext`.
    #[must_use]
    pub fn sealed(&self, plaintext: &[u8]) -> Vec<u8> {
        let pieces = plaintext.len().div_ceil(MOST);
        let mut records = Vec::with_capacity(plaintext.len() + pieces * (HEADER + TAG));
        for piece in plaintext.chunks(MOST) {
            let start = records.len();
            records.extend_from_slice(&[0; HEADER]);
            records.extend_from_slice(piece);
            records.extend_from_slice(&[0; TAG]);
            self.seal(&mut records[start..]);
        }
        records
    }

    /// The record that ends a stream.
    #[must_use]
    pub fn end(&self) -> Vec<u8> {
        let mut record = vec![0; HEADER + TAG];
        self.seal(&mut record);
        record
    }

    /// Whether a record has arrived that was not opened yet.
    #[must_use]
    pub fn has_record(&self) -> bool {
        let opener = self.opener.borrow();
        matches!(opener.length(), Ok(Some(length)) if length <= opener.arrived.len())
    }

    /// Reads once, unless a record is there already, and opens it. `None` when there is more to come.
    ///
    /// # Errors
    /// The socket's; `ConnectionReset` when the stream ends before its last record; `InvalidData` for a record that was
    /// changed, left out, repeated or moved, and for an end of the stream with bytes behind it.
    pub fn read(&self, from: &TcpStream) -> io::Result<Option<Opened>> {
        self.opener.borrow_mut().read(from)
    }

    /// The same, but small records that have arrived behind each other come as one.
    ///
    /// # Errors
    /// As [`Seal::read`].
    pub fn read_row(&self, from: &TcpStream) -> io::Result<Option<Opened>> {
        let mut opener = self.opener.borrow_mut();
        if opener.row().is_none() && opener.complete(0)?.is_none() {
            opener.receive(from)?;
        }
        match opener.row() {
            Some(row) => opener.open_row(row).map(Some),
            None => opener.complete(0)?.map(|length| opener.open(length)).transpose(),
        }
    }

    /// Waits for a record.
    ///
    /// # Errors
    /// As [`Seal::read`].
    pub async fn next(&self, from: &TcpStream) -> io::Result<Opened> {
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

impl Opener {
    /// How long the record is that has begun to arrive.
    fn length(&self) -> io::Result<Option<usize>> {
        self.length_at(0)
    }

    fn length_at(&self, at: usize) -> io::Result<Option<usize>> {
        let Some(header) = self.arrived[at..].first_chunk::<HEADER>() else { return Ok(None) };
        let rest = RecordKey::rest(*header).map_err(invalid)?;
        if self.first.is_some_and(|most| rest > most + TAG) {
            Err(invalid(WireError::TooLarge))
        } else {
            Ok(Some(HEADER + rest))
        }
    }

    /// How long the record is that begins at `at`, where all of it has arrived.
    fn complete(&self, at: usize) -> io::Result<Option<usize>> {
        Ok(self.length_at(at)?.filter(|length| at + *length <= self.arrived.len()))
    }

    fn read(&mut self, from: &TcpStream) -> io::Result<Option<Opened>> {
        if let Some(length) = self.complete(0)? {
            return self.open(length).map(Some);
        }
        self.receive(from)?;
        self.complete(0)?.map(|length| self.open(length)).transpose()
    }

    /// Where the small records end that have arrived, if there are several. The end of the stream is no part of it, nor is
    /// what is no record: both are told by themselves.
    fn row(&self) -> Option<usize> {
        let (mut end, mut records) = (0, 0);
        while let Ok(Some(length)) = self.complete(end)
            && (HEADER + TAG + 1..STEP).contains(&length)
            && end + length <= MOST
        {
            (end, records) = (end + length, records + 1);
        }
        (records > 1 && self.first.is_none()).then_some(end)
    }

    /// Opens the records up to `end`. One that does not open ends the row, and is told when it comes first.
    fn open_row(&mut self, end: usize) -> io::Result<Opened> {
        let mut record = Vec::with_capacity(HEADER + end + TAG);
        record.extend_from_slice(&[0; HEADER]);
        let mut at = 0;
        while at < end {
            let length = self.complete(at)?.expect("invariant: the row was complete");
            match self.key.open(&mut self.arrived[at..at + length]) {
                Ok(plain) => record.extend_from_slice(&self.arrived[at..][plain]),
                Err(error) if at == 0 => return Err(invalid(error)),
                Err(_) => break,
            }
            at += length;
        }
        self.arrived = self.arrived.split_off(at);
        let plain = HEADER..record.len();
        record.extend_from_slice(&[0; TAG]);
        Ok(Opened { record, plain })
    }

    fn receive(&mut self, from: &TcpStream) -> io::Result<()> {
        let have = self.arrived.len();
        // The header of the next record comes along, so that a long row of records takes one read each.
        let ahead = if self.first.is_some() { 0 } else { HEADER };
        let wanted = match self.length()? {
            Some(length) if self.first.is_some() || length >= STEP => length + ahead - have,
            None if self.first.is_some() => HEADER - have,
            _ => self.step,
        };
        self.arrived.reserve_exact(wanted);
        let read = read_once(from, wanted, || append(from.as_fd(), &mut self.arrived, wanted))?;
        if wanted == self.step {
            self.step = if read < wanted { STEP } else { (self.step * 2).min(MOST_STEP) };
        }
        // Whoever ends a stream says so in a record first: this one was cut off.
        if read == 0 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    fn open(&mut self, length: usize) -> io::Result<Opened> {
        let behind = self.arrived.split_off(length);
        let mut record = std::mem::replace(&mut self.arrived, behind);
        let plain = self.key.open(&mut record).map_err(invalid)?;
        if plain.is_empty() && self.first.is_none() && !self.arrived.is_empty() {
            return Err(invalid(WireError::Invalid("bytes behind the end of the stream")));
        }
        Ok(Opened { record, plain })
    }
}

fn invalid(error: WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
pub(super) mod tests;

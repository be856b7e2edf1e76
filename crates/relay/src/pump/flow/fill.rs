//! How a flow reads: into the thread's buffer, into a pipe, or record by record.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use ekiden_proto::tuning;
use ekiden_proto::wire::section::record::{HEADER_LENGTH, MAX_PLAINTEXT, TAG_LENGTH};
use socket2::SockRef;
use tokio::io::Interest;

use super::{Flow, FlowError, FlowLimit, PendingBytes, SPLICE_AFTER};
use crate::pump::cipher::{OpenedRecord, RecordCipher};
use crate::pump::pipes::PooledPipe;
use crate::pump::read;
use crate::pump::read::{has_unread, read_once};

impl<'a> Flow<'a> {
    /// Reads once, and writes at once what it read by copying.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        loop {
            if !self.from.cipher.is_some_and(RecordCipher::has_record) {
                ready!(self.from.stream.poll_read_ready(cx)).map_err(FlowError::Reading)?;
                ready!(self.poll_shape(cx));
            }
            let filled = match (self.from.cipher, self.acquire_pipe()) {
                (Some(cipher), _) => self.open_record(cipher),
                (None, Some(pipe)) => self.fill_pipe(pipe),
                (None, None) => self.copy_once(),
            };
            match filled {
                Err(FlowError::Reading(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Whether what has arrived is taken now, or waits for more.
    fn poll_shape(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let answers = self.stats.bytes(self.direction.opposite());
        self.shape.as_mut().map_or(Poll::Ready(()), |shape| shape.poll(cx, answers))
    }

    /// A pipe, where bytes may go through one and it is worth it.
    fn acquire_pipe(&self) -> Option<PooledPipe<'a>> {
        let plain = self.from.cipher.is_none() && self.to.cipher.is_none();
        if plain && self.moved >= SPLICE_AFTER { self.pipes.take() } else { None }
    }

    fn fill_pipe(&mut self, mut pipe: PooledPipe<'a>) -> Result<(), FlowError> {
        let most = self.limited_size(pipe.capacity());
        let from = self.from.stream;
        let mut at_urgent_data = false;
        let read = from.try_io(Interest::READABLE, || {
            let filled = pipe.fill(from.as_fd(), most);
            // The pipe is empty here, so EAGAIN is about the socket alone.
            let nothing =
                filled.as_ref().map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |read| *read == 0);
            at_urgent_data = nothing && has_unread(from);
            if at_urgent_data { Ok(0) } else { filled }
        });
        if at_urgent_data {
            // splice(2) does not go on from there, and recv(2) does.
            return self.copy_once();
        }
        let read = read.map_err(FlowError::Reading)?;
        self.on_read(read);
        if read > 0 {
            self.pending = PendingBytes::Piped(pipe);
        }
        Ok(())
    }

    fn copy_once(&mut self) -> Result<(), FlowError> {
        let room = self.read_size();
        read::with(|scratch| {
            let most = self.limited_size(room);
            let buffer = &mut scratch[HEADER_LENGTH..][..most];
            let from = self.from.stream;
            let read = read_once(from, most, || (&*SockRef::from(from)).read(buffer)).map_err(FlowError::Reading)?;
            self.on_read(read);
            if read == 0 {
                return Ok(());
            }
            let fresh = match self.to.cipher {
                None => &scratch[HEADER_LENGTH..][..read],
                Some(cipher) => {
                    cipher.seal(&mut scratch[..HEADER_LENGTH + read + TAG_LENGTH]);
                    &scratch[..HEADER_LENGTH + read + TAG_LENGTH]
                }
            };
            let written = match self.to.stream.try_write(fresh) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(FlowError::Writing(error)),
            };
            self.on_written(written);
            if written < fresh.len() {
                self.pending = PendingBytes::Bytes { buffer: fresh[written..].to_vec(), written: 0 };
            }
            Ok(())
        })
    }

    /// How much is read at once. Records grow with the stream: each relay has to wait for the whole of one, which costs
    /// most while windows are small, and many small ones cost most when they are large.
    fn read_size(&mut self) -> usize {
        match (self.to.cipher, &mut self.shape) {
            (None, _) => read::MAX_PLAIN,
            (Some(_), None) => tuning::max_record_size(self.moved, MAX_PLAINTEXT),
            (Some(_), Some(shape)) => {
                let room = shape.read_limit(MAX_PLAINTEXT);
                self.stats.set_max_record(self.direction, room);
                room
            }
        }
    }

    /// Takes one record, or several small ones as one; it leaves from the buffer it came in.
    fn open_record(&mut self, cipher: &RecordCipher) -> Result<(), FlowError> {
        let Some(OpenedRecord { mut record, plaintext: plain }) =
            cipher.read_batch(self.from.stream).map_err(FlowError::Reading)?
        else {
            return Err(FlowError::Reading(io::ErrorKind::WouldBlock.into()));
        };
        self.on_read(plain.len());
        let written = match self.to.cipher {
            None => {
                record.truncate(plain.end);
                plain.start
            }
            Some(_) if plain.is_empty() => return Ok(()),
            Some(cipher) => {
                cipher.seal(&mut record);
                0
            }
        };
        self.pending = PendingBytes::Bytes { buffer: record, written };
        Ok(())
    }

    /// Counts bytes that were written from a buffer. Records are counted by what is in them, when that is read.
    pub(super) fn on_written(&self, bytes: usize) {
        if self.to.cipher.is_none() {
            self.stats.record_copied(self.direction, bytes);
        }
    }

    fn limited_size(&self, room: usize) -> usize {
        let room = self.backlog.read_limit(room);
        match self.limit {
            FlowLimit::End => room,
            FlowLimit::Bytes(left) => usize::try_from(left).map_or(room, |left| left.min(room)),
        }
    }

    fn on_read(&mut self, read: usize) {
        self.ended = read == 0;
        self.moved += read as u64;
        self.backlog.on_read(self.from.stream, read);
        let answers = self.stats.bytes(self.direction.opposite());
        if let Some(shape) = &mut self.shape {
            shape.on_read(read, answers);
        }
        if self.to.cipher.is_some() {
            self.stats.record_copied(self.direction, read);
        }
        if let FlowLimit::Bytes(left) = &mut self.limit {
            *left -= read as u64;
        }
    }
}

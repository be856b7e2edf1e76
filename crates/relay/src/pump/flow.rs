//! One direction of a session: read from one socket, write to the other.
//!
//! Order of things in [`Flow::poll`]: first write what is held, then read more. A flow holds bytes
//! only while the receiving side has no room, so an idle session has neither buffer nor pipe.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use ekiden_proto::limiting::Direction;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::meter::Meter;
use super::pipes::{PipePool, Pooled};
use super::scratch;
use super::seal::{Opened, Seal};
use ekiden_proto::wire::section::record::{HEADER, TAG};

/// Bytes a direction has to move before a pipe is worth its system calls.
const SPLICE_AFTER: u64 = 64 * 1024;

/// Rounds before other sessions of this thread get their turn.
const ROUNDS: u32 = 16;

/// A direction that cannot go on, and on which side.
#[derive(Debug)]
pub enum Broken {
    /// The side the bytes come from.
    Reading(io::Error),
    /// The side the bytes go to.
    Writing(io::Error),
}

/// Bytes that were read and not yet written.
enum Held<'a> {
    Nothing,
    Bytes { buffer: Vec<u8>, written: usize },
    Piped(Pooled<'a>),
}

/// How far a flow goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// To the end of the stream.
    End,
    /// For so many bytes more; the sockets stay open.
    Bytes(u64),
}

/// One end of a flow.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// The socket.
    pub stream: &'a TcpStream,
    /// The keys, where its bytes are in records.
    pub seal: Option<&'a Seal>,
}

impl<'a> Side<'a> {
    /// A side whose bytes are as they are.
    #[must_use]
    pub fn plain(stream: &'a TcpStream) -> Self {
        Self { stream, seal: None }
    }
}

/// One direction.
pub struct Flow<'a> {
    from: Side<'a>,
    to: Side<'a>,
    direction: Direction,
    until: Until,
    held: Held<'a>,
    moved: u64,
    ended: bool,
    /// Whether the record that ends a stream has been made.
    said_end: bool,
    done: bool,
    blocked_since: Option<Instant>,
    meter: &'a Meter,
    pipes: &'a PipePool,
}

impl<'a> Flow<'a> {
    /// A flow from `from` to `to` until the end of the stream.
    pub fn new(from: Side<'a>, to: Side<'a>, direction: Direction, meter: &'a Meter, pipes: &'a PipePool) -> Self {
        let (until, held) = (Until::End, Held::Nothing);
        Self {
            from,
            to,
            direction,
            until,
            held,
            moved: 0,
            ended: false,
            said_end: false,
            done: false,
            blocked_since: None,
            meter,
            pipes,
        }
    }

    /// Sends `bytes`, which were read from `from` before, ahead of everything else.
    #[must_use]
    pub fn beginning_with(mut self, bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return self;
        }
        let buffer = match self.to.seal {
            None => bytes,
            Some(seal) => {
                self.meter.copied(self.direction, bytes.len());
                seal.sealed(&bytes)
            }
        };
        self.held = Held::Bytes { buffer, written: 0 };
        self
    }

    /// Stops after `bytes` more from the socket and leaves both sides open.
    #[must_use]
    pub fn limited_to(mut self, bytes: u64) -> Self {
        self.until = Until::Bytes(bytes);
        self
    }

    /// Runs the flow to its end and returns how many bytes it moved; fewer than its limit when the stream ended first.
    ///
    /// # Errors
    /// [`Broken`] by the side that failed.
    pub async fn run(mut self) -> Result<u64, Broken> {
        std::future::poll_fn(|cx| self.poll(cx)).await?;
        Ok(self.moved)
    }

    /// Moves what can be moved now. Ready once this direction is over.
    ///
    /// # Errors
    /// [`Broken`] by the side that failed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS {
            ready!(self.poll_drain(cx)).map_err(Broken::Writing)?;
            if self.until == Until::Bytes(0) || self.ended {
                if let Some(seal) = self.to.seal
                    && !std::mem::replace(&mut self.said_end, true)
                {
                    self.held = Held::Bytes { buffer: seal.end(), written: 0 };
                    continue;
                }
                self.done = true;
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_fill(cx))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Where the bytes come from, and where they go.
    pub fn sides(&self) -> (&'a TcpStream, &'a TcpStream) {
        (self.from.stream, self.to.stream)
    }

    /// Passes the end of the stream on.
    pub fn pass_end(&self) {
        // The other side may have gone meanwhile, which its own direction will see.
        let _ = SockRef::from(self.to.stream).shutdown(std::net::Shutdown::Write);
    }

    /// Reads once, and writes at once what it read by copying.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            if !self.from.seal.is_some_and(Seal::has_record) {
                ready!(self.from.stream.poll_read_ready(cx)).map_err(Broken::Reading)?;
            }
            let filled = match (self.from.seal, self.pipe()) {
                (Some(seal), _) => self.open_record(seal),
                (None, Some(pipe)) => self.fill_pipe(pipe),
                (None, None) => self.copy(),
            };
            match filled {
                Err(Broken::Reading(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// A pipe, where bytes may go through one and it is worth it.
    fn pipe(&self) -> Option<Pooled<'a>> {
        let plain = self.from.seal.is_none() && self.to.seal.is_none();
        if plain && self.moved >= SPLICE_AFTER { self.pipes.take() } else { None }
    }

    fn fill_pipe(&mut self, mut pipe: Pooled<'a>) -> Result<(), Broken> {
        let most = self.most(pipe.capacity());
        let from = self.from.stream;
        // The pipe is empty here, so "would block" speaks of the socket alone.
        let read = from.try_io(Interest::READABLE, || pipe.fill(from.as_fd(), most)).map_err(Broken::Reading)?;
        self.account(read);
        if read > 0 {
            self.held = Held::Piped(pipe);
        }
        Ok(())
    }

    fn copy(&mut self) -> Result<(), Broken> {
        scratch::with(|scratch| {
            let most = self.most(scratch.len() - HEADER - TAG);
            let read = read_some(self.from.stream, &mut scratch[HEADER..][..most]).map_err(Broken::Reading)?;
            self.account(read);
            if read == 0 {
                return Ok(());
            }
            let fresh = match self.to.seal {
                None => &scratch[HEADER..][..read],
                Some(seal) => {
                    seal.seal(&mut scratch[..HEADER + read + TAG]);
                    &scratch[..HEADER + read + TAG]
                }
            };
            let written = match self.to.stream.try_write(fresh) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(Broken::Writing(error)),
            };
            self.wrote(written);
            if written < fresh.len() {
                self.held = Held::Bytes { buffer: fresh[written..].to_vec(), written: 0 };
            }
            Ok(())
        })
    }

    /// Takes one record; it leaves from the buffer it came in.
    fn open_record(&mut self, seal: &Seal) -> Result<(), Broken> {
        let Some(Opened { mut record, plain }) = seal.read(self.from.stream).map_err(Broken::Reading)? else {
            return Err(Broken::Reading(io::ErrorKind::WouldBlock.into()));
        };
        self.account(plain.len());
        let written = match self.to.seal {
            None => {
                record.truncate(plain.end);
                plain.start
            }
            Some(_) if plain.is_empty() => return Ok(()),
            Some(seal) => {
                seal.seal(&mut record);
                0
            }
        };
        self.held = Held::Bytes { buffer: record, written };
        Ok(())
    }

    /// Counts bytes that were written from a buffer. Records are counted by what is in them, when that is read.
    fn wrote(&self, bytes: usize) {
        if self.to.seal.is_none() {
            self.meter.copied(self.direction, bytes);
        }
    }

    fn most(&self, room: usize) -> usize {
        match self.until {
            Until::End => room,
            Until::Bytes(left) => usize::try_from(left).map_or(room, |left| left.min(room)),
        }
    }

    fn account(&mut self, read: usize) {
        self.ended = read == 0;
        self.moved += read as u64;
        if self.to.seal.is_some() {
            self.meter.copied(self.direction, read);
        }
        if let Until::Bytes(left) = &mut self.until {
            *left -= read as u64;
        }
    }

    /// Writes what is held, until nothing is.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !matches!(self.held, Held::Nothing) {
            if self.to.stream.poll_write_ready(cx)?.is_pending() {
                self.blocked_since.get_or_insert_with(Instant::now);
                return Poll::Pending;
            }
            match self.drain() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
        if let Some(since) = self.blocked_since.take() {
            self.meter.blocked(self.direction, since.elapsed());
        }
        Poll::Ready(Ok(()))
    }

    fn drain(&mut self) -> io::Result<()> {
        let to = self.to.stream;
        let empty = match &mut self.held {
            Held::Nothing => true,
            Held::Bytes { buffer, written } => {
                let fresh = to.try_write(&buffer[*written..])?;
                *written += fresh;
                let all = *written == buffer.len();
                self.wrote(fresh);
                all
            }
            Held::Piped(pipe) => {
                let fresh = to.try_io(Interest::WRITABLE, || pipe.drain(to.as_fd()))?;
                self.meter.spliced(self.direction, fresh);
                pipe.is_empty()
            }
        };
        if empty {
            self.held = Held::Nothing;
        }
        Ok(())
    }
}

/// Reads once. A read that fills less than the buffer has emptied the socket, and with edge-triggered epoll the next bytes
/// make an event of their own, so the readiness is used up: it saves the read that would only say "would block".
fn read_some(from: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut emptied = None;
    let result = from.try_io(Interest::READABLE, || {
        let read = (&*SockRef::from(from)).read(buffer)?;
        if read > 0 && read < buffer.len() {
            emptied = Some(read);
            // Nothing went wrong: this is how a readiness is given back.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(read)
    });
    emptied.map_or(result, Ok)
}

//! One direction of a session: read from one socket, write to the other.
//!
//! Order of things in [`DuplexBytes::poll`]: first write what is held, then read more. A flow holds bytes
//! only while the receiving side has no room, so an idle session has neither buffer nor pipe.

mod fill;
mod shape;

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use ekiden_proto::direction::Direction;
use shape::ReadShaper;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::backlog::BacklogLimiter;
use super::cipher::RecordCipher;
use super::pipes::{PipePool, PooledPipe};
use super::stats::{FlowStats, StallGuard};

/// Bytes a direction has to move before a pipe is worth its system calls.
const SPLICE_AFTER: u64 = 64 * 1024;

/// Rounds before other sessions of this thread get their turn.
const ROUNDS_PER_TURN: u32 = 16;

/// A direction that cannot go on, and on which side.
#[derive(Debug)]
pub enum FlowError {
    /// The side the bytes come from.
    Reading(io::Error),
    /// The side the bytes go to.
    Writing(io::Error),
}

/// Bytes that were read and not yet written.
enum PendingBytes<'a> {
    Nothing,
    Bytes { buffer: Vec<u8>, written: usize },
    Piped(PooledPipe<'a>),
}

/// How far a flow goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowLimit {
    /// To the end of the stream.
    End,
    /// For so many bytes more; the sockets stay open.
    Bytes(u64),
}

/// One end of a flow.
#[derive(Clone, Copy)]
pub struct Endpoint<'a> {
    /// The socket.
    pub stream: &'a TcpStream,
    /// The keys, where its bytes are in records.
    pub cipher: Option<&'a RecordCipher>,
}

impl<'a> Endpoint<'a> {
    /// A side whose bytes are as they are.
    #[must_use]
    pub fn plain(stream: &'a TcpStream) -> Self {
        Self { stream, cipher: None }
    }
}

/// One direction.
pub struct Flow<'a> {
    from: Endpoint<'a>,
    to: Endpoint<'a>,
    direction: Direction,
    limit: FlowLimit,
    pending: PendingBytes<'a>,
    moved: u64,
    ended: bool,
    /// Whether the record that ends a stream has been made.
    said_end: bool,
    done: bool,
    stall: Option<StallGuard<'a>>,
    backlog: BacklogLimiter,
    /// None as long as nobody tunes where they go.
    shape: Option<Box<ReadShaper<'a>>>,
    stats: &'a FlowStats,
    pipes: &'a PipePool,
}

impl<'a> Flow<'a> {
    /// A flow from `from` to `to` until the end of the stream.
    pub fn new(
        from: Endpoint<'a>,
        to: Endpoint<'a>,
        direction: Direction,
        stats: &'a FlowStats,
        pipes: &'a PipePool,
    ) -> Self {
        let (limit, pending) = (FlowLimit::End, PendingBytes::Nothing);
        Self {
            from,
            to,
            direction,
            limit,
            pending,
            moved: 0,
            ended: false,
            said_end: false,
            done: false,
            stall: None,
            backlog: BacklogLimiter::new(),
            shape: stats.is_tuned(direction).then(|| Box::new(ReadShaper::new(from.stream))),
            stats,
            pipes,
        }
    }

    /// Sends `bytes`, which were read from `from` before, ahead of everything else.
    #[must_use]
    pub fn with_early_bytes(mut self, bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return self;
        }
        let buffer = match self.to.cipher {
            None => bytes,
            Some(cipher) => {
                self.stats.record_copied(self.direction, bytes.len());
                cipher.seal_all(&bytes)
            }
        };
        self.pending = PendingBytes::Bytes { buffer, written: 0 };
        self
    }

    /// Stops after `bytes` more from the socket and leaves both sides open.
    #[must_use]
    pub fn with_limit(mut self, bytes: u64) -> Self {
        self.limit = FlowLimit::Bytes(bytes);
        self
    }

    /// Runs the flow to its end and returns how many bytes it moved; fewer than its limit when the stream ended first.
    ///
    /// # Errors
    /// [`Broken`] by the side that failed.
    pub async fn run(mut self) -> Result<u64, FlowError> {
        std::future::poll_fn(|cx| self.poll(cx)).await?;
        Ok(self.moved)
    }

    /// Moves what can be moved now. Ready once this direction is over.
    ///
    /// # Errors
    /// [`Broken`] by the side that failed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..ROUNDS_PER_TURN {
            ready!(self.poll_drain(cx)).map_err(FlowError::Writing)?;
            if self.limit == FlowLimit::Bytes(0) || self.ended {
                if let Some(cipher) = self.to.cipher
                    && !std::mem::replace(&mut self.said_end, true)
                {
                    self.pending = PendingBytes::Bytes { buffer: cipher.end_record(), written: 0 };
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
    pub fn sides(&self) -> (Endpoint<'a>, Endpoint<'a>) {
        (self.from, self.to)
    }

    /// Which way the bytes go.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Passes the end of the stream on.
    pub fn forward_end(&self) {
        // The other side may have gone meanwhile, which its own direction will see.
        let _ = SockRef::from(self.to.stream).shutdown(std::net::Shutdown::Write);
    }

    /// Writes what is held, until nothing is.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !matches!(self.pending, PendingBytes::Nothing) {
            if self.to.stream.poll_write_ready(cx)?.is_pending() {
                self.stall.get_or_insert_with(|| self.stats.start_stall(self.direction));
                return Poll::Pending;
            }
            match self.drain() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
        if let Some(stall) = self.stall.take() {
            let blocked = stall.end();
            self.backlog.on_unblocked(self.from.stream, self.to.stream, blocked, self.moved);
        }
        Poll::Ready(Ok(()))
    }

    fn drain(&mut self) -> io::Result<()> {
        let to = self.to.stream;
        let empty = match &mut self.pending {
            PendingBytes::Nothing => true,
            PendingBytes::Bytes { buffer, written } => {
                let fresh = to.try_write(&buffer[*written..])?;
                *written += fresh;
                let all = *written == buffer.len();
                self.on_written(fresh);
                all
            }
            PendingBytes::Piped(pipe) => {
                let fresh = to.try_io(Interest::WRITABLE, || pipe.drain(to.as_fd()))?;
                self.stats.record_spliced(self.direction, fresh);
                pipe.is_empty()
            }
        };
        if empty {
            self.pending = PendingBytes::Nothing;
        }
        Ok(())
    }
}

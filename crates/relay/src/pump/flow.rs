//! One direction of a session: reads from one socket and writes to the other.
//!
//! [`Flow::poll`] writes pending bytes before it reads more. A flow holds bytes only while the receiver has no room, so
//! an idle session has neither buffer nor pipe.
//!
//! A flow runs until the end of the stream, or repeatedly: each run moves a number of bytes, and the runs share the
//! assessment of the receiver.
//!
//! Edge-triggered epoll reports readiness once (epoll(7)). A read that returns fewer bytes than it asked for has
//! emptied the socket, with one exception: it stopped at urgent data. recv(2) returns the bytes before the urgent byte
//! alone; the next read begins with the urgent byte. splice(2) answers EAGAIN or end of stream at the urgent byte. Then
//! more bytes are in the socket, and no further event announces them.

use std::cell::RefCell;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use ekiden_proto::direction::Direction;
use ekiden_proto::tuning;
use ekiden_proto::wire::section::chunk::{self, ChunkReader};
use ekiden_proto::wire::section::record::{HEADER_LENGTH, MAX_PLAINTEXT, TAG_LENGTH};
use ekiden_sys::outq::unread;
use ekiden_sys::splice::send_before_splice;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::allowance::FlowTurn;
use super::backlog::BacklogLimiter;
use super::cipher::{OpenedRecord, RecordCipher};
use super::framing::{ChunkHeader, Endpoint, Framing, invalid, read_chunk_boundary};
use super::kernel_tls::KernelTls;
use super::pipes::{PipePool, PooledPipe};
use super::read_shaper::ReadShaper;
use super::stats::{FlowStats, StallGuard};
use super::{has_held_end, hold_end};

/// Bytes that a direction moves by copying before it borrows a pipe.
const SPLICE_AFTER: u64 = 64 * 1024;

/// Maximum number of rounds in one poll, before other sessions of this thread run.
const ROUNDS_PER_TURN: u32 = 16;

/// The failure of a direction, and the side that failed.
#[derive(Debug)]
pub enum FlowError {
    /// The sending side failed.
    Reading(io::Error),
    /// The receiving side failed.
    Writing(io::Error),
}

/// Bytes that were read and not yet written.
enum PendingBytes<'a> {
    Nothing,
    /// Payload that was read without a turn, and has no framing yet.
    Early(Vec<u8>),
    Bytes {
        buffer: Vec<u8>,
        written: usize,
    },
    Piped {
        pipe: PooledPipe<'a>,
        header: ChunkHeader,
    },
    /// The TLS alert that ends the stream.
    KernelTlsEnd(&'a KernelTls),
}

/// The point at which a flow stops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowLimit {
    /// At the end of the stream.
    End,
    /// After this number of further bytes; the sockets stay open.
    Bytes(u64),
}

/// State of a receiver whose socket was full at least once.
struct SlowReceiver<'a> {
    /// `None` while there is room.
    stall: Option<StallGuard<'a>>,
    backlog: BacklogLimiter<'a>,
}

/// One direction of a session.
pub struct Flow<'a> {
    from: Endpoint<'a>,
    to: Endpoint<'a>,
    direction: Direction,
    limit: FlowLimit,
    pending: PendingBytes<'a>,
    /// Number of bytes from the socket in this run.
    moved: u64,
    /// Number of early bytes, which are sent ahead of the bytes from the socket, and of bytes of earlier runs.
    earlier: u64,
    /// The position in the chunks of `from`, if it has chunks.
    chunks: Option<Box<ChunkReader>>,
    ended: bool,
    /// Whether the bytes that end the framed stream have been generated.
    is_end_framed: bool,
    done: bool,
    /// `None` until the socket of the receiver is full for the first time.
    slow_receiver: Option<Box<SlowReceiver<'a>>>,
    /// Number of bytes that may be read, and the time of the read, under the limits of the session.
    turn: FlowTurn<'a>,
    /// Gathers small reads; `None` unless the receiving section is tuned.
    shape: Option<Box<ReadShaper<'a>>>,
    stats: &'a FlowStats,
    pipes: &'a PipePool,
}

impl<'a> Flow<'a> {
    /// Creates a flow from `from` to `to` that runs until the end of the stream.
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
            earlier: 0,
            chunks: from.framing.chunks().map(|_| Box::default()),
            ended: false,
            is_end_framed: false,
            done: false,
            slow_receiver: None,
            turn: FlowTurn::new(),
            shape: stats.is_tuned(direction).then(|| Box::new(ReadShaper::new(from.stream))),
            stats,
            pipes,
        }
    }

    /// Sends `bytes`, which were read from `from` earlier, before all other bytes.
    #[must_use]
    pub fn with_early_bytes(mut self, bytes: Vec<u8>) -> Self {
        self.set_early(bytes);
        self
    }

    fn set_early(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        self.earlier += bytes.len() as u64;
        if let Some(receiver) = &mut self.slow_receiver {
            receiver.backlog.on_read(bytes.len());
        }
        self.pending = PendingBytes::Early(bytes);
    }

    /// Sends `early`, which was read from `from` earlier, and then `limit` bytes from the socket. Returns the number of
    /// bytes from the socket, which is below `limit` if the stream ended first. Leaves both sides open, so the flow can
    /// run again.
    ///
    /// # Errors
    /// [`FlowError`] with the side that failed.
    pub async fn run(&mut self, early: Vec<u8>, limit: u64) -> Result<u64, FlowError> {
        self.earlier += std::mem::take(&mut self.moved);
        self.set_early(early);
        (self.limit, self.done) = (FlowLimit::Bytes(limit), false);
        std::future::poll_fn(|cx| self.poll(cx)).await?;
        Ok(self.moved)
    }

    /// Moves all bytes that can move now. Ready when this direction has ended.
    ///
    /// # Errors
    /// [`FlowError`] with the side that failed.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        if self.done {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_early(cx))?;
        for _ in 0..ROUNDS_PER_TURN {
            ready!(self.poll_drain(cx)).map_err(FlowError::Writing)?;
            if self.limit == FlowLimit::Bytes(0) || self.ended {
                if self.limit == FlowLimit::End
                    && !std::mem::replace(&mut self.is_end_framed, true)
                    && let Some(end) = self.end_of_stream()
                {
                    self.pending = end;
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

    /// As [`Self::poll`], but without the end of the framed stream: the sending side has failed, and the error may have
    /// been reported to a write, so that reads return a plain end of stream.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_truncated(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        self.is_end_framed = true;
        self.poll(cx)
    }

    /// Returns the sending side and the receiving side.
    pub fn sides(&self) -> (Endpoint<'a>, Endpoint<'a>) {
        (self.from, self.to)
    }

    /// Returns the direction of the flow.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the number of bytes of the stream so far.
    fn total(&self) -> u64 {
        self.earlier + self.moved
    }

    /// Returns the bytes or the alert that ends the framed stream; `None` if the framing has no such end.
    fn end_of_stream(&self) -> Option<PendingBytes<'a>> {
        if let Framing::KernelTls(tls) = self.to.framing {
            return Some(PendingBytes::KernelTlsEnd(tls));
        }
        let buffer = self.to.framing.end_of_stream(self.total())?;
        if self.to.framing.is_reusable() && self.stats.is_last_session(self.direction) {
            hold_end(self.to.stream);
        }
        Some(PendingBytes::Bytes { buffer, written: 0 })
    }

    /// Forwards the end of the stream as FIN. Sends no FIN on a section that carries another session, where the framing
    /// carries the end, and none in kernel TLS, where the alert carries it: FIN could overtake records that the kernel
    /// encrypts later (asynchronous ciphers).
    pub fn forward_end(&self) {
        // The kernel is asked only in the sessions that may have held the end.
        let is_last = self.stats.is_last_session(self.direction) && has_held_end(self.to.stream);
        let is_reused = self.to.framing.is_reusable() && !is_last;
        if is_reused || matches!(self.to.framing, Framing::KernelTls(_)) {
            return;
        }
        // If the receiving side has failed meanwhile, the opposite flow reports the error.
        let _ = SockRef::from(self.to.stream).shutdown(std::net::Shutdown::Write);
    }

    /// Waits for the turn of the early bytes and frames them.
    fn poll_early(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        if !matches!(self.pending, PendingBytes::Early(_)) {
            return Poll::Ready(Ok(()));
        }
        // Bytes of a server are delivered although it is reset meanwhile.
        let from = (self.direction == Direction::Up && self.limit != FlowLimit::Bytes(0)).then_some(self.from);
        ready!(self.turn.poll_write(cx, from, self.stats, self.direction)).map_err(FlowError::Reading)?;
        if let PendingBytes::Early(bytes) = std::mem::replace(&mut self.pending, PendingBytes::Nothing) {
            self.count_framed(bytes.len());
            let buffer = self.to.framing.frame(bytes).map_err(FlowError::Writing)?;
            self.pending = PendingBytes::Bytes { buffer, written: 0 };
        }
        Poll::Ready(Ok(()))
    }

    /// Writes until no pending bytes are left.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !matches!(self.pending, PendingBytes::Nothing) {
            if self.to.stream.poll_write_ready(cx)?.is_pending() {
                self.on_no_room();
                return Poll::Pending;
            }
            match self.drain() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => other?,
            }
        }
        if let Some(receiver) = &mut self.slow_receiver
            && let Some(stall) = receiver.stall.take()
        {
            receiver.backlog.on_unblocked(stall.end(), self.earlier + self.moved);
        }
        Poll::Ready(Ok(()))
    }

    fn on_no_room(&mut self) {
        let (from, to, total) = (self.from.stream, self.to.stream, self.total());
        let new = || Box::new(SlowReceiver { stall: None, backlog: BacklogLimiter::new(from, to, total) });
        let receiver = self.slow_receiver.get_or_insert_with(new);
        receiver.stall.get_or_insert_with(|| self.stats.start_stall(self.direction));
    }

    fn drain(&mut self) -> io::Result<()> {
        let to = self.to.stream;
        let empty = match &mut self.pending {
            PendingBytes::Nothing => true,
            PendingBytes::Early(_) => unreachable!("invariant: early bytes are framed first"),
            PendingBytes::Bytes { buffer, written } => {
                let sent = to.try_write(&buffer[*written..])?;
                *written += sent;
                let is_drained = *written == buffer.len();
                self.on_written(sent)?;
                is_drained
            }
            PendingBytes::Piped { pipe, header } => {
                while !header.rest().is_empty() {
                    header.on_sent(to.try_io(Interest::WRITABLE, || send_before_splice(to.as_fd(), header.rest()))?);
                }
                let sent = to.try_io(Interest::WRITABLE, || pipe.drain(to.as_fd()))?;
                self.stats.record_spliced(self.direction, sent);
                let is_drained = pipe.is_empty();
                self.to.framing.on_sent(sent)?;
                is_drained
            }
            PendingBytes::KernelTlsEnd(tls) => {
                tls.send_end()?;
                true
            }
        };
        if empty {
            self.pending = PendingBytes::Nothing;
        }
        Ok(())
    }
}

impl<'a> Flow<'a> {
    /// Reads once, and immediately writes bytes that were copied.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), FlowError>> {
        loop {
            if self.from.is_read_from_socket() {
                ready!(self.poll_readable(cx)).map_err(FlowError::Reading)?;
                ready!(self.poll_shape(cx));
            }
            ready!(self.turn.poll_read(cx, self.from, self.stats, self.direction)).map_err(FlowError::Reading)?;
            match self.fill() {
                Err(FlowError::Reading(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }

    /// Ready when the socket has bytes, or has ended.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let readable = self.from.stream.poll_read_ready(cx);
        match self.from.framing {
            Framing::KernelTls(tls) if readable.is_pending() => tls.poll_record_error(cx).map(Err),
            _ => readable,
        }
    }

    /// Reads once: payload, or the boundary of a chunk.
    fn fill(&mut self) -> Result<(), FlowError> {
        if let Some(cipher) = self.from.framing.records() {
            return self.open_record(cipher);
        }
        if let (Some(chunks), Some(cipher)) = (&mut self.chunks, self.from.framing.chunks())
            && chunks.left() == 0
        {
            self.ended = read_chunk_boundary(chunks, self.from.stream, cipher).map_err(FlowError::Reading)?;
            return Ok(());
        }
        match self.acquire_pipe() {
            Some(pipe) => self.fill_pipe(pipe),
            None => self.copy_once(),
        }
    }

    /// Ready when the bytes in the socket are to be read now, pending while more of them gather.
    fn poll_shape(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let answers = self.stats.bytes(self.direction.opposite());
        self.shape.as_mut().map_or(Poll::Ready(()), |shape| shape.poll(cx, answers))
    }

    /// Takes a pipe from the pool if the bytes are not encrypted by this process and the flow has moved
    /// [`SPLICE_AFTER`] bytes.
    fn acquire_pipe(&self) -> Option<PooledPipe<'a>> {
        let plain = !self.from.framing.is_encrypted() && !self.to.framing.is_encrypted();
        if plain && self.moved >= SPLICE_AFTER { self.pipes.take() } else { None }
    }

    fn fill_pipe(&mut self, mut pipe: PooledPipe<'a>) -> Result<(), FlowError> {
        let most = self.limited_size(pipe.capacity());
        let from = self.from;
        let mut is_stopped = false;
        let read = from.stream.try_io(Interest::READABLE, || {
            let filled = pipe.fill(from.stream.as_fd(), most);
            is_stopped = from.is_splice_stopped(&filled);
            if is_stopped { Ok(0) } else { filled }
        });
        if is_stopped {
            return self.copy_once();
        }
        let read = read.map_err(FlowError::Reading)?;
        self.on_payload(read)?;
        if read > 0 {
            let header = self.to.framing.chunks().map(|_| chunk::header(read));
            self.pending = PendingBytes::Piped { pipe, header: ChunkHeader::new(header) };
        }
        Ok(())
    }

    fn copy_once(&mut self) -> Result<(), FlowError> {
        let room = self.read_size();
        with(|scratch| {
            let most = self.limited_size(room);
            // The same read takes the header of the next chunk, which saves one read for each chunk.
            let chunk = self.chunks.as_ref().filter(|chunks| chunks.left() == most);
            let ahead = chunk.map_or(0, |chunks| chunks.missing_header());
            let buffer = &mut scratch[HEAD..][..most + ahead];
            let from = self.from.stream;
            let read = match self.from.framing {
                Framing::Tls(cipher) => cipher.read(from, buffer),
                Framing::KernelTls(tls) => tls.read(buffer),
                _ => read_once(from, most + ahead, || (&*SockRef::from(from)).read(buffer)),
            };
            let read = read.map_err(FlowError::Reading)?;
            let (read, excess) = (read.min(most), read.saturating_sub(most));
            self.on_payload(read)?;
            if read == 0 {
                return Ok(());
            }
            self.count_framed(read);
            if let Some(chunks) = self.chunks.as_mut().filter(|_| excess > 0) {
                let header = &scratch[HEAD + read..][..excess];
                chunks.on_header(header).map_err(|error| FlowError::Reading(invalid(error)))?;
            }
            let sealed;
            let framed = match self.to.framing {
                Framing::Raw | Framing::KernelTls(_) => &scratch[HEAD..][..read],
                Framing::Records(cipher) | Framing::ReusableRecords(cipher) => {
                    let record = &mut scratch[HEAD - HEADER_LENGTH..HEAD + read + TAG_LENGTH];
                    cipher.seal(record);
                    record
                }
                Framing::Chunks(_) => {
                    let chunk = &mut scratch[HEAD - chunk::HEADER_LENGTH..HEAD + read];
                    chunk[..chunk::HEADER_LENGTH].copy_from_slice(&chunk::header(read));
                    chunk
                }
                Framing::Tls(cipher) => {
                    sealed = cipher.seal(&scratch[HEAD..][..read]).map_err(FlowError::Writing)?;
                    &sealed
                }
            };
            let written = match self.to.stream.try_write(framed) {
                Ok(written) => written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(FlowError::Writing(error)),
            };
            self.on_written(written).map_err(FlowError::Writing)?;
            if written < framed.len() {
                self.pending = PendingBytes::Bytes { buffer: framed[written..].to_vec(), written: 0 };
            }
            Ok(())
        })
    }

    /// Returns the size of the next read. Records grow with the stream: every relay waits for a whole record, which
    /// adds most delay while congestion windows are small, and the overhead of small records is highest when windows
    /// are large.
    fn read_size(&mut self) -> usize {
        let framing = self.to.framing;
        match (framing.records(), &mut self.shape) {
            (None, _) if framing.is_tls() => tuning::max_record_size(self.moved, MAX_PLAIN),
            (None, _) => MAX_PLAIN,
            (Some(_), None) => tuning::max_record_size(self.moved, MAX_PLAINTEXT),
            (Some(_), Some(shape)) => {
                let room = shape.read_limit(MAX_PLAINTEXT);
                self.stats.set_max_record(self.direction, room);
                room
            }
        }
    }

    /// Opens one record, or several small ones together; the plaintext is written from the buffer of the record.
    fn open_record(&mut self, cipher: &RecordCipher) -> Result<(), FlowError> {
        let Some(OpenedRecord { mut record, plaintext: plain }) =
            cipher.read_batch(self.from.stream).map_err(FlowError::Reading)?
        else {
            return Err(FlowError::Reading(io::ErrorKind::WouldBlock.into()));
        };
        self.on_read(plain.len())?;
        if plain.is_empty() {
            return Ok(());
        }
        self.count_framed(plain.len());
        let (buffer, written) = match self.to.framing {
            Framing::Raw | Framing::KernelTls(_) => {
                record.truncate(plain.end);
                (record, plain.start)
            }
            Framing::Records(cipher) | Framing::ReusableRecords(cipher) => {
                cipher.seal(&mut record);
                (record, 0)
            }
            Framing::Chunks(_) => (self.to.framing.frame(record[plain].to_vec()).map_err(FlowError::Writing)?, 0),
            Framing::Tls(cipher) => (cipher.seal(&record[plain]).map_err(FlowError::Writing)?, 0),
        };
        self.pending = PendingBytes::Bytes { buffer, written };
        Ok(())
    }

    /// Counts payload that is copied into a framing. Writes of framed bytes are not counted, because their lengths
    /// include the framing.
    fn count_framed(&self, read: usize) {
        if !self.to.framing.is_written_raw() {
            self.stats.record_copied(self.direction, read);
        }
    }

    /// Counts bytes written from a buffer.
    fn on_written(&self, bytes: usize) -> io::Result<()> {
        if self.to.framing.is_written_raw() {
            self.stats.record_copied(self.direction, bytes);
        }
        self.to.framing.on_sent(bytes)
    }

    fn limited_size(&self, room: usize) -> usize {
        let room = self.slow_receiver.as_ref().map_or(room, |receiver| receiver.backlog.read_limit(room));
        let room = room.min(self.turn.most());
        let room = self.chunks.as_ref().map_or(room, |chunks| room.min(chunks.left()));
        match self.limit {
            FlowLimit::End => room,
            FlowLimit::Bytes(left) => usize::try_from(left).map_or(room, |left| left.min(room)),
        }
    }

    /// Records payload that was read from a socket; 0 is its FIN.
    fn on_payload(&mut self, read: usize) -> Result<(), FlowError> {
        if let Some(chunks) = &mut self.chunks {
            if read == 0 {
                return Err(FlowError::Reading(io::ErrorKind::ConnectionReset.into()));
            }
            chunks.on_payload(read);
        }
        self.on_read(read)
    }

    fn on_read(&mut self, read: usize) -> Result<(), FlowError> {
        self.turn.check_payload(read).map_err(FlowError::Reading)?;
        self.ended = read == 0;
        self.moved += read as u64;
        if let Some(receiver) = &mut self.slow_receiver {
            receiver.backlog.on_read(read);
        }
        let answers = self.stats.bytes(self.direction.opposite());
        if let Some(shape) = &mut self.shape {
            shape.on_read(read, answers);
        }
        if let FlowLimit::Bytes(left) = &mut self.limit {
            *left -= read as u64;
        }
        Ok(())
    }
}

/// Returns whether the socket holds unread bytes. FIONREAD counts urgent data too, because `SO_OOBINLINE` is set on all
/// sockets (`sockopt::apply`). SIOCATMARK is not enough: a segment without data can move the mark between the read and
/// the ioctl.
pub fn has_unread(from: &TcpStream) -> bool {
    unread(from.as_fd()).is_ok_and(|bytes| bytes > 0)
}

/// Calls `read` once, for at most `room` bytes. A read that empties the socket clears the readiness, which saves a read
/// that would only return EAGAIN.
///
/// # Errors
/// The error of `read`; `WouldBlock` when the socket is not ready.
pub fn read_once(from: &TcpStream, room: usize, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let mut emptied = None;
    let result = from.try_io(Interest::READABLE, || {
        let count = read()?;
        if count > 0 && count < room && !has_unread(from) {
            emptied = Some(count);
            // Not a failure: tokio clears the readiness of the socket on `WouldBlock`.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    });
    emptied.map_or(result, Ok)
}

/// The buffer holds 64 KiB of plaintext or one record of that size: large enough for cheap copying, and a bound for the
/// bytes that a slow receiver leaves in a session.
const SIZE: usize = HEAD + MAX_PLAIN + TAG_LENGTH;

/// Bytes before the payload, for the header of a record or of a chunk.
const HEAD: usize = chunk::HEADER_LENGTH;

/// Largest plain read, in bytes.
pub const MAX_PLAIN: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Calls `f` with the buffer of the thread.
pub fn with<T>(f: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| f(scratch))
}

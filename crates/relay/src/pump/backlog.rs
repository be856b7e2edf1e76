//! Bounds the backlog of a slow receiver near the bytes that are in flight, so that the relay does not hide the
//! receiver from the sender.
//!
//! Socket buffers grow while both sides are fast, and the kernel never shrinks them. While a flow spends most of its
//! time waiting for its receiver, the sender may be ahead by the bytes that both sections hold at that rate: enough for
//! the writing section to continue while the reading section recovers from a loss.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_sys::queued::{
    is_receive_buffer_locked, lock_receive_buffer, notsent_lowat, receive_buffer, set_notsent_lowat,
    unlock_receive_buffer,
};
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;

/// How often a flow is judged, at most.
const MIN_JUDGE_INTERVAL: Duration = Duration::from_secs(1);

/// The least that a sender may be ahead, in bytes: a receiver that wakes up again finds something.
const MIN_AHEAD: u32 = 256 * 1024;

/// The shortest bound, in time: tighter bounds would only make the writes of a fast flow smaller.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// The least of unsent bytes that the kernel may hold, and that are read at once.
const MIN_UNSENT: u32 = 128 * 1024;

/// A receive buffer shrinks by one step each time this many bytes of it have been read.
const SHRINK_STEP: usize = 64 * 1024;

/// Measures how slow the receiver of one flow is, and bounds the socket buffers on both sides of the relay.
pub struct BacklogLimiter {
    since: Instant,
    /// Time without room since then.
    blocked: Duration,
    /// Bytes that the flow had moved by then.
    moved: u64,
    /// None while nothing is bounded.
    bounds: Option<BufferBounds>,
}

/// Limits for bytes in the kernel that wait for the receiver.
#[derive(Clone, Copy)]
struct BufferBounds {
    /// The former limit of unsent bytes.
    before: u32,
    now: u32,
    /// `None` if the receive buffer has its final size or is not limited.
    excess: Option<ExcessBuffer>,
}

/// A receive buffer that is too large. The kernel has advertised a window for it: bytes of that window that do not fit
/// into a smaller buffer are dropped and cost a retransmission timeout. So the buffer shrinks only by bytes that have
/// been read.
#[derive(Clone, Copy)]
struct ExcessBuffer {
    /// The final size.
    least: u32,
    /// Bytes read since the buffer last shrank.
    read: usize,
}

impl BacklogLimiter {
    /// A flow without backlog.
    pub fn new() -> Self {
        Self { since: Instant::now(), blocked: Duration::ZERO, moved: 0, bounds: None }
    }

    /// The receiver has room again after `blocked` without; `moved` is the total of the flow so far.
    pub fn on_unblocked(&mut self, from: &TcpStream, to: &TcpStream, blocked: Duration, moved: u64) {
        self.blocked += blocked;
        let span = self.since.elapsed();
        if span < MIN_JUDGE_INTERVAL {
            return;
        }
        let rate = (moved - self.moved) as f64 / span.as_secs_f64();
        let slow = self.blocked > span / 2;
        (self.since, self.blocked, self.moved) = (Instant::now(), Duration::ZERO, moved);
        // Where the kernel refuses, there is simply no bound.
        let _ = if slow { self.apply_bounds(from, to, rate) } else { self.lift_bounds(from, to) };
    }

    /// Most that is to be read at once.
    pub fn read_limit(&self, most: usize) -> usize {
        self.bounds.map_or(most, |bounds| most.min(bounds.now as usize))
    }

    /// Records `bytes` read from the sender.
    pub fn on_read(&mut self, from: &TcpStream, bytes: usize) {
        let Some(bounds) = &mut self.bounds else { return };
        let Some(excess) = &mut bounds.excess else { return };
        excess.read += bytes;
        if excess.read >= SHRINK_STEP {
            // A kernel that refuses is not asked again.
            bounds.excess = excess.shrink(from).unwrap_or_default();
        }
    }

    fn apply_bounds(&mut self, from: &TcpStream, to: &TcpStream, rate: f64) -> std::io::Result<()> {
        let (from, to) = (from.as_fd(), to.as_fd());
        if self.bounds.is_none() && is_receive_buffer_locked(from)? {
            // The profile sets the bounds itself.
            return Ok(());
        }
        let round_trips = tcp_info(from)?.min_rtt + tcp_info(to)?.min_rtt;
        let pre_dialed = (rate * round_trips.max(MIN_WAIT).as_secs_f64()) as u32;
        let before = self.bounds.map_or_else(|| notsent_lowat(to), |bounds| Ok(bounds.before))?;
        let wanted = (pre_dialed / 2).max(MIN_UNSENT);
        // 0 means no limit.
        let now = if before == 0 { wanted } else { before.min(wanted) };
        self.bounds = Some(BufferBounds { before, now, excess: None });
        set_notsent_lowat(to, now)?;
        let (least, pending) = (pre_dialed.max(MIN_AHEAD), receive_buffer(from)?);
        if lock_receive_buffer(from, pending.max(least)).is_err() {
            // As large as that, or not at all.
            return unlock_receive_buffer(from);
        }
        if let Some(bounds) = &mut self.bounds {
            bounds.excess = (pending > least).then_some(ExcessBuffer { least, read: 0 });
        }
        Ok(())
    }

    fn lift_bounds(&mut self, from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        set_notsent_lowat(to.as_fd(), bounds.before)?;
        unlock_receive_buffer(from.as_fd())
    }
}

impl ExcessBuffer {
    /// Shrinks the buffer by the bytes read and returns the remaining excess. The kernel counts a buffer twice, and
    /// each byte in it at least once, so half of the buffer is safe to remove.
    fn shrink(self, from: &TcpStream) -> std::io::Result<Option<Self>> {
        let from = from.as_fd();
        let read = u32::try_from(self.read / 2).unwrap_or(u32::MAX);
        let left = receive_buffer(from)?.saturating_sub(read).max(self.least);
        lock_receive_buffer(from, left)?;
        Ok((left > self.least).then_some(Self { read: 0, ..self }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A backlog that has found its receiver slow, between a sender with a receive buffer of `held` bytes and a receiver.
    async fn slow(pending: u32) -> Option<(BacklogLimiter, TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connected = || TcpStream::connect(listener.local_addr().unwrap());
        let (from, to) = (connected().await.unwrap(), connected().await.unwrap());
        if let Err(error) = lock_receive_buffer(from.as_fd(), MIN_AHEAD + pending) {
            println!("skipped: receive buffers of this size are not granted here: {error}");
            return None;
        }
        lock_receive_buffer(from.as_fd(), pending).unwrap();
        unlock_receive_buffer(from.as_fd()).unwrap();
        let mut backlog =
            BacklogLimiter { since: Instant::now().checked_sub(MIN_JUDGE_INTERVAL).unwrap(), ..BacklogLimiter::new() };
        backlog.on_unblocked(&from, &to, MIN_JUDGE_INTERVAL, 1000);
        Some((backlog, from, to))
    }

    fn size(stream: &TcpStream) -> u32 {
        receive_buffer(stream.as_fd()).unwrap()
    }

    /// Found by `limiting-factor`: a buffer that was reduced at once dropped data in flight, and its sender fell
    /// silent.
    #[tokio::test]
    async fn a_receive_buffer_shrinks_by_what_was_read() {
        const HELD: u32 = MIN_AHEAD + 100_000;
        let Some((mut backlog, from, to)) = slow(HELD).await else { return };
        assert!(is_receive_buffer_locked(from.as_fd()).unwrap());
        assert_eq!(size(&from), HELD, "nothing was read yet");
        backlog.on_read(&from, SHRINK_STEP - 1);
        assert_eq!(size(&from), HELD, "little was read");
        backlog.on_read(&from, 1);
        assert_eq!(size(&from), HELD - 32_768);
        backlog.on_read(&from, 100_000);
        assert_eq!(size(&from), HELD - 32_768 - 50_000);
        for _ in 0..3 {
            backlog.on_read(&from, SHRINK_STEP);
        }
        assert_eq!(size(&from), MIN_AHEAD);

        backlog.since = Instant::now().checked_sub(MIN_JUDGE_INTERVAL).unwrap();
        backlog.on_unblocked(&from, &to, Duration::ZERO, 1_000_000);
        assert!(!is_receive_buffer_locked(from.as_fd()).unwrap(), "it is fast again");
        backlog.on_read(&from, SHRINK_STEP);
        assert_eq!(size(&from), MIN_AHEAD);
    }

    #[tokio::test]
    async fn a_small_receive_buffer_becomes_as_large_as_it_may_be() {
        let Some((_, from, _to)) = slow(50_000).await else { return };
        assert_eq!(size(&from), MIN_AHEAD);
    }
}

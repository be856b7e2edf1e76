//! Bounds the backlog of a slow receiver near the bytes that are in flight, so that the relay does not hide the
//! receiver from the sender.
//!
//! Socket buffers grow while both sides are fast, and the kernel never shrinks them. While a flow spends most of its
//! time waiting for its receiver, the sender may be ahead by the bytes that both sections hold at that rate: enough for
//! the writing section to continue while the reading section recovers from a loss.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ekiden_sys::queued::{
    is_receive_buffer_locked, lock_receive_buffer, notsent_lowat, receive_buffer, receive_memory, set_notsent_lowat,
    set_window_clamp, unlock_receive_buffer, window_clamp,
};
use ekiden_sys::tcp_info::{advertised_mss, advertised_window, tcp_info};
use tokio::net::TcpStream;

/// How often a flow is judged, at most.
const MIN_JUDGE_INTERVAL: Duration = Duration::from_secs(1);

/// The least that a sender may be ahead, in bytes: a receiver that wakes up again finds something.
const MIN_AHEAD: u32 = 256 * 1024;

/// The shortest bound, in time: tighter bounds would only make the writes of a fast flow smaller.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// The least of unsent bytes that the kernel may hold, and that are read at once.
const MIN_UNSENT: u32 = 128 * 1024;

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
/// into a smaller buffer are dropped and cost a retransmission timeout. So the buffer keeps room for this window, and
/// the window is clamped until the buffer has its final size.
#[derive(Clone, Copy)]
struct ExcessBuffer {
    /// The size to reach, in bytes.
    least: u32,
    /// The former clamp of the window, in bytes.
    clamp: u32,
    /// The clamp while the buffer shrinks.
    shrinking_clamp: u32,
}

impl BacklogLimiter {
    /// A flow without backlog that has moved `moved` bytes.
    pub fn new(moved: u64) -> Self {
        Self { since: Instant::now(), blocked: Duration::ZERO, moved, bounds: None }
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
        if let Some(excess) = bounds.excess {
            let from = from.as_fd();
            bounds.excess = excess.shrink(from, bytes).unwrap_or_else(|_| {
                // A kernel that refuses is not asked again.
                let _ = excess.end(from);
                None
            });
        }
    }

    fn apply_bounds(&mut self, from: &TcpStream, to: &TcpStream, rate: f64) -> std::io::Result<()> {
        let (from, to) = (from.as_fd(), to.as_fd());
        if self.bounds.is_none() && is_receive_buffer_locked(from)? {
            // The profile sets the bounds itself.
            return Ok(());
        }
        self.end_shrinking(from)?;
        let round_trips = tcp_info(from)?.min_rtt + tcp_info(to)?.min_rtt;
        let ahead = (rate * round_trips.max(MIN_WAIT).as_secs_f64()) as u32;
        let before = self.bounds.map_or_else(|| notsent_lowat(to), |bounds| Ok(bounds.before))?;
        let unsent_limit = (ahead / 2).max(MIN_UNSENT);
        // 0 means no limit.
        let now = if before == 0 { unsent_limit } else { before.min(unsent_limit) };
        let bounds = self.bounds.insert(BufferBounds { before, now, excess: None });
        set_notsent_lowat(to, now)?;
        let (least, size) = (ahead.max(MIN_AHEAD), receive_buffer(from)?);
        if lock_receive_buffer(from, size.max(least)).is_err() {
            // As large as that, or not at all.
            return unlock_receive_buffer(from);
        }
        if size > least {
            bounds.excess = Some(ExcessBuffer::begin(from, least)?);
        }
        Ok(())
    }

    fn lift_bounds(&mut self, from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
        self.end_shrinking(from.as_fd())?;
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        set_notsent_lowat(to.as_fd(), bounds.before)?;
        unlock_receive_buffer(from.as_fd())
    }

    fn end_shrinking(&mut self, from: BorrowedFd<'_>) -> std::io::Result<()> {
        match self.bounds.as_mut().and_then(|bounds| bounds.excess.take()) {
            Some(excess) => excess.end(from),
            None => Ok(()),
        }
    }
}

impl ExcessBuffer {
    /// Begins to shrink the buffer of `from` to `least` bytes.
    ///
    /// The kernel opens the window again when a sixteenth of the buffer is free (`__tcp_select_window()`,
    /// net/ipv4/tcp_output.c). With less than that for each opening, the sender adds less than the receiver takes. With
    /// less than a segment, which is 64 KiB on loopback, the sender would wait for its persist timer (RFC 9293 section
    /// 3.8.6.2.1), also later: the kernel opens the window no further before data has come.
    fn begin(from: BorrowedFd<'_>, least: u32) -> std::io::Result<Self> {
        let clamp = window_clamp(from)?;
        let shrinking_clamp = clamp.min(advertised_mss(from)?.max(least / 16));
        set_window_clamp(from, shrinking_clamp)?;
        Ok(Self { least, clamp, shrinking_clamp })
    }

    /// Shrinks the buffer after `read` bytes were read, as far as that drops no data, and returns the remaining excess.
    fn shrink(self, from: BorrowedFd<'_>, read: usize) -> std::io::Result<Option<Self>> {
        let size = receive_buffer(from)?;
        // The kernel counts a buffer twice, and so has as much room again for the overhead of the window's packets.
        let needed = match advertised_window(from)? {
            Some(window) => receive_memory(from)?.div_ceil(2).saturating_add(window),
            None => size_after_read(size, read),
        };
        let new_size = needed.min(size).max(self.least);
        if new_size < size {
            lock_receive_buffer(from, new_size)?;
        }
        if new_size == self.least {
            return self.end(from).map(|()| None);
        }
        // The kernel replaces the clamp when the overhead of packets changes (`tcp_measure_rcv_mss()`,
        // net/ipv4/tcp_input.c).
        set_window_clamp(from, self.shrinking_clamp)?;
        Ok(Some(self))
    }

    /// Returns the window to the kernel's control.
    fn end(self, from: BorrowedFd<'_>) -> std::io::Result<()> {
        set_window_clamp(from, self.clamp)
    }
}

/// The size that a receive buffer of `size` bytes needs after `read` bytes were read, where the kernel does not report
/// its window (before Linux 6.2). Such a kernel advertises half of the free buffer (`tcp_adv_win_scale`), so half of
/// the bytes read are safe to remove.
fn size_after_read(size: u32, read: usize) -> u32 {
    size.saturating_sub(u32::try_from(read / 2).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use ekiden_sys::tcp_info::tcp_counters;
    use ekiden_testing::skipped;
    use tokio::net::TcpListener;

    use super::*;

    /// A receive buffer with 4 MiB of excess.
    const EXCESSIVE: u32 = MIN_AHEAD + (4 << 20);

    /// A sender, and the relay's connections to this sender and to a receiver that is slow.
    struct SlowFlow {
        sender: TcpStream,
        from: TcpStream,
        to: TcpStream,
        backlog: BacklogLimiter,
    }

    impl SlowFlow {
        /// With a receive buffer of `size` bytes that the kernel controls.
        async fn new(size: u32) -> Option<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connected = || TcpStream::connect(listener.local_addr().unwrap());
            let from = connected().await.unwrap();
            let (sender, _) = listener.accept().await.unwrap();
            if let Err(error) = lock_receive_buffer(from.as_fd(), size) {
                skipped(format_args!("receive buffers of this size are not granted here: {error}"));
                return None;
            }
            unlock_receive_buffer(from.as_fd()).unwrap();
            Some(Self { sender, from, to: connected().await.unwrap(), backlog: BacklogLimiter::new(0) })
        }

        /// Reports that the receiver has room again, after `blocked` without room.
        fn unblock(&mut self, blocked: Duration) {
            self.backlog.since = Instant::now().checked_sub(MIN_JUDGE_INTERVAL).unwrap();
            self.backlog.on_unblocked(&self.from, &self.to, blocked, 1000);
        }

        /// Sends until the window is zero, where the kernel reports that.
        async fn fill_window(&self) -> bool {
            loop {
                match advertised_window(self.from.as_fd()).unwrap() {
                    None => return false,
                    Some(0) => return true,
                    Some(_) => self.send().await,
                }
            }
        }

        async fn send(&self) {
            match self.sender.try_write(&[0; 65_536]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::task::yield_now().await,
                other => assert!(other.unwrap() > 0),
            }
        }

        fn clamp(&self) -> u32 {
            window_clamp(self.from.as_fd()).unwrap()
        }

        fn size(&self) -> u32 {
            receive_buffer(self.from.as_fd()).unwrap()
        }
    }

    #[tokio::test]
    async fn an_excessive_receive_buffer_keeps_room_for_the_advertised_window() {
        let Some(mut flow) = SlowFlow::new(EXCESSIVE).await else { return };
        flow.unblock(MIN_JUDGE_INTERVAL);
        assert_eq!((flow.size(), is_receive_buffer_locked(flow.from.as_fd()).unwrap()), (EXCESSIVE, true));
        if !flow.fill_window().await {
            skipped("this kernel does not report the window that it offers");
            return;
        }
        let mut buffer = vec![0; 65_536];
        while flow.size() > MIN_AHEAD {
            let before = flow.size();
            let read = flow.from.try_read(&mut buffer).unwrap();
            flow.backlog.on_read(&flow.from, read);
            let used = receive_memory(flow.from.as_fd()).unwrap();
            let window = advertised_window(flow.from.as_fd()).unwrap().unwrap();
            let room = 2 * flow.size();
            assert!(flow.size() == before || room >= used + window, "{room} bytes for {used} and {window}");
            flow.send().await;
        }

        flow.unblock(Duration::ZERO);
        assert!(!is_receive_buffer_locked(flow.from.as_fd()).unwrap(), "the flow is fast again");
        let size = flow.size();
        flow.backlog.on_read(&flow.from, 65_536);
        assert_eq!(flow.size(), size, "a fast flow is not limited");
    }

    /// With less than a segment the sender would wait for its persist timer.
    #[tokio::test]
    async fn after_a_stall_the_window_opens_by_a_segment_or_more() {
        let Some(mut flow) = SlowFlow::new(EXCESSIVE).await else { return };
        if !flow.fill_window().await {
            skipped("this kernel does not report the window that it offers");
            return;
        }
        flow.unblock(MIN_JUDGE_INTERVAL);
        let mut buffer = vec![0; 65_536];
        while let Ok(read) = flow.from.try_read(&mut buffer) {
            flow.backlog.on_read(&flow.from, read);
        }
        assert_eq!(flow.size(), MIN_AHEAD);
        let window = tcp_counters(flow.from.as_fd()).unwrap().own_window;
        let segment = advertised_mss(flow.from.as_fd()).unwrap();
        assert!(window >= segment, "a window of {window} bytes for a segment of {segment}");
    }

    #[tokio::test]
    async fn the_window_is_clamped_while_a_receive_buffer_is_excessive() {
        let Some(mut flow) = SlowFlow::new(EXCESSIVE).await else { return };
        set_window_clamp(flow.from.as_fd(), EXCESSIVE).unwrap();
        flow.unblock(MIN_JUDGE_INTERVAL);
        let segment = advertised_mss(flow.from.as_fd()).unwrap();
        assert_eq!((flow.clamp(), flow.size()), (segment.max(MIN_AHEAD / 16), EXCESSIVE));
        flow.unblock(Duration::ZERO);
        assert_eq!(flow.clamp(), EXCESSIVE);
    }

    #[test]
    fn without_a_reported_window_the_buffer_shrinks_by_half_the_read() {
        assert_eq!(size_after_read(MIN_AHEAD + 100_000, 65_536), MIN_AHEAD + 100_000 - 32_768);
        assert_eq!(size_after_read(1000, 4000), 0);
    }

    #[tokio::test]
    async fn small_receive_buffer_grows_to_min_ahead() {
        let Some(mut flow) = SlowFlow::new(50_000).await else { return };
        flow.unblock(MIN_JUDGE_INTERVAL);
        assert_eq!(flow.size(), MIN_AHEAD);
    }
}

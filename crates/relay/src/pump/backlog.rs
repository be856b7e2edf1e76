//! Limits the backlog of a slow receiver to about the bytes that are in flight, so that the sender adapts to the rate
//! of the receiver.
//!
//! Socket buffers grow while both sides are fast, and the kernel never shrinks them. While a flow waits for its
//! receiver most of the time, the sender may be ahead by the bandwidth-delay product of both sections at that rate.
//! This is enough for the writing section to continue while the reading section recovers from a loss.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ekiden_sys::queued::{
    is_receive_buffer_locked, lock_receive_buffer, notsent_lowat, receive_buffer, receive_memory, set_notsent_lowat,
    set_window_clamp, unlock_receive_buffer, window_clamp,
};
use ekiden_sys::tcp_info::{advertised_mss, advertised_window, tcp_info};
use tokio::net::TcpStream;

/// Minimum interval between two assessments of a flow.
const MIN_JUDGE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum size of the receive buffer, in bytes, so that data is available when a paused receiver resumes.
const MIN_AHEAD: u32 = 256 * 1024;

/// Minimum round-trip time for the calculation of the limits: tighter limits would only make the writes of a fast flow
/// smaller.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// Minimum of the limit for unsent bytes in the kernel and for one read, in bytes.
const MIN_UNSENT: u32 = 128 * 1024;

/// Measures how long the receiver of one flow blocks the flow, and limits the socket buffers on both sides of the
/// relay. The limits end with the limiter, because the sockets may carry other sessions afterwards.
pub struct BacklogLimiter<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    since: Instant,
    /// Blocked time since `since`.
    blocked: Duration,
    /// Bytes that the flow had moved by `since`.
    moved: u64,
    /// `None` while no limits are set.
    bounds: Option<BufferBounds>,
}

/// Limits for bytes in the kernel that wait for the receiver.
#[derive(Clone, Copy)]
struct BufferBounds {
    /// The limit for unsent bytes (`TCP_NOTSENT_LOWAT`) before it was lowered; 0 means no limit.
    before: u32,
    now: u32,
    /// `None` if the receive buffer has its final size or is not limited.
    excess: Option<ExcessBuffer>,
}

/// A receive buffer that is too large. The kernel has advertised a window that matches the buffer. If the buffer
/// shrinks below that window, the kernel drops bytes within the window, and each loss causes a retransmission timeout.
/// So the buffer keeps room for the window, and the window is clamped until the buffer has its final size.
#[derive(Clone, Copy)]
struct ExcessBuffer {
    /// The final size of the buffer, in bytes.
    least: u32,
    /// The clamp of the window before the buffer began to shrink, in bytes.
    clamp: u32,
    /// The clamp of the window while the buffer shrinks, in bytes.
    shrinking_clamp: u32,
}

impl<'a> BacklogLimiter<'a> {
    /// Creates the limiter of a flow that has moved `moved` bytes from `from` to `to`, without limits.
    pub fn new(from: &'a TcpStream, to: &'a TcpStream, moved: u64) -> Self {
        Self { from, to, since: Instant::now(), blocked: Duration::ZERO, moved, bounds: None }
    }

    /// Records that the receiver has room again after the time `blocked`, and sets or lifts the limits. `moved` is the
    /// total number of bytes of the flow so far.
    pub fn on_unblocked(&mut self, blocked: Duration, moved: u64) {
        self.blocked += blocked;
        let span = self.since.elapsed();
        if span < MIN_JUDGE_INTERVAL {
            return;
        }
        let rate = (moved - self.moved) as f64 / span.as_secs_f64();
        let slow = self.blocked > span / 2;
        (self.since, self.blocked, self.moved) = (Instant::now(), Duration::ZERO, moved);
        // If the kernel rejects an option, the flow has no limits.
        let _ = if slow { self.apply_bounds(rate) } else { self.lift_bounds() };
    }

    /// Returns the maximum size of the next read, at most `most` bytes.
    pub fn read_limit(&self, most: usize) -> usize {
        self.bounds.map_or(most, |bounds| most.min(bounds.now as usize))
    }

    /// Records `bytes` read from the sender.
    pub fn on_read(&mut self, bytes: usize) {
        let Some(bounds) = &mut self.bounds else { return };
        if let Some(excess) = bounds.excess {
            let from = self.from.as_fd();
            bounds.excess = excess.shrink(from, bytes).unwrap_or_else(|_| {
                // Shrinking is not tried again after the kernel has rejected an option.
                let _ = excess.end(from);
                None
            });
        }
    }

    fn apply_bounds(&mut self, rate: f64) -> std::io::Result<()> {
        let (from, to) = (self.from.as_fd(), self.to.as_fd());
        if self.bounds.is_none() && is_receive_buffer_locked(from)? {
            // The profile has set a fixed size.
            return Ok(());
        }
        self.end_shrinking()?;
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
            // A lock at a smaller size than `least` is not kept.
            return unlock_receive_buffer(from);
        }
        if size > least {
            bounds.excess = Some(ExcessBuffer::begin(from, least)?);
        }
        Ok(())
    }

    fn lift_bounds(&mut self) -> std::io::Result<()> {
        self.end_shrinking()?;
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        set_notsent_lowat(self.to.as_fd(), bounds.before)?;
        unlock_receive_buffer(self.from.as_fd())
    }

    fn end_shrinking(&mut self) -> std::io::Result<()> {
        match self.bounds.as_mut().and_then(|bounds| bounds.excess.take()) {
            Some(excess) => excess.end(self.from.as_fd()),
            None => Ok(()),
        }
    }
}

impl Drop for BacklogLimiter<'_> {
    fn drop(&mut self) {
        // Fails only on a dead socket, which carries no other session.
        let _ = self.lift_bounds();
    }
}

impl ExcessBuffer {
    /// Starts to shrink the buffer of `from` to `least` bytes.
    ///
    /// The kernel opens the window again when a sixteenth of the buffer is free (`__tcp_select_window()`,
    /// net/ipv4/tcp_output.c). With a clamp below that, the sender adds less for each window update than the receiver
    /// takes. With a clamp below one segment, which is 64 KiB on loopback, the sender would wait for its persist timer
    /// (RFC 9293 section 3.8.6.2.1), and would wait again later: the kernel does not open the window further before
    /// data has arrived.
    fn begin(from: BorrowedFd<'_>, least: u32) -> std::io::Result<Self> {
        let clamp = window_clamp(from)?;
        let shrinking_clamp = clamp.min(advertised_mss(from)?.max(least / 16));
        set_window_clamp(from, shrinking_clamp)?;
        Ok(Self { least, clamp, shrinking_clamp })
    }

    /// Shrinks the buffer after `read` bytes were read, as far as that drops no data, and returns the remaining excess.
    fn shrink(self, from: BorrowedFd<'_>, read: usize) -> std::io::Result<Option<Self>> {
        let size = receive_buffer(from)?;
        // The kernel doubles the buffer size that is set, which leaves the same amount of room for the overhead of the
        // packets in the window.
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

/// Returns the size that a receive buffer of `size` bytes needs after `read` bytes were read, for kernels that do not
/// report their window (before Linux 6.2). Such a kernel advertises half of the free buffer (`tcp_adv_win_scale`), so
/// half of the bytes read are safe to remove.
fn size_after_read(size: u32, read: usize) -> u32 {
    size.saturating_sub(u32::try_from(read / 2).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};

    use ekiden_sys::tcp_info::tcp_counters;
    use ekiden_testing::{TEST_TIMEOUT, skipped};
    use socket2::SockRef;
    use tokio::io::Interest;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    /// Size in bytes of a receive buffer that exceeds `MIN_AHEAD` by 4 MiB.
    const EXCESSIVE: u32 = MIN_AHEAD + (4 << 20);

    /// A sender, and the relay's connections to this sender and to a slow receiver.
    struct SlowFlow {
        sender: TcpStream,
        from: TcpStream,
        to: TcpStream,
    }

    impl SlowFlow {
        /// Creates a flow with a receive buffer of `size` bytes, which the kernel may resize. Returns `None` if the
        /// system does not grant this size.
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
            Some(Self { sender, from, to: connected().await.unwrap() })
        }

        fn limiter(&self) -> BacklogLimiter<'_> {
            BacklogLimiter::new(&self.from, &self.to, 0)
        }

        /// Sends until the advertised window is zero. Returns `false` if the kernel does not report the window.
        async fn fill_window(&self) -> bool {
            let filled = async {
                loop {
                    match advertised_window(self.from.as_fd()).unwrap() {
                        None => return false,
                        Some(0) => return true,
                        Some(_) => self.send().await,
                    }
                }
            };
            timeout(TEST_TIMEOUT, filled).await.expect("the window is full")
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

        fn is_locked(&self) -> bool {
            is_receive_buffer_locked(self.from.as_fd()).unwrap()
        }
    }

    /// Reports that the receiver has accepted bytes again after it was blocked for `blocked`.
    fn unblock(backlog: &mut BacklogLimiter<'_>, blocked: Duration) {
        backlog.since = Instant::now().checked_sub(MIN_JUDGE_INTERVAL).unwrap();
        backlog.on_unblocked(blocked, 1000);
    }

    #[tokio::test]
    async fn an_excessive_receive_buffer_keeps_room_for_the_advertised_window() {
        let Some(flow) = SlowFlow::new(EXCESSIVE).await else { return };
        let mut backlog = flow.limiter();
        unblock(&mut backlog, MIN_JUDGE_INTERVAL);
        assert_eq!((flow.size(), flow.is_locked()), (EXCESSIVE, true));
        if !flow.fill_window().await {
            skipped("this kernel does not report the window that it offers");
            return;
        }
        let mut buffer = vec![0; 65_536];
        let deadline = Instant::now() + TEST_TIMEOUT;
        while flow.size() > MIN_AHEAD {
            assert!(Instant::now() < deadline, "the receive buffer has {} bytes", flow.size());
            let before = flow.size();
            let read = flow.from.async_io(Interest::READABLE, || (&*SockRef::from(&flow.from)).read(&mut buffer));
            let read = timeout(TEST_TIMEOUT, read).await.expect("bytes arrive").unwrap();
            // Segments may arrive at any time: they use memory, and the window does not grow without a read.
            let used = receive_memory(flow.from.as_fd()).unwrap();
            backlog.on_read(read);
            let window = advertised_window(flow.from.as_fd()).unwrap().unwrap();
            let room = 2 * flow.size();
            assert!(flow.size() == before || room >= used + window, "{room} bytes for {used} and {window}");
            flow.send().await;
        }

        unblock(&mut backlog, Duration::ZERO);
        assert!(!flow.is_locked(), "the flow is fast again");
        let size = flow.size();
        backlog.on_read(65_536);
        assert_eq!(flow.size(), size, "a fast flow is not limited");
    }

    /// With a window below one segment, the sender would wait for its persist timer.
    #[tokio::test]
    async fn after_a_stall_the_window_opens_by_a_segment_or_more() {
        let Some(flow) = SlowFlow::new(EXCESSIVE).await else { return };
        if !flow.fill_window().await {
            skipped("this kernel does not report the window that it offers");
            return;
        }
        let mut backlog = flow.limiter();
        unblock(&mut backlog, MIN_JUDGE_INTERVAL);
        let mut buffer = vec![0; 65_536];
        while let Ok(read) = flow.from.try_read(&mut buffer) {
            backlog.on_read(read);
        }
        assert_eq!(flow.size(), MIN_AHEAD);
        let window = tcp_counters(flow.from.as_fd()).unwrap().own_window;
        let segment = advertised_mss(flow.from.as_fd()).unwrap();
        assert!(window >= segment, "a window of {window} bytes for a segment of {segment}");
    }

    #[tokio::test]
    async fn the_window_is_clamped_while_a_receive_buffer_is_excessive() {
        let Some(flow) = SlowFlow::new(EXCESSIVE).await else { return };
        set_window_clamp(flow.from.as_fd(), EXCESSIVE).unwrap();
        let mut backlog = flow.limiter();
        unblock(&mut backlog, MIN_JUDGE_INTERVAL);
        let segment = advertised_mss(flow.from.as_fd()).unwrap();
        assert_eq!((flow.clamp(), flow.size()), (segment.max(MIN_AHEAD / 16), EXCESSIVE));
        unblock(&mut backlog, Duration::ZERO);
        assert_eq!(flow.clamp(), EXCESSIVE);
    }

    /// Regression: the limits of a flow that ended while its receiver was slow stayed on the sockets, which could then
    /// carry other sessions.
    #[tokio::test]
    async fn limits_end_with_the_limiter() {
        let Some(flow) = SlowFlow::new(EXCESSIVE).await else { return };
        set_window_clamp(flow.from.as_fd(), EXCESSIVE).unwrap();
        set_notsent_lowat(flow.to.as_fd(), EXCESSIVE).unwrap();
        let options = || (flow.is_locked(), flow.clamp(), notsent_lowat(flow.to.as_fd()).unwrap());
        let mut backlog = flow.limiter();
        unblock(&mut backlog, MIN_JUDGE_INTERVAL);
        let segment = advertised_mss(flow.from.as_fd()).unwrap();
        assert_eq!(options(), (true, segment.max(MIN_AHEAD / 16), MIN_UNSENT));
        drop(backlog);
        assert_eq!(options(), (false, EXCESSIVE, EXCESSIVE));
    }

    #[test]
    fn without_a_reported_window_the_buffer_shrinks_by_half_the_read() {
        assert_eq!(size_after_read(MIN_AHEAD + 100_000, 65_536), MIN_AHEAD + 100_000 - 32_768);
        assert_eq!(size_after_read(1000, 4000), 0);
    }

    #[tokio::test]
    async fn small_receive_buffer_grows_to_min_ahead() {
        let Some(flow) = SlowFlow::new(50_000).await else { return };
        let mut backlog = flow.limiter();
        unblock(&mut backlog, MIN_JUDGE_INTERVAL);
        assert_eq!(flow.size(), MIN_AHEAD);
    }
}

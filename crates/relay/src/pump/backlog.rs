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
use ekiden_sys::tcp_info::{advertised_window, tcp_info};
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
/// into a smaller buffer are dropped and cost a retransmission timeout. So the buffer shrinks while the window is zero.
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
        self.try_shrink(from);
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
    pub fn on_read(&mut self, bytes: usize) {
        if let Some(excess) = self.bounds.as_mut().and_then(|bounds| bounds.excess.as_mut()) {
            excess.read += bytes;
        }
    }

    /// Shrinks an excess buffer if that drops nothing. After a wait for the receiver the sender had time to fill its
    /// window, so the window is often zero then.
    fn try_shrink(&mut self, from: &TcpStream) {
        let Some(bounds) = &mut self.bounds else { return };
        let Some(excess) = bounds.excess else { return };
        // A kernel that refuses is not asked again.
        bounds.excess = excess.shrink(from).unwrap_or_default();
    }

    fn apply_bounds(&mut self, from: &TcpStream, to: &TcpStream, rate: f64) -> std::io::Result<()> {
        let (sender, from, to) = (from, from.as_fd(), to.as_fd());
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
        self.try_shrink(sender);
        Ok(())
    }

    fn lift_bounds(&mut self, from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        set_notsent_lowat(to.as_fd(), bounds.before)?;
        unlock_receive_buffer(from.as_fd())
    }
}

impl ExcessBuffer {
    /// Shrinks the buffer as far as that drops no data, and returns the remaining excess.
    fn shrink(self, from: &TcpStream) -> std::io::Result<Option<Self>> {
        match advertised_window(from.as_fd())? {
            // Every byte of the window has arrived.
            Some(0) => lock_receive_buffer(from.as_fd(), self.least).map(|()| None),
            Some(_) => Ok(Some(self)),
            None => self.shrink_by_read(from),
        }
    }

    /// Shrinks the buffer by the bytes read, where the kernel does not report its window. Such a kernel offers half of
    /// the free buffer as window (`tcp_adv_win_scale`, before Linux 6.6), so half of the bytes read are safe to remove.
    fn shrink_by_read(self, from: &TcpStream) -> std::io::Result<Option<Self>> {
        let from = from.as_fd();
        let read = u32::try_from(self.read / 2).unwrap_or(u32::MAX);
        let left = receive_buffer(from)?.saturating_sub(read).max(self.least);
        lock_receive_buffer(from, left)?;
        Ok((left > self.least).then_some(Self { read: 0, ..self }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::TcpListener;

    use super::*;

    /// A receive buffer with 4 MiB of excess.
    const EXCESSIVE: u32 = MIN_AHEAD + (4 << 20);

    /// A sender, and the relay's connections to this sender and to a receiver that is slow.
    struct Flow {
        sender: TcpStream,
        from: TcpStream,
        to: TcpStream,
        backlog: BacklogLimiter,
    }

    impl Flow {
        /// With a receive buffer of `size` bytes that the kernel controls.
        async fn new(size: u32) -> Option<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let connected = || TcpStream::connect(listener.local_addr().unwrap());
            let from = connected().await.unwrap();
            let (sender, _) = listener.accept().await.unwrap();
            if let Err(error) = lock_receive_buffer(from.as_fd(), size) {
                println!("skipped: receive buffers of this size are not granted here: {error}");
                return None;
            }
            unlock_receive_buffer(from.as_fd()).unwrap();
            Some(Self { sender, from, to: connected().await.unwrap(), backlog: BacklogLimiter::new() })
        }

        /// The receiver has room again, after it had none since the last call.
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

        fn size(&self) -> u32 {
            receive_buffer(self.from.as_fd()).unwrap()
        }
    }

    #[tokio::test]
    async fn an_excessive_receive_buffer_shrinks_at_a_zero_window() {
        let Some(mut flow) = Flow::new(EXCESSIVE).await else { return };
        flow.unblock(MIN_JUDGE_INTERVAL);
        assert!(is_receive_buffer_locked(flow.from.as_fd()).unwrap());
        assert_eq!(flow.size(), EXCESSIVE, "the sender may use its window");
        if !flow.fill_window().await {
            println!("skipped: this kernel does not report the window that it offers");
            return;
        }
        flow.unblock(MIN_JUDGE_INTERVAL);
        assert_eq!(flow.size(), MIN_AHEAD);

        flow.unblock(Duration::ZERO);
        assert!(!is_receive_buffer_locked(flow.from.as_fd()).unwrap(), "it is fast again");
    }

    #[tokio::test]
    async fn without_a_reported_window_a_receive_buffer_shrinks_by_half_of_the_bytes_read() {
        let Some(flow) = Flow::new(MIN_AHEAD + 100_000).await else { return };
        let excess = ExcessBuffer { least: MIN_AHEAD, read: 65_536 };
        let left = excess.shrink_by_read(&flow.from).unwrap().expect("an excess is left");
        assert_eq!((flow.size(), left.read), (MIN_AHEAD + 100_000 - 32_768, 0));
        assert!(ExcessBuffer { read: 200_000, ..left }.shrink_by_read(&flow.from).unwrap().is_none());
        assert_eq!(flow.size(), MIN_AHEAD);
    }

    #[tokio::test]
    async fn a_small_receive_buffer_becomes_as_large_as_it_may_be() {
        let Some(mut flow) = Flow::new(50_000).await else { return };
        flow.unblock(MIN_JUDGE_INTERVAL);
        assert_eq!(flow.size(), MIN_AHEAD);
    }
}

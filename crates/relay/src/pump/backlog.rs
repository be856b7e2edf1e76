//! A slow receiver must not hide behind the relay: what waits for it is bounded near what is under way.
//!
//! Buffers grow while both sides are fast, and the kernel never takes them back. So as long as a flow spends most of its
//! time waiting for its receiver, the sender may be ahead by what both sections hold at that rate: enough for the writing
//! section to go on while the reading one recovers from a loss, and no more.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_sys::queued::{fix_receive, free_receive, is_receive_fixed, notsent_lowat, set_notsent_lowat};
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;

/// How often a flow is judged, at most.
const SPAN: Duration = Duration::from_secs(1);

/// The least that a sender may be ahead, in bytes: a receiver that wakes up again finds something.
const LEAST_AHEAD: u32 = 256 * 1024;

/// And in time: nobody waits for so little, and bounds would only make the steps of a fast flow smaller.
const LEAST_WAIT: Duration = Duration::from_millis(10);

/// The least of unsent bytes that the kernel may hold, and that are read at once.
const LEAST_UNSENT: u32 = 128 * 1024;

/// How slow the receiver of one flow is.
pub struct Backlog {
    since: Instant,
    /// How long it had no room since then.
    blocked: Duration,
    /// What had moved by then.
    moved: u64,
    /// None while nothing is bounded.
    bounds: Option<Bounds>,
}

/// Unsent bytes that the kernel may hold for the receiver.
#[derive(Clone, Copy)]
struct Bounds {
    before: u32,
    now: u32,
}

impl Backlog {
    /// Nothing waits.
    pub fn new() -> Self {
        Self { since: Instant::now(), blocked: Duration::ZERO, moved: 0, bounds: None }
    }

    /// The receiver had no room for `blocked`, and has some now; `moved` is what the flow has moved so far.
    pub fn waited(&mut self, from: &TcpStream, to: &TcpStream, blocked: Duration, moved: u64) {
        self.blocked += blocked;
        let span = self.since.elapsed();
        if span < SPAN {
            return;
        }
        let rate = (moved - self.moved) as f64 / span.as_secs_f64();
        let slow = self.blocked > span / 2;
        (self.since, self.blocked, self.moved) = (Instant::now(), Duration::ZERO, moved);
        // Where the kernel refuses, there is simply no bound.
        let _ = if slow { self.bound(from, to, rate) } else { self.lift(from, to) };
    }

    /// Most that is to be read at once.
    pub fn room(&self, most: usize) -> usize {
        self.bounds.map_or(most, |bounds| most.min(bounds.now as usize))
    }

    fn bound(&mut self, from: &TcpStream, to: &TcpStream, rate: f64) -> std::io::Result<()> {
        let (from, to) = (from.as_fd(), to.as_fd());
        if self.bounds.is_none() && is_receive_fixed(from)? {
            // Its profile says so.
            return Ok(());
        }
        let round_trips = tcp_info(from)?.min_rtt + tcp_info(to)?.min_rtt;
        let ahead = (rate * round_trips.max(LEAST_WAIT).as_secs_f64()) as u32;
        let before = self.bounds.map_or_else(|| notsent_lowat(to), |bounds| Ok(bounds.before))?;
        let wanted = (ahead / 2).max(LEAST_UNSENT);
        // 0 is no bound of its own.
        let now = if before == 0 { wanted } else { before.min(wanted) };
        self.bounds = Some(Bounds { before, now });
        set_notsent_lowat(to, now)?;
        // As large as that, or not at all.
        fix_receive(from, ahead.max(LEAST_AHEAD)).or_else(|_| free_receive(from))
    }

    fn lift(&mut self, from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
        let Some(bounds) = self.bounds.take() else { return Ok(()) };
        set_notsent_lowat(to.as_fd(), bounds.before)?;
        free_receive(from.as_fd())
    }
}

//! A slow receiver must not hide behind the relay: what waits for it is bounded near what is under way.
//!
//! Buffers grow while both sides are fast, and the kernel never takes them back. So as long as a flow spends most of its
//! time waiting for its receiver, the sender may be ahead by twice of what the reading section holds at that rate, and the
//! writing section takes little that it cannot send yet.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_sys::queued::{fix_receive, free_receive, is_receive_fixed, notsent_lowat, set_notsent_lowat};
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;

/// How often a flow is judged, at most.
const SPAN: Duration = Duration::from_secs(1);

/// The least that a sender may be ahead, in bytes: a receiver that wakes up again finds something.
const LEAST_AHEAD: u64 = 256 * 1024;

/// Unsent bytes of a slow receiver that the kernel holds, and how much is read for it at once.
const UNSENT: u32 = 128 * 1024;

/// How slow the receiver of one flow is.
pub struct Backlog {
    since: Instant,
    /// How long it had no room since then.
    blocked: Duration,
    /// What had moved by then.
    moved: u64,
    /// The unsent bytes that the kernel held before it was bounded; none while it is not.
    before: Option<u32>,
}

impl Backlog {
    /// Nothing waits.
    pub fn new() -> Self {
        Self { since: Instant::now(), blocked: Duration::ZERO, moved: 0, before: None }
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
        if self.before.is_some() { most.min(UNSENT as usize) } else { most }
    }

    fn bound(&mut self, from: &TcpStream, to: &TcpStream, rate: f64) -> std::io::Result<()> {
        let under_way = rate * tcp_info(from.as_fd())?.rtt.as_secs_f64();
        let (from, to) = (from.as_fd(), to.as_fd());
        if self.before.is_none() {
            if is_receive_fixed(from)? {
                // Its profile says so.
                return Ok(());
            }
            self.before = Some(notsent_lowat(to)?);
            set_notsent_lowat(to, UNSENT)?;
        }
        let ahead = (2.0 * under_way).max(LEAST_AHEAD as f64);
        fix_receive(from, ahead as u32)
    }

    fn lift(&mut self, from: &TcpStream, to: &TcpStream) -> std::io::Result<()> {
        let Some(unsent) = self.before.take() else { return Ok(()) };
        set_notsent_lowat(to.as_fd(), unsent)?;
        free_receive(from.as_fd())
    }
}

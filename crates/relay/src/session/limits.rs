//! What holds a session back: looks at it while it runs and at its end, and what follows from them.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::limiting::{Diagnoses, Diagnosis, LimitTracker, SessionSample, SideSample};
use ekiden_sys::outq::{unread, unsent};
use ekiden_sys::tcp_info::tcp_counters;
use tokio::net::TcpStream;

use super::Session;

/// A session that moves less than this, in bytes, is not worth a look at its end.
const MIN_SAMPLED_BYTES: u64 = 64 * 1024;

/// An answer is old when nothing has moved for so long, and where there are thousands of sessions to look at.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(10);

/// What was seen so far.
#[derive(Debug)]
pub(super) struct LimitState {
    account: LimitTracker,
    at: Instant,
    /// Of the meter, by the last look.
    moved: u64,
}

impl Session {
    /// Looks, unless nothing has moved since the last time and nothing waits for room.
    pub(super) fn sample_limits(&self) {
        if self.stats.moved() != self.last_moved_bytes() || self.is_blocked() {
            self.record_limits();
        }
    }

    /// The last look, before a section is gone.
    pub(super) fn sample_limits_at_end(&self) {
        if self.stats.moved() >= self.last_moved_bytes() + MIN_SAMPLED_BYTES || self.is_blocked() {
            self.record_limits();
        }
    }

    /// What holds it back now.
    pub(super) fn limits(&self) -> Diagnoses {
        let limiting = self.limiting.borrow();
        let fresh = limiting.as_ref().filter(|limiting| limiting.at.elapsed() < MAX_SAMPLE_AGE);
        fresh.map(|limiting| limiting.account.limits()).unwrap_or_default()
    }

    /// What has held it back, all in all, in the direction in which most went.
    pub(super) fn limit(&self) -> Option<Diagnosis> {
        let is_upload = self.stats.bytes(Direction::Up) > self.stats.bytes(Direction::Down);
        let direction = if is_upload { Direction::Up } else { Direction::Down };
        self.limiting.borrow().as_ref().and_then(|limiting| limiting.account.overall_limit(direction))
    }

    fn is_blocked(&self) -> bool {
        self.stats.is_blocked(Direction::Down) || self.stats.is_blocked(Direction::Up)
    }

    fn last_moved_bytes(&self) -> u64 {
        self.limiting.borrow().as_ref().map_or(0, |limiting| limiting.moved)
    }

    fn record_limits(&self) {
        let mut limiting = self.limiting.borrow_mut();
        let limiting = limiting.get_or_insert_with(|| {
            Box::new(LimitState { account: LimitTracker::default(), at: self.opened, moved: 0 })
        });
        let (now, load) = (Instant::now(), &self.context.worker.load);
        let span = now.saturating_duration_since(limiting.at);
        let state = self.state.borrow();
        let side = |direction, stream: Option<&TcpStream>| SideSample {
            counters: stream.and_then(|stream| tcp_counters(stream.as_fd()).ok()),
            has_unread: stream.is_some_and(|stream| unread(stream.as_fd()).is_ok_and(|bytes| bytes > 0)),
            send_buffer_full: self.stats.is_blocked(direction),
            all_in_flight: stream.is_some_and(|stream| unsent(stream.as_fd()).is_ok_and(|bytes| bytes == 0)),
            flow: self.stats.counters(direction),
        };
        limiting.account.record(&SessionSample {
            span,
            run_time: load.run_time(span),
            runqueue_wait: load.wait_time(span),
            down: side(Direction::Down, Some(&self.client)),
            up: side(Direction::Up, state.stream.as_deref()),
        });
        (limiting.at, limiting.moved) = (now, self.stats.moved());
    }
}

//! The real clock, and waiting for it to the microsecond.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime};

use ekiden_sys::poll::Poll;

use crate::Nanos;

/// The last part of a wait is spun, since a sleep ends late: at most so much of it,
const LONGEST_SPIN: Nanos = 60_000;
/// and at most this share of all time, as one part in so many.
const SPIN_SHARE: Nanos = 8;
/// So much spinning may be saved up.
const SPIN_SAVED: Nanos = 20_000_000;

/// Keeps every processor from sleeping, as long as the file is held (Documentation/power/pm_qos_interface.rst): waking one
/// takes tens of microseconds, in a virtual machine now and then milliseconds. `None` without the privilege.
#[must_use]
pub fn keep_awake() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Nanoseconds since the emulator started.
#[derive(Debug)]
pub struct Clock {
    zero: Instant,
    /// How late sleeps have lately been.
    lag: Nanos,
    /// How much may still be spun.
    budget: Nanos,
    settled: Nanos,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { zero: Instant::now(), lag: 20_000, budget: SPIN_SAVED, settled: 0 }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.zero.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The time of a stamp of the kernel, which uses the clock that people set. `now` and `wall` were read together.
    #[must_use]
    pub fn of_stamp(now: Nanos, wall: SystemTime, stamp: SystemTime) -> Nanos {
        let age = wall.duration_since(stamp).unwrap_or_default();
        now.saturating_sub(Nanos::try_from(age.as_nanos()).unwrap_or(0))
    }

    /// Waits until `deadline`, or until a descriptor of `poll` can be read. Never returns early for the deadline; spins the
    /// last part of the way if it is to be `punctual`.
    ///
    /// # Errors
    /// The kernel's, from ppoll(2).
    pub fn wait(&mut self, poll: &mut Poll<'_>, deadline: Option<Nanos>, punctual: bool) -> io::Result<()> {
        let Some(deadline) = deadline else {
            return poll.wait(None);
        };
        let now = self.now();
        self.refill(now);
        let spin = if punctual { self.lag.min(LONGEST_SPIN).min(self.budget) } else { 0 };
        let wake = deadline.saturating_sub(spin).max(now);
        poll.wait(Some(Duration::from_nanos(wake - now)))?;
        if poll.any_ready() {
            return Ok(());
        }
        let woken = self.now();
        if wake > now {
            let late = woken.saturating_sub(wake).min(4 * LONGEST_SPIN);
            // Follows lateness up at once and down slowly: a spin too long costs less than a packet too late.
            self.lag = if late > self.lag { late } else { self.lag - (self.lag - late) / 16 };
        }
        while self.now() < deadline {
            std::hint::spin_loop();
        }
        self.budget = self.budget.saturating_sub(deadline.saturating_sub(woken));
        Ok(())
    }

    fn refill(&mut self, now: Nanos) {
        self.budget = (self.budget + (now - self.settled) / SPIN_SHARE).min(SPIN_SAVED);
        self.settled = now;
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

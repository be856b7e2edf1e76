//! The real clock, and waiting for it to the microsecond.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime};

use ekiden_sys::poll::Poll;

use crate::Nanos;

/// The last part of a wait is spun, since a sleep ends late: at most so much of it,
const MAX_SPIN: Nanos = 60_000;
/// and at most this share of all time, as one part in so many.
const MAX_SPIN_SHARE: Nanos = 8;
/// So much spinning may be saved up.
const MAX_SPIN_BUDGET: Nanos = 20_000_000;

/// Keeps every processor from sleeping, as long as the file is held (Documentation/power/pm_qos_interface.rst): waking one
/// takes tens of microseconds, in a virtual machine now and then milliseconds. `None` without the privilege.
#[must_use]
pub fn hold_cpu_dma_latency() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Nanoseconds since the emulator started.
#[derive(Debug)]
pub struct Clock {
    epoch: Instant,
    /// How late sleeps have lately been.
    sleep_overrun: Nanos,
    /// How much may still be spun.
    spin_budget: Nanos,
    budget_updated_at: Nanos,
}

impl Clock {
    /// A clock that begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { epoch: Instant::now(), sleep_overrun: 20_000, spin_budget: MAX_SPIN_BUDGET, budget_updated_at: 0 }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// The time of a stamp of the kernel, which uses the clock that people set. `now` and `wall` were read together.
    #[must_use]
    pub fn from_kernel_timestamp(now: Nanos, wall: SystemTime, stamp: SystemTime) -> Nanos {
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
        self.refill_spin_budget(now);
        let spin = if punctual { self.sleep_overrun.min(MAX_SPIN).min(self.spin_budget) } else { 0 };
        let wake = deadline.saturating_sub(spin).max(now);
        poll.wait(Some(Duration::from_nanos(wake - now)))?;
        if poll.any_ready() {
            return Ok(());
        }
        let woken = self.now();
        if wake > now {
            let late = woken.saturating_sub(wake).min(4 * MAX_SPIN);
            // Follows lateness up at once and down slowly: a spin too long costs less than a packet too late.
            self.sleep_overrun =
                if late > self.sleep_overrun { late } else { self.sleep_overrun - (self.sleep_overrun - late) / 16 };
        }
        while self.now() < deadline {
            std::hint::spin_loop();
        }
        self.spin_budget = self.spin_budget.saturating_sub(deadline.saturating_sub(woken));
        Ok(())
    }

    fn refill_spin_budget(&mut self, now: Nanos) {
        self.spin_budget = (self.spin_budget + (now - self.budget_updated_at) / MAX_SPIN_SHARE).min(MAX_SPIN_BUDGET);
        self.budget_updated_at = now;
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

//! The monotonic clock of the emulator, with waits accurate to microseconds.

use std::fs::File;
use std::io::{self, Write as _};
use std::time::{Duration, Instant, SystemTime};

use ekiden_sys::poll::Poll;

use ekiden_emulator::Nanos;

/// Maximum spinning at the end of a wait, in nanoseconds. Spinning compensates for sleeps that end late.
const MAX_SPIN: Nanos = 60_000;
/// Spinning takes at most one part in this many of all time.
const MAX_SPIN_SHARE: Nanos = 8;
/// Maximum spinning that may be saved up, in nanoseconds.
const MAX_SPIN_BUDGET: Nanos = 20_000_000;

/// Keeps every processor out of deep sleep while the file is open (Documentation/power/pm_qos_interface.rst). A wakeup
/// takes tens of microseconds, in a virtual machine sometimes milliseconds. Returns `None` without the privilege.
#[must_use]
pub fn hold_cpu_dma_latency() -> Option<File> {
    let mut file = File::options().write(true).open("/dev/cpu_dma_latency").ok()?;
    file.write_all(&0_i32.to_ne_bytes()).ok()?;
    Some(file)
}

/// Clock in nanoseconds since the start of the emulator.
#[derive(Debug)]
pub struct Clock {
    epoch: Instant,
    /// Recent lateness of sleeps, in nanoseconds.
    sleep_overrun: Nanos,
    /// Spinning still allowed, in nanoseconds.
    spin_budget: Nanos,
    budget_updated_at: Nanos,
}

impl Clock {
    /// Creates a clock that starts at 0 now.
    #[must_use]
    pub fn new() -> Self {
        Self { epoch: Instant::now(), sleep_overrun: 20_000, spin_budget: MAX_SPIN_BUDGET, budget_updated_at: 0 }
    }

    /// Returns the time since the start, in nanoseconds.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
    }

    /// Converts a kernel timestamp, which is in wall-clock time. `now` and `wall` are simultaneous readings of both
    /// clocks.
    #[must_use]
    pub fn from_kernel_timestamp(now: Nanos, wall: SystemTime, stamp: SystemTime) -> Nanos {
        let age = wall.duration_since(stamp).unwrap_or_default();
        now.saturating_sub(Nanos::try_from(age.as_nanos()).unwrap_or(0))
    }

    /// Waits until `deadline`, or until a descriptor of `poll` is readable. Never returns before the deadline without a
    /// readable descriptor. Spins at the end of the wait if `punctual`.
    ///
    /// # Errors
    /// ppoll(2) failed.
    pub fn wait(&mut self, poll: &mut Poll<'_>, deadline: Option<Nanos>, punctual: bool) -> io::Result<()> {
        let Some(deadline) = deadline else {
            return poll.wait(None);
        };
        let now = self.now();
        self.refill_spin_budget(now);
        let spin = if punctual { self.sleep_overrun.min(MAX_SPIN).min(self.spin_budget) } else { 0 };
        let wake_at = deadline.saturating_sub(spin).max(now);
        poll.wait(Some(Duration::from_nanos(wake_at - now)))?;
        if poll.any_ready() {
            return Ok(());
        }
        let woken_at = self.now();
        if wake_at > now {
            let overrun = woken_at.saturating_sub(wake_at).min(4 * MAX_SPIN);
            // Raise the estimate at once and lower it slowly: spinning too long costs less than a late packet.
            self.sleep_overrun = if overrun > self.sleep_overrun {
                overrun
            } else {
                self.sleep_overrun - (self.sleep_overrun - overrun) / 16
            };
        }
        while self.now() < deadline {
            std::hint::spin_loop();
        }
        self.spin_budget = self.spin_budget.saturating_sub(deadline.saturating_sub(woken_at));
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

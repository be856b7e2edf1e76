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

/// Maximum number of pairs of readings of two clocks.
const MAX_READINGS: usize = 4;
/// Time for a pair of readings that is short enough to take them as simultaneous, in nanoseconds.
const SHORT_GAP: Nanos = 1000;

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

    /// Reads this clock and the wall clock. The thread may be interrupted between two readings, so this reads up to
    /// [`MAX_READINGS`] pairs, and returns the one that took the shortest time.
    #[must_use]
    pub fn read_both(&self) -> ClockReading {
        let read = || {
            let (before, wall) = (self.now(), SystemTime::now());
            let gap = self.now() - before;
            (gap, ClockReading { now: before + gap / 2, wall })
        };
        let mut best = read();
        for _ in 1..MAX_READINGS {
            if best.0 <= SHORT_GAP {
                break;
            }
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
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

/// Simultaneous readings of the emulator's clock and of the wall clock.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// Time of the emulator's clock, in nanoseconds.
    pub now: Nanos,
    /// Time of the wall clock.
    pub wall: SystemTime,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_are_read_at_the_same_time() {
        let clock = Clock::new();
        let (now, wall) = (clock.now(), SystemTime::now());
        let reading = clock.read_both();
        assert!((now..=clock.now()).contains(&reading.now));
        assert!((wall..=SystemTime::now()).contains(&reading.wall));
    }
}

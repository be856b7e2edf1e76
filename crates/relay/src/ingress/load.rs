//! The processor time that a thread uses, and the time that it waits for a processor.

use std::cell::Cell;
use std::time::{Duration, Instant};

use ekiden_sys::thread::{SchedStats, sched_stats};

/// The load of one thread between the last two samples.
#[derive(Debug, Default)]
pub struct Load {
    before: Cell<Option<(Instant, SchedStats)>>,
    /// Shares of the time: running, and waiting for a processor.
    ran: Cell<f64>,
    queued: Cell<f64>,
}

impl Load {
    /// Looks; from the thread itself. Where the kernel does not count, there is no load.
    pub fn sample(&self) {
        let Ok(time) = sched_stats() else { return };
        let now = Instant::now();
        let Some((at, before)) = self.before.replace(Some((now, time))) else { return };
        let span = now.saturating_duration_since(at).as_secs_f64().max(1e-9);
        let share = |now: Duration, before: Duration| (now.saturating_sub(before).as_secs_f64() / span).min(1.0);
        self.ran.set(share(time.run_time, before.run_time));
        self.queued.set(share(time.runqueue_wait, before.runqueue_wait));
    }

    /// The part of `span` in which the thread ran, if that was like the time between the last two looks.
    #[must_use]
    pub fn run_time(&self, span: Duration) -> Duration {
        span.mul_f64(self.ran.get())
    }

    /// The part of `span` in which the thread waited for a processor.
    #[must_use]
    pub fn wait_time(&self, span: Duration) -> Duration {
        span.mul_f64(self.queued.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_a_load() {
        let load = Load::default();
        load.sample();
        assert_eq!(load.run_time(Duration::from_secs(1)), Duration::ZERO, "nothing to compare with");
        let second = Duration::from_secs(1);
        let is_busy = || {
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(50) {
                std::hint::spin_loop();
            }
            load.sample();
            load.run_time(second) + load.wait_time(second) > Duration::from_millis(800)
        };
        // Where another virtual machine has the processor, nobody here sees who wants it.
        assert!((0..100).any(|_| is_busy()), "{load:?}");
    }
}

//! The clock of the tests: waits and spans. In the virtual kernel of the laboratory processes take no time, so spans are
//! exact there.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for an event in a test; long, because a loaded machine is slow and a hang is endless.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Resolution of timers: tokio rounds a deadline up to a millisecond, epoll_wait(2) a time-out to another one, and the kernel
/// adds the slack of timers (prctl(2), `PR_SET_TIMERSLACK`).
pub const TIMER_RESOLUTION: Duration = Duration::from_micros(2100);

/// Whether the tests run in virtual time. Only virtual machines have this device.
pub fn is_virtual() -> bool {
    Path::new("/dev/host0").exists()
}

/// Fails unless something took as long as expected: in virtual time to the resolution of timers, in real time at most
/// `late` longer.
pub fn assert_took(took: Duration, expected: Duration, late: Duration) {
    assert_within(took, expected..=expected + TIMER_RESOLUTION, expected..=expected + late);
}

/// Fails unless something took a time in `exact` in virtual time, or in `margin` in real time.
pub fn assert_within(took: Duration, exact: RangeInclusive<Duration>, margin: RangeInclusive<Duration>) {
    let (clock, expected) = if is_virtual() { ("virtual", exact) } else { ("real", margin) };
    assert!(expected.contains(&took), "{took:?} of {clock} time instead of {expected:?}");
}

/// The span in a field of an event, which counts seconds.
pub fn span_of(seconds: &serde_json::Value) -> Duration {
    Duration::from_secs_f64(seconds.as_f64().expect("a number"))
}

/// Lets time pass. The end of a scoped thread unparks its parent, and `park_timeout` then returns at once: without the
/// loop here, a caller that looks again and again in scoped threads would spin.
pub fn pause_until(moment: Instant) {
    while let Some(rest) = moment.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}

/// Calls `look` again and again until it returns a value: for states without an event.
pub fn eventually<T>(label: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, label, look)
}

/// Like `eventually`, with another deadline for slow operations.
pub fn eventually_within<T>(time_limit: Duration, label: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = begun.elapsed();
        assert!(waited < time_limit, "timeout while waiting for {label}");
        // A look may start a program, so a long wait has few of them.
        pause_until(Instant::now() + (waited / 8).clamp(Duration::from_millis(5), Duration::from_millis(100)));
    }
}

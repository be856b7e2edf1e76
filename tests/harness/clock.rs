//! Waits and durations. On the virtual kernel of the laboratory, execution takes no virtual time, so durations are
//! exact there.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout of a wait for an event in a test: 20 s, so that a slow response of a loaded machine does not fail the test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Resolution of timers, 2.1 ms: tokio rounds a deadline up to a millisecond, epoll_wait(2) rounds its timeout up to
/// another millisecond, and the kernel adds the timer slack (prctl(2), `PR_SET_TIMERSLACK`).
pub const TIMER_RESOLUTION: Duration = Duration::from_micros(2100);

/// Whether the tests run in virtual time. Only the virtual machines of the laboratory have this device.
pub fn is_virtual() -> bool {
    Path::new("/dev/host0").exists()
}

/// Panics unless `took` is at least `expected`, and at most [`TIMER_RESOLUTION`] longer in virtual time, or `late`
/// longer in real time.
pub fn assert_took(took: Duration, expected: Duration, late: Duration) {
    assert_within(took, expected..=expected + TIMER_RESOLUTION, expected..=expected + late);
}

/// Panics unless `took` is within `exact` in virtual time, or within `margin` in real time.
pub fn assert_within(took: Duration, exact: RangeInclusive<Duration>, margin: RangeInclusive<Duration>) {
    let (clock, expected) = if is_virtual() { ("virtual", exact) } else { ("real", margin) };
    assert!(expected.contains(&took), "{took:?} of {clock} time instead of {expected:?}");
}

/// The duration in a field of an event, whose unit is seconds.
pub fn span_of(seconds: &serde_json::Value) -> Duration {
    Duration::from_secs_f64(seconds.as_f64().expect("a number"))
}

/// Sleeps until `moment`. The end of a scoped thread unparks its parent thread, and a later `park_timeout` then returns
/// at once: without the loop, a caller that polls from scoped threads would spin.
pub fn pause_until(moment: Instant) {
    while let Some(rest) = moment.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}

/// Polls `look` until it returns a value, for states of which the relay logs no event. Panics after [`PATIENCE`].
pub fn eventually<T>(label: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, label, look)
}

/// Like [`eventually`], with another timeout, for slow operations.
pub fn eventually_within<T>(time_limit: Duration, label: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        let waited = begun.elapsed();
        assert!(waited < time_limit, "timeout while waiting for {label}");
        // `look` may start a process, so the interval grows with the wait, from 5 ms to 100 ms.
        pause_until(Instant::now() + (waited / 8).clamp(Duration::from_millis(5), Duration::from_millis(100)));
    }
}

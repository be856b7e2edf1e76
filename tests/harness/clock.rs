//! Durations. On the virtual kernel of the laboratory, execution takes no virtual time, so durations are
//! exact there.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

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

//! Helpers that the tests of several packages share.

use std::fmt::Display;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Timeout of a wait for an event in a test: 20 s, so that a slow response of a loaded machine does not fail the test.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Prints the reason why the running test is skipped. The message bypasses the output capture, which hides the output
/// of passing tests. The test must return after the call.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// Sleeps until `moment`. The end of a scoped thread unparks its parent thread, and a later `park_timeout` then returns
/// at once: without the loop, a caller that polls from scoped threads would spin.
pub fn pause_until(moment: Instant) {
    while let Some(rest) = moment.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
        std::thread::park_timeout(rest);
    }
}

/// Polls `look` until it returns a value, for states that nothing reports.
///
/// # Panics
/// `look` returned nothing for [`TEST_TIMEOUT`].
pub fn eventually<T>(label: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(TEST_TIMEOUT, label, look)
}

/// Like [`eventually`], with another timeout, for slow operations.
///
/// # Panics
/// `look` returned nothing for `time_limit`.
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

/// Returns both ends of a connection over loopback, the connecting end first. Reads have the timeout [`TEST_TIMEOUT`].
///
/// # Panics
/// The connection cannot be made.
#[allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
pub fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    }
    (near, far)
}

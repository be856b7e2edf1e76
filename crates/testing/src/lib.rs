//! Helpers that the tests of several packages share.

use std::fmt::Display;
use std::io::Write as _;

/// Prints the reason why the running test is skipped. The message bypasses the output capture, which hides the output
/// of passing tests. The test must return after the call.
pub fn skipped(reason: impl Display) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

//! What the tests of several packages share.

use std::fmt::Display;
use std::io::Write as _;

/// Prints why the running test is skipped, past the capture of its output: a test that passes shows none. The test then returns.
pub fn skipped(why: impl Display) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {why}", thread.name().unwrap_or("a test"));
}

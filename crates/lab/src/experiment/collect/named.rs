//! The limit that a relay reports for a transfer, and the comparison with the expected limit.
//!
//! The relay logs a line of JSON when a session ends; the session with the most bytes is the transfer.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use crate::experiment::run::task::TRIAL_BYTES;

/// The key of the metric that is 1 if the relay reported the expected limit, else 0.
pub const LIMIT_NAMED: &str = "limit_named";

/// Maximum time from the end of a transfer to its line in the log: a stopped session ends only when the data in its
/// send buffers has arrived.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the readings of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The line of a closed session in the log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ClosedEvent {
    event: String,
    #[serde(default)]
    bytes_up: u64,
    #[serde(default)]
    bytes_down: u64,
    limited: Option<String>,
    limited_why: Option<String>,
}

impl ClosedEvent {
    /// Returns 1 if the reported limit equals `expected`, else 0.
    #[must_use]
    pub fn metric(&self, expected: &str) -> f64 {
        f64::from(u8::from(self.limited.as_deref() == Some(expected)))
    }

    /// Returns a warning if the reported limit differs from `expected`.
    #[must_use]
    pub fn mismatch_warning(&self, expected: &str) -> Option<String> {
        let named = self.limited.as_deref().unwrap_or("nothing");
        let why = self.limited_why.as_deref().unwrap_or("no reason");
        (named != expected).then(|| format!("the relay names {named} and not {expected}: {why}"))
    }

    fn total_bytes(&self) -> u64 {
        self.bytes_up + self.bytes_down
    }
}

/// Waits for the session of the transfer in the relay's `log`, and returns the session with the most bytes.
///
/// # Errors
/// The log cannot be read, or contains only trial transfers.
pub fn read_largest_session(log: &Path) -> anyhow::Result<ClosedEvent> {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
        if let Some(event) = parse_largest_session(&text).filter(|event| event.total_bytes() > 2 * TRIAL_BYTES) {
            return Ok(event);
        }
        anyhow::ensure!(Instant::now() < deadline, "the relay's log has no event of the transfer");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn parse_largest_session(text: &str) -> Option<ClosedEvent> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<ClosedEvent>(line).ok());
    lines.filter(|event| event.event == "closed").max_by_key(ClosedEvent::total_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"listening
{"event":"closed","bytes_up":100,"bytes_down":1024,"limited":null}
{"event":"closed","bytes_up":100,"bytes_down":5000000,"limited":"up:loss","limited_why":"about 1 % were lost"}
{"event":"request","bytes_up":100,"bytes_down":9000000}
"#;

    #[test]
    fn largest_session_is_the_transfer() {
        let session = parse_largest_session(LOG).unwrap();
        assert!((session.metric("up:loss") - 1.0).abs() < 1e-9 && session.mismatch_warning("up:loss").is_none());
        assert!(session.metric("down:loss") < 1e-9);
        let warning = session.mismatch_warning("down:loss").unwrap();
        assert_eq!(warning, "the relay names up:loss and not down:loss: about 1 % were lost");
    }

    #[test]
    fn largest_session_needs_a_readable_log_with_a_closed_event() {
        let folder = crate::temp_dir::TempDir::for_test();
        let log = folder.path().join("log");
        std::fs::write(&log, LOG).unwrap();
        assert_eq!(read_largest_session(&log).unwrap().limited.as_deref(), Some("up:loss"));
        assert!(read_largest_session(&folder.path().join("none")).is_err());
        assert_eq!(parse_largest_session(&LOG.replace("closed", "opened")), None);
    }
}

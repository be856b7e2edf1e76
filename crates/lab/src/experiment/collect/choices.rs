//! The path of each session, and metrics of the path choices.
//!
//! The relay that selects paths logs a line of JSON when a session ends. The client's port identifies the session.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Deserialize;

use super::metric::COMPLETION_P95;
use super::results::SessionRun;
use crate::stats;

/// The key of the time until new sessions leave the path that has become worse, in seconds.
pub const TIME_TO_LEAVE: &str = "leave_s";
/// The key of the number of changes of the path that most new sessions use.
pub const PATH_CHANGES: &str = "path_changes";
/// The key of the median completion time of the sessions after the change of conditions, in milliseconds.
pub const COMPLETION_AFTER_CHANGE: &str = "after_ms";
/// The key of the time of the first change of conditions, in seconds since the start of the lab. It is shown, but not
/// compared.
pub const CHANGED_AT: &str = "changed_at_s";
/// The key of the share of sessions that failed.
pub const FAILED_SHARE: &str = "failed";

/// Number of consecutive new sessions on another path after which a path counts as left: a single session may explore
/// another path.
const MIN_CONSECUTIVE: usize = 5;
/// Length of the windows, in seconds, in which the most frequent path counts as the path of new sessions.
const MAJORITY_WINDOW: f64 = 2.0;
/// Time after the change, in seconds, from which sessions count as after the change.
const SETTLE_TIME: f64 = 10.0;
/// Maximum time from the last byte of a session to its line in the log.
const LOG_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the readings of the log.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Sets the path of each successful session from the `log` of the chooser, the relay that selects paths. `ports` has
/// the client's port of each session; `None` for failed sessions.
///
/// # Errors
/// The log cannot be read, or lacks a session.
pub fn assign_paths(log: &Path, sessions: &mut [SessionRun], ports: &[Option<u16>]) -> anyhow::Result<()> {
    let deadline = Instant::now() + LOG_TIMEOUT;
    loop {
        let text = std::fs::read_to_string(log).with_context(|| log.display().to_string())?;
        let paths = paths_by_client_port(&text);
        for (session, port) in sessions.iter_mut().zip(ports) {
            session.path = port.and_then(|port| paths.get(&port).cloned());
        }
        let missing = sessions.iter().zip(ports).filter(|(session, port)| port.is_some() && session.path.is_none());
        let missing = missing.count();
        if missing == 0 {
            return Ok(());
        }
        let total = sessions.len();
        anyhow::ensure!(Instant::now() < deadline, "the chooser's log lacks {missing} of {total} sessions");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The line of a session in the log.
#[derive(Deserialize)]
struct SessionLogEntry {
    event: String,
    client: Option<std::net::SocketAddr>,
    path: Option<String>,
}

/// Returns the paths of the closed sessions by the client's port; of sessions with the same port, that of the last.
fn paths_by_client_port(text: &str) -> BTreeMap<u16, String> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<SessionLogEntry>(line).ok());
    let closed = lines.filter(|line| line.event == "closed");
    closed.filter_map(|line| Some((line.client?.port(), path_name(&line.path?)))).collect()
}

/// Converts a path in the log to its name in treatments: the relays joined by `-`, for any separator in the log.
fn path_name(path: &str) -> String {
    let parts = path.split(|letter: char| letter.is_whitespace() || ",>→+/".contains(letter));
    parts.filter(|part| !part.is_empty() && *part != "-").collect::<Vec<_>>().join("-")
}

/// Returns the metrics of sessions that began at fixed times. Completion times are those of sessions that did not fail.
/// The conditions changed at `changed_at`, in seconds since the start of the lab; `degraded_relay` is the relay whose
/// path became worse.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a number of sessions")]
pub fn path_metrics(
    sessions: &[SessionRun],
    changed_at: Option<f64>,
    degraded_relay: Option<&str>,
) -> Vec<(&'static str, f64)> {
    let failed = sessions.iter().filter(|session| session.failed.is_some()).count();
    let mut metrics = vec![(FAILED_SHARE, failed as f64 / sessions.len().max(1) as f64)];
    let completions_from = |start: f64| -> Vec<f64> {
        let counted = sessions.iter().filter(|session| session.failed.is_none() && session.at >= start);
        counted.map(|session| session.ms).collect()
    };
    let mut completions = completions_from(0.0);
    completions.sort_by(f64::total_cmp);
    metrics.extend((!completions.is_empty()).then(|| (COMPLETION_P95, stats::quantile(&completions, 0.95))));
    if sessions.iter().any(|session| session.path.is_some()) {
        metrics.push((PATH_CHANGES, count_path_changes(sessions) as f64));
    }
    let Some(changed_at) = changed_at else { return metrics };
    metrics.push((CHANGED_AT, changed_at));
    metrics.extend(time_to_leave(sessions, changed_at, degraded_relay).map(|leave| (TIME_TO_LEAVE, leave)));
    let after_change = completions_from(changed_at + SETTLE_TIME);
    metrics.extend((!after_change.is_empty()).then(|| (COMPLETION_AFTER_CHANGE, stats::median(&after_change))));
    metrics
}

/// Counts the changes, from window to window, of the path that most new sessions use.
fn count_path_changes(sessions: &[SessionRun]) -> usize {
    let mut windows: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for session in sessions {
        let window = (session.at / MAJORITY_WINDOW) as u64;
        windows.entry(window).or_default().extend(session.path.as_deref());
    }
    let mut main: Vec<&str> = windows.values().filter_map(|paths| most_frequent(paths.iter().copied())).collect();
    main.dedup();
    main.len().saturating_sub(1)
}

/// Returns the most frequent element; of several, the first.
fn most_frequent<'a>(paths: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let count = |path: &str| paths.clone().filter(|other| *other == path).count();
    paths.clone().reduce(|best, path| if count(path) > count(best) { path } else { best })
}

/// Returns the seconds from `changed_at` until new sessions use another path than most sessions before, or until the
/// last session if they never do. `None` if most sessions before did not use `degraded_relay`, so that there was no
/// path to leave.
fn time_to_leave(sessions: &[SessionRun], changed_at: f64, degraded_relay: Option<&str>) -> Option<f64> {
    let paths: Vec<(f64, &str)> =
        sessions.iter().filter_map(|session| Some((session.at, session.path.as_deref()?))).collect();
    let (before, after) = paths.split_at(paths.partition_point(|(at, _)| *at < changed_at));
    let usual_path = most_frequent(before.iter().rev().take(2 * MIN_CONSECUTIVE).map(|(_, path)| *path))?;
    let is_degraded =
        |path: &str| degraded_relay.map_or(path == usual_path, |relay| path.split('-').next() == Some(relay));
    if !is_degraded(usual_path) {
        return None;
    }
    let window = after.windows(MIN_CONSECUTIVE).find(|row| !row.iter().any(|(_, path)| is_degraded(path)));
    let at = window.and_then(|row| row.first()).or(after.last())?.0;
    Some(at - changed_at)
}

#[cfg(test)]
pub(in crate::experiment) fn every_metric_for_tests() -> impl Iterator<Item = (String, f64)> {
    tests::all_path_metrics().into_iter().map(|(key, value)| (key.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(paths: &str) -> Vec<SessionRun> {
        let session = |(number, path): (u32, char)| SessionRun {
            at: f64::from(number),
            ms: if path == 'b' { 10.0 } else { 20.0 },
            path: (path != '!').then(|| path.to_string()),
            failed: (path == '!').then(|| "reset".to_owned()),
            ..SessionRun::default()
        };
        (0..).zip(paths.chars()).map(session).collect()
    }

    pub(in crate::experiment) fn all_path_metrics() -> Vec<(&'static str, f64)> {
        path_metrics(&sessions("aaaaaaaaaaabbbbbbbbbb"), Some(5.0), None)
    }

    fn path_metric(paths: &str, changed_at: Option<f64>, key: &str) -> Option<f64> {
        path_metrics(&sessions(paths), changed_at, None)
            .into_iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    #[test]
    fn session_paths_are_found_by_client_port() {
        let text = r#"listening
{"event":"closed","client":"10.0.0.1:5000","path":"direct"}
{"event":"request","client":"10.0.0.1:5000","path":"x"}
{"event":"closed","client":"10.0.0.1:6000","path":"a, b"}
{"event":"closed","client":"10.0.0.1:7000","path":"a > b"}
"#;
        let expected = [(5000, "direct"), (6000, "a-b"), (7000, "a-b")].map(|(port, path)| (port, path.to_owned()));
        assert_eq!(paths_by_client_port(text), expected.into());
    }

    #[test]
    fn failed_session_has_no_path_and_missing_log_is_an_error() {
        let folder = crate::temp_dir::TempDir::for_test();
        let log = folder.path().join("log");
        std::fs::write(&log, "{\"event\":\"closed\",\"client\":\"10.0.0.1:5000\",\"path\":\"a\"}\n").unwrap();
        let mut all = sessions("..");
        assign_paths(&log, &mut all, &[Some(5000), None]).unwrap();
        assert_eq!((all[0].path.as_deref(), all[1].path.as_deref()), (Some("a"), None), "a failed session has no path");
        assert!(assign_paths(Path::new("/nowhere"), &mut all, &[None, None]).is_err());
    }

    #[test]
    fn path_is_left_when_five_consecutive_sessions_use_another() {
        assert_eq!(
            path_metric("aaaaaaaaaaabaabbbbbb", Some(10.0), TIME_TO_LEAVE),
            Some(4.0),
            "a single session on another path does not count"
        );
        assert_eq!(
            path_metric("aaaaaaaaaaaaaaaabbbb", Some(10.0), TIME_TO_LEAVE),
            Some(9.0),
            "the path is never left: the rest of the run"
        );
        assert_eq!(path_metric("aaaaaaaaaabbbbbbbbbb", Some(10.0), TIME_TO_LEAVE), Some(0.0));
        assert_eq!(path_metric("aaaaaaaaaabbbbbbbbbb", None, TIME_TO_LEAVE), None);
    }

    #[test]
    fn time_to_leave_needs_sessions_on_the_degraded_relay() {
        let leave = |worse: &str| super::time_to_leave(&sessions("aaaaaaaaaaaabbbbbb"), 10.0, Some(worse));
        assert_eq!((leave("a"), leave("b")), (Some(2.0), None));
    }

    #[test]
    fn path_change_needs_a_majority_of_new_sessions() {
        assert_eq!(path_metric("aaaaaaaa", None, PATH_CHANGES), Some(0.0));
        assert_eq!(path_metric("aaaabbbb", None, PATH_CHANGES), Some(1.0));
        assert_eq!(path_metric("aabbaabb", None, PATH_CHANGES), Some(3.0));
        assert_eq!(path_metric("aaabaaaa", None, PATH_CHANGES), Some(0.0), "one session of two is no majority");
    }

    /// Only short flows had this metric, so that experiments with arrivals showed a table without figures.
    #[test]
    fn completion_p95_excludes_failed_sessions() {
        // Of 21 values the quantile is the 20th, of 11 the middle between the 10th and the 11th.
        assert_eq!(path_metric("bbbbbbbbbbbbbbbbbbb!aa", None, COMPLETION_P95), Some(20.0));
        assert_eq!(path_metric("bbbbbbbbbb!!!!!!!!!!a", None, COMPLETION_P95), Some(15.0));
        assert_eq!(path_metric("!!", None, COMPLETION_P95), None);
    }

    #[test]
    fn failed_share_and_completion_after_the_change_are_measured() {
        let paths = "aaaa!aaaaabbbbbbbbbbbbbbbbb!";
        assert_eq!(path_metric(paths, Some(5.0), FAILED_SHARE), Some(2.0 / 28.0));
        assert_eq!(path_metric(paths, Some(5.0), COMPLETION_AFTER_CHANGE), Some(10.0));
    }
}

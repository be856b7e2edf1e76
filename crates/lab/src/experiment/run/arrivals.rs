//! Downloads that begin at fixed times, independent of those before them, like the downloads of many users.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ekiden_sys::signal;

use super::task::TransferTask;
use super::transfer::Transfer;
use crate::experiment::collect::results::SessionRun;
use crate::experiment::spec::file::ArrivalProcess;

/// Maximum number of concurrent downloads, so that a path that transfers nothing cannot fill the machine with clients.
const MAX_CONCURRENT: usize = 64;
/// Interval of the checks for an interrupt during a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A download that has ended, successfully or not.
pub struct CompletedDownload {
    /// Start and result of the download; the path is not set.
    pub session: SessionRun,
    /// The measured transfer; `None` if the download failed.
    pub transfer: Option<Transfer>,
}

/// Starts downloads for `time`, each with a timeout of `timeout`. Returns the results in the order of their starts,
/// with start times relative to `started`.
///
/// # Errors
/// An interrupt. A failed download is not an error: the failure is in its result.
pub fn run_arrivals(
    task: &TransferTask<'_>,
    started: Instant,
    time: Duration,
    timeout: Duration,
) -> anyhow::Result<Vec<CompletedDownload>> {
    let moments = start_times(&task.workload.arrivals, time);
    let (begin, active) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let mut downloads = Vec::new();
        for (moment, bytes) in moments {
            sleep_until(begin + moment)?;
            let at = started.elapsed().as_secs_f64();
            let active = &active;
            active.fetch_add(1, Ordering::AcqRel);
            downloads.push(scope.spawn(move || {
                let is_free = active.load(Ordering::Acquire) <= MAX_CONCURRENT;
                let result = if is_free {
                    task.fetch(bytes, timeout)
                } else {
                    Err(anyhow::anyhow!("more than {MAX_CONCURRENT} concurrent downloads"))
                };
                active.fetch_sub(1, Ordering::AcqRel);
                completed_download(at, bytes, result)
            }));
        }
        let join = |download: std::thread::ScopedJoinHandle<'_, _>| {
            download.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(downloads.into_iter().map(join).collect())
    })
}

/// Returns the start time and the file size in bytes of each download, in the order of start times.
fn start_times(arrivals: &[ArrivalProcess], time: Duration) -> Vec<(Duration, u64)> {
    let of = |arrivals: &ArrivalProcess| {
        let (every, bytes) = (arrivals.every.0, arrivals.file.0);
        (0_u32..).map(move |number| every * number).take_while(move |at| *at < time).map(move |at| (at, bytes))
    };
    let mut all: Vec<(Duration, u64)> = arrivals.iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

/// Sleeps until `moment`. Fails on an interrupt.
pub(in crate::experiment) fn sleep_until(moment: Instant) -> anyhow::Result<()> {
    loop {
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        let remaining = moment.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(());
        }
        std::thread::sleep(remaining.min(POLL_INTERVAL));
    }
}

fn completed_download(at: f64, bytes: u64, result: anyhow::Result<Transfer>) -> CompletedDownload {
    let (ms, failed) = match &result {
        Ok(transfer) => (transfer.seconds * 1e3, None),
        Err(error) => (0.0, Some(format!("{error:#}"))),
    };
    CompletedDownload { session: SessionRun { at, bytes, ms, failed, path: None }, transfer: result.ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_times_repeat_at_each_interval_until_the_end() {
        let arrivals: Vec<ArrivalProcess> = ["file = \"1kB\"\nevery = \"400ms\"", "file = \"2kB\"\nevery = \"1s\""]
            .map(|text| toml::from_str(text).unwrap())
            .into();
        let starts: Vec<(u128, u64)> =
            start_times(&arrivals, Duration::from_secs(2)).iter().map(|(at, bytes)| (at.as_millis(), *bytes)).collect();
        assert_eq!(starts, [(0, 1000), (0, 2000), (400, 1000), (800, 1000), (1000, 2000), (1200, 1000), (1600, 1000)]);
    }

    #[test]
    fn failed_download_is_recorded_without_a_transfer() {
        let failed = completed_download(1.0, 10, Err(anyhow::anyhow!("reset").context("fetch")));
        assert_eq!(failed.session.failed.as_deref(), Some("fetch: reset"));
        assert!(failed.transfer.is_none());
        let done = completed_download(1.0, 10, Ok(Transfer { seconds: 0.5, ..Transfer::default() }));
        assert_eq!((done.session.ms, done.session.failed), (500.0, None));
    }
}

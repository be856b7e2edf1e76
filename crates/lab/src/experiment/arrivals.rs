//! Downloads that begin all the time: each at its moment, whatever became of those before it, as users come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ekiden_sys::signal;

use crate::experiment::file::Arrivals;
use crate::experiment::results::SessionRun;
use crate::experiment::task::Task;
use crate::experiment::transfer::Transfer;

/// At most so many are under way: a path that carries nothing must not fill the machine with clients.
const MOST: usize = 64;
/// A wait is cut into pieces of this length, to notice an interrupt.
const LOOK: Duration = Duration::from_millis(100);

/// One that has ended, and what is known of it.
pub struct Ended {
    /// When it began, what came of it; not yet which path it took.
    pub session: SessionRun,
    /// The transfer, if it succeeded.
    pub transfer: Option<Transfer>,
}

/// Lets downloads come for `time`, each with at most `timeout`. Times are told since `started`. They are in the order in which
/// they began.
///
/// # Errors
/// An interrupt. A download that fails is no error: it is told.
pub fn carry(task: &Task<'_>, started: Instant, time: Duration, timeout: Duration) -> anyhow::Result<Vec<Ended>> {
    let moments = moments(&task.workload.arrivals, time);
    let (begin, under_way) = (Instant::now(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let mut all = Vec::new();
        for (moment, bytes) in moments {
            wait_until(begin + moment)?;
            let at = started.elapsed().as_secs_f64();
            let under_way = &under_way;
            under_way.fetch_add(1, Ordering::AcqRel);
            all.push(scope.spawn(move || {
                let is_free = under_way.load(Ordering::Acquire) <= MOST;
                let result =
                    if is_free { task.fetch(bytes, timeout) } else { Err(anyhow::anyhow!("too many at once")) };
                under_way.fetch_sub(1, Ordering::AcqRel);
                ended(at, bytes, result)
            }));
        }
        let join = |one: std::thread::ScopedJoinHandle<'_, _>| {
            one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        Ok(all.into_iter().map(join).collect())
    })
}

/// When which file is fetched, the earliest first.
fn moments(arrivals: &[Arrivals], time: Duration) -> Vec<(Duration, u64)> {
    let of = |arrivals: &Arrivals| {
        let (every, bytes) = (arrivals.every.0, arrivals.file.0);
        (0_u32..).map(move |number| every * number).take_while(move |at| *at < time).map(move |at| (at, bytes))
    };
    let mut all: Vec<(Duration, u64)> = arrivals.iter().flat_map(of).collect();
    all.sort_unstable();
    all
}

/// Waits, unless the user interrupts.
pub(super) fn wait_until(moment: Instant) -> anyhow::Result<()> {
    loop {
        anyhow::ensure!(!signal::interrupted(), "interrupted");
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK));
    }
}

fn ended(at: f64, bytes: u64, result: anyhow::Result<Transfer>) -> Ended {
    let (ms, failed) = match &result {
        Ok(transfer) => (transfer.seconds * 1e3, None),
        Err(error) => (0.0, Some(format!("{error:#}"))),
    };
    Ended { session: SessionRun { at, bytes, ms, failed, path: None }, transfer: result.ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_at_their_moments_for_the_time() {
        let arrivals: Vec<Arrivals> = ["file = \"1kB\"\nevery = \"400ms\"", "file = \"2kB\"\nevery = \"1s\""]
            .map(|text| toml::from_str(text).unwrap())
            .into();
        let told: Vec<(u128, u64)> =
            moments(&arrivals, Duration::from_secs(2)).iter().map(|(at, bytes)| (at.as_millis(), *bytes)).collect();
        assert_eq!(told, [(0, 1000), (0, 2000), (400, 1000), (800, 1000), (1000, 2000), (1200, 1000), (1600, 1000)]);
    }

    #[test]
    fn one_that_failed_is_told_and_is_no_transfer() {
        let failed = ended(1.0, 10, Err(anyhow::anyhow!("reset").context("fetch")));
        assert_eq!(failed.session.failed.as_deref(), Some("fetch: reset"));
        assert!(failed.transfer.is_none());
        let done = ended(1.0, 10, Ok(Transfer { seconds: 0.5, ..Transfer::default() }));
        assert_eq!((done.session.ms, done.session.failed), (500.0, None));
    }
}

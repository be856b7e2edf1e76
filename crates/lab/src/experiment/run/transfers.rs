//! The transfers of a run: what comes before them, all of them, and what happens beside them.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::experiment::arrivals::{self, CompletedDownload};
use crate::experiment::choices;
use crate::experiment::read::RunSpec;
use crate::experiment::results::SessionRun;
use crate::experiment::schedule::Schedule;
use crate::experiment::task::TransferTask;
use crate::experiment::transfer::Transfer;
use crate::program::mesh;
use crate::program::service::Service;
use crate::topology::running::RunningLab;

/// What came of them.
#[derive(Default)]
pub(super) struct TransferResults {
    /// Those that succeeded.
    pub(super) transfers: Vec<Transfer>,
    /// All of them and their paths, if there was a choice or they came all the time.
    pub(super) sessions: Vec<SessionRun>,
}

/// Fetches what comes before the transfers that count. One that fails, or takes long, is part of what there is to learn.
pub(super) fn run_priming(task: &TransferTask<'_>, timeout: Duration) -> anyhow::Result<()> {
    let Some(prime) = &task.workload.prime else { return Ok(()) };
    let until = Instant::now() + prime.time.0;
    let files = if prime.files.is_empty() { task.workload.file.as_slice() } else { &prime.files };
    for file in files.iter().cycle().take(prime.sessions.unwrap_or(usize::MAX)) {
        if Instant::now() >= until {
            break;
        }
        let _ = task.fetch(file.0, timeout);
        arrivals::sleep_until(until.min(Instant::now() + prime.pause.0))?;
    }
    Ok(())
}

/// Waits until the lab is so old that transfers begin.
pub(super) fn wait_for_start(task: &TransferTask<'_>, started: Instant) -> anyhow::Result<()> {
    let Some(begins) = task.workload.begins.map(|begins| begins.0) else { return Ok(()) };
    let age = started.elapsed();
    anyhow::ensure!(age <= begins, "all was ready after {age:?} only: workload.begins = {begins:?} is too early");
    arrivals::sleep_until(started + begins)
}

/// Makes all of them, while what the file says happens.
///
/// # Errors
/// One of those that have to succeed does not, or something that was to happen does not.
pub(super) fn run_transfers(
    task: &TransferTask<'_>,
    spec: &RunSpec,
    running: &RunningLab,
    services: &mut Vec<Service>,
    timeout: Duration,
) -> anyhow::Result<TransferResults> {
    let (schedule, started) = (Schedule::from_spec(spec), running.started_at());
    let (guard, over) = channel();
    std::thread::scope(|scope| {
        let beside = scope.spawn(|| schedule.run(started, over, running.network(), task.folder, services));
        let ended = run_all(task, started, timeout);
        drop(guard);
        beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        assign_session_paths(ended?, spec, task.folder)
    })
}

fn run_all(task: &TransferTask<'_>, started: Instant, timeout: Duration) -> anyhow::Result<Vec<CompletedDownload>> {
    if let Some(time) = task.time.filter(|_| !task.workload.arrivals.is_empty()) {
        return arrivals::run_arrivals(task, started, time, timeout);
    }
    let one = |_| {
        let at = started.elapsed().as_secs_f64();
        let transfer = task.run_transfer(timeout)?;
        let session = SessionRun { at, bytes: transfer.bytes, ms: transfer.seconds * 1e3, ..SessionRun::default() };
        Ok(CompletedDownload { session, transfer: Some(transfer) })
    };
    (0..task.workload.transfers).map(one).collect()
}

/// Sessions have paths only if somebody had a choice.
fn assign_session_paths(
    ended: Vec<CompletedDownload>,
    spec: &RunSpec,
    folder: &Path,
) -> anyhow::Result<TransferResults> {
    let ports: Vec<Option<u16>> =
        ended.iter().map(|one| one.transfer.as_ref().and_then(|transfer| transfer.port)).collect();
    let (mut sessions, transfers): (Vec<SessionRun>, Vec<Option<Transfer>>) =
        ended.into_iter().map(|one| (one.session, one.transfer)).unzip();
    let transfers = transfers.into_iter().flatten().collect();
    match spec.treatment.chain.first().filter(|_| !spec.treatment.relays.is_empty()) {
        Some(chooser) => choices::assign_paths(&mesh::log_path(folder, chooser), &mut sessions, &ports)?,
        None if spec.workload.arrivals.is_empty() => sessions.clear(),
        None => {}
    }
    Ok(TransferResults { transfers, sessions })
}

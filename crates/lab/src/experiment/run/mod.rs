//! Runs: this file makes one run: it starts a lab for the run and its programs, makes the transfers, and decides from
//! the reports of the links whether the run is valid. [`campaign`] makes all runs in the order of [`mod@plan`].
//! Expectations are not judged here.

pub mod arrivals;
pub mod blocks;
pub mod campaign;
pub mod demo;
pub mod flows;
pub mod jobs;
pub mod plan;
pub mod program_files;
pub mod progress;
pub mod schedule;
pub mod share;
pub mod short;
pub mod stream;
pub mod task;
pub mod transfer;
pub mod virtual_runs;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use super::collect::cpu::{self, CpuSample};
use super::collect::links::LinkRateMeter;
use super::collect::packets::{self, DirectionLog, PacketLogRecorder};
use super::collect::results::{GroupRun, Run, SessionRun};
use super::collect::{choices, manifest, metric, named, visits};
use super::judge::predict;
use super::spec::read::{Experiment, RunSpec};
use crate::capture::{CaptureOptions, CaptureSummary};
use crate::emulator::StoppedCapture;
use crate::program::chain::{self, RelayContext};
use crate::program::receiver::FlowReceiver;
use crate::program::server::{Protocol, ServerOptions};
use crate::program::service::Service;
use crate::program::{mesh, transparent};
use crate::temp_dir::TempDir;
use crate::topology::{Lab, LabRecording, RunningLab};
use crate::warnings::{BUSY_SHARE, Warning};
use arrivals::CompletedDownload;
use campaign::ExperimentOptions;
use ekiden_emulator::ledger::{DirectionReport, DropCause};
use plan::PlannedRun;
use schedule::Schedule;
use task::{ContentFiles, TRIAL_BYTES, TransferTask};
use transfer::Transfer;

/// Maximum time until the first transfer through a chain succeeds.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between the attempts of that transfer.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Settings that all runs share.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// Directory of the temporary files of runs.
    pub folder: PathBuf,
    /// Directory of the results; logs of packets are written to its subdirectory `packets`.
    pub results_dir: PathBuf,
    /// Path of the ekiden executable; `None` if no treatment uses ekiden.
    pub ekiden: Option<PathBuf>,
    /// Whether runs have the full size, rather than the quick size.
    pub full: bool,
    /// Duration of a stream. `None`: the duration in the workload for the size.
    pub time: Option<Duration>,
    /// Timeout of a transfer.
    pub timeout: Duration,
    /// Maximum of the 99th percentile of packet lateness in a valid run.
    pub lateness_limit: Duration,
    /// Options of packet captures; each run has its own subdirectory. `None`: no captures.
    pub capture: Option<CaptureOptions>,
}

impl RunContext {
    /// Takes the settings from an experiment and the options of its campaign. `folder` receives the temporary files of
    /// runs.
    #[must_use]
    pub fn new(
        experiment: &Experiment,
        request: &ExperimentOptions,
        folder: &Path,
        results_dir: &Path,
        ekiden: Option<PathBuf>,
    ) -> Self {
        Self {
            folder: folder.to_owned(),
            results_dir: results_dir.to_owned(),
            ekiden,
            full: request.full,
            time: request.time,
            timeout: experiment.settings.timeout.0,
            lateness_limit: experiment.settings.lateness_limit.0,
            capture: request.capture.clone(),
        }
    }
}

/// The measurements of a completed run.
struct RunMeasurements {
    metrics: BTreeMap<String, f64>,
    timeline: Vec<(f64, u64)>,
    groups: Vec<GroupRun>,
    sessions: Vec<SessionRun>,
    links: Vec<DirectionReport>,
    packet_log: Vec<DirectionLog>,
    cpu_busy: f64,
    warnings: Vec<String>,
}

/// Makes a run. Every failure is recorded in the field `invalid` of the result.
#[must_use]
pub fn execute_run(planned: &PlannedRun<'_>, context: &RunContext) -> Run {
    let started = manifest::utc_now();
    let cell_key = planned.cell.key.clone();
    let (measured, duration) = run_lab(planned, context);
    let mut run = Run {
        block: planned.block,
        order: planned.order,
        levels: cell_key.levels,
        treatment: cell_key.treatment,
        took: duration.as_secs_f64(),
        started,
        ..Run::default()
    };
    match measured {
        Err(error) => run.invalid = Some(format!("{error:#}")),
        Ok(measured) => {
            run.invalid =
                invalid_reason(&measured.links, !planned.cell.spec.lab.events.is_empty(), context.lateness_limit);
            run.metrics = measured.metrics;
            run.timeline = measured.timeline;
            run.groups = measured.groups;
            run.sessions = measured.sessions;
            run.links = measured.links;
            run.warnings = measured.warnings;
            run.sequences = packets::sequence_plots(&measured.packet_log);
            run.warnings.extend(
                write_packet_log(planned, &measured.packet_log, &context.results_dir)
                    .err()
                    .map(|error| format!("{error:#}")),
            );
            run.cpu_busy = measured.cpu_busy;
            if run.cpu_busy > BUSY_SHARE {
                run.warnings.push(Warning::CpuBound.to_string());
            }
        }
    }
    run
}

/// Writes the packet log of a run of the first block to the directory of results. The logs of all blocks would need too
/// much disk space.
fn write_packet_log(planned: &PlannedRun<'_>, log: &[DirectionLog], results: &Path) -> anyhow::Result<()> {
    if planned.block > 0 || log.is_empty() {
        return Ok(());
    }
    packets::write_log(log, &results.join("packets").join(packets::folder_name(&planned.cell.key)))
}

/// Makes a run in its own lab, and returns the measurements and the duration of the run. A capture continues until the
/// programs have ended, and is written even if the run fails.
fn run_lab(planned: &PlannedRun<'_>, context: &RunContext) -> (anyhow::Result<RunMeasurements>, Duration) {
    let (spec, clock) = (&planned.cell.spec, Instant::now());
    let lab = Lab { seed: planned.seed, ..spec.lab.clone() };
    let capture = context.capture.as_ref().map(|options| CaptureOptions {
        directory: options
            .directory
            .join(packets::folder_name(&planned.cell.key))
            .join(format!("block-{}", planned.block + 1)),
        snaplen: options.snaplen,
    });
    let recording = LabRecording { packet_log: &spec.workload.packet_log, capture: capture.as_ref() };
    let started = TempDir::create(&context.folder, "run")
        .and_then(|folder| Ok((folder, RunningLab::start_with_recording(&lab, recording)?)));
    let (folder, running) = match started {
        Ok(started) => started,
        Err(error) => return (Err(error), clock.elapsed()),
    };
    let measured = measure_run(spec, &lab, &running, folder.path(), context);
    let stopped = running.stop();
    let duration = clock.elapsed();
    let captured = stopped.and_then(|capture| capture.map(StoppedCapture::finish).transpose());
    // The copy comes last, so that a capture changes no figure of a run.
    let copy_result = capture.map_or(Ok(()), |options| copy_logs(folder.path(), &options.directory));
    let measured = measured.and_then(|mut measured| {
        measured.warnings.extend(captured?.and_then(CaptureSummary::warning));
        copy_result?;
        Ok(measured)
    });
    (measured, duration)
}

/// Copies the logs of the programs of a run.
fn copy_logs(folder: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|kind| kind == "log")) {
            std::fs::copy(&path, to.join(name)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

fn measure_run(
    spec: &RunSpec,
    lab: &Lab,
    running: &RunningLab,
    folder: &Path,
    context: &RunContext,
) -> anyhow::Result<RunMeasurements> {
    if spec.workload.protocol == Protocol::Share {
        return share::measure(spec, lab.seed, running, folder, context);
    }
    let network = running.network();
    let find = |name: &str| network.host(name).with_context(|| format!("there is no host {name}"));
    let workload = &spec.workload;
    let time = workload.time.map(|time| context.time.unwrap_or(time.for_size(context.full)));
    let (client, host) = (find(&workload.client)?, find(&workload.server)?);
    let files = ContentFiles::create(&context.folder, workload.file_sizes())?;

    let stamped_block_size = workload.stamped_block_size();
    let server_options = ServerOptions { root: &files.root, stamped_block_size, rate: workload.server_rate };
    let (mut services, mut receiver) = (Vec::new(), None);
    match workload.protocol {
        Protocol::Flows => receiver = Some(FlowReceiver::start(host, Protocol::Flows.port())?),
        _ => services.push(workload.server_program().start(host, server_options, folder)?),
    }
    let relay_context = RelayContext {
        network,
        lab,
        client: client.address(),
        server: SocketAddr::new(host.address(), workload.protocol.port()),
        folder,
        ekiden: context.ekiden.as_deref(),
    };
    let (relays, route) = chain::start_relays(&spec.treatment, relay_context)?;
    services.extend(relays);
    let (files, receiver, server) = (&files, receiver.as_ref(), host.address());
    let task = TransferTask { workload, time, client, server, client_route: route, files, receiver, folder };
    let count_opens = || transparent::read_active_opens(&spec.treatment, network);
    wait_until_working(&task, &count_opens, &mut services)?;
    for _ in 0..workload.warm_up_transfers {
        task.try_transfer(READY_TIMEOUT).context("warm-up")?;
    }
    services.extend(schedule::start_background(spec, network, folder)?);
    run_priming(&task, context.timeout)?;
    wait_for_start(&task, running.started_at(), lab.seed)?;

    let log = PacketLogRecorder::start(running, lab, &workload.packet_log)?;
    let (before, hosts_before, started, opens_before) =
        (CpuSample::now(), cpu::cpu_time_by_host(network)?, Instant::now(), count_opens()?);
    let results = run_transfers(&task, spec, running, &mut services, context.timeout);
    let cpu_busy = CpuSample::now().zip(before).map_or(0.0, |(now, before)| now.busy_since(before));
    let (hosts, elapsed) = (cpu::cpu_time_by_host(network)?, started.elapsed());
    // The exit of a program explains a failed transfer, and invalidates a successful one. Background traffic that has
    // exited was not present during all transfers.
    if let Some(failure) = first_failure(&mut services) {
        anyhow::bail!(failure);
    }
    network.ensure_no_hidden_drops()?;
    let (results, log, links) = (results?, log.finish(running)?, running.reports()?);
    transparent::ensure_carried(&opens_before, &count_opens()?, workload.transfers)?;
    let mut metrics = run_metrics(spec, &results, &log);
    let TransferResults { transfers, sessions, .. } = results;
    metrics.extend(metric::cpu_metrics(&hosts_before, &hosts, &workload.client, &transfers, elapsed));
    let named_limit = read_named_limit(spec, folder)?;
    metrics.extend(
        named_limit.iter().map(|(expected, named_limit)| (named::LIMIT_NAMED.to_owned(), named_limit.metric(expected))),
    );
    let warnings =
        named_limit.iter().filter_map(|(expected, named_limit)| named_limit.mismatch_warning(expected)).collect();
    // With arrivals, the first download is not representative of the run.
    let first = transfers.into_iter().next().filter(|_| workload.arrivals.is_empty());
    let timeline = first.map(|first| first.timeline).unwrap_or_default();
    Ok(RunMeasurements { metrics, timeline, groups: Vec::new(), sessions, links, packet_log: log, cpu_busy, warnings })
}

/// Returns the limit that the workload expects, and the event of the largest session in the log of the first relay,
/// which names the measured limit. `None` if the workload expects no limit.
fn read_named_limit<'a>(spec: &'a RunSpec, folder: &Path) -> anyhow::Result<Option<(&'a str, named::ClosedEvent)>> {
    let Some((expected, relay)) = spec.workload.limited.as_deref().zip(spec.treatment.chain.first()) else {
        return Ok(None);
    };
    Ok(Some((expected, named::read_largest_session(&mesh::log_path(folder, relay))?)))
}

fn run_metrics(spec: &RunSpec, results: &TransferResults, log: &[DirectionLog]) -> BTreeMap<String, f64> {
    let TransferResults { transfers, sessions, link_rates } = results;
    let mut metrics = metric::transfer_metrics(transfers);
    metrics.extend(predict::prediction_metrics(spec, transfers));
    if spec.workload.file.is_some() && transfers.len() > 1 {
        metrics.extend(visits::visit_metrics(transfers, log));
    }
    metrics.extend(link_rates.clone());
    if !spec.workload.arrivals.is_empty() {
        let changed_at = schedule::first_change(spec).map(|at| at.as_secs_f64());
        let figures = choices::path_metrics(sessions, changed_at, spec.workload.worse.as_deref());
        metrics.extend(figures.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
    metrics
}

/// Repeats a small transfer until it succeeds, so that measurements begin only when all programs are in service. A
/// chain of proxies returns errors until each proxy has detected that the next one is alive, and packets bypass a
/// transparent relay until its rules are installed.
fn wait_until_working(
    task: &TransferTask<'_>,
    count_opens: &impl Fn() -> anyhow::Result<transparent::ActiveOpens>,
    services: &mut [Service],
) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let before = count_opens()?;
        let attempt =
            task.try_transfer(READY_TIMEOUT).and_then(|_| transparent::ensure_carried(&before, &count_opens()?, 1));
        let Err(error) = attempt else { return Ok(()) };
        if let Some(failure) = first_failure(services) {
            anyhow::bail!(failure);
        }
        anyhow::ensure!(!signal::is_interrupted(), "interrupted");
        if Instant::now() > deadline {
            return Err(error.context(format!("a trial of {TRIAL_BYTES} bytes did not succeed in {READY_TIMEOUT:?}")));
        }
        std::thread::sleep(RETRY_INTERVAL);
    }
}

fn first_failure(services: &mut [Service]) -> Option<String> {
    services.iter_mut().find_map(Service::failure)
}

/// Returns the reason why the reports of the links make a run invalid; `None` if the run is valid.
fn invalid_reason(links: &[DirectionReport], has_events: bool, limit: Duration) -> Option<String> {
    links.iter().find_map(|link| {
        let direction = format!("{} ({} → {})", link.link, link.from, link.to);
        if link.hidden > 0 {
            return Some(format!("the kernel dropped {} packets outside of the emulator on {direction}", link.hidden));
        }
        if let Some(lost) = link.dropped.get(&DropCause::Memory).filter(|lost| **lost > 0) {
            return Some(format!("the emulator had no memory for {lost} packets on {direction}"));
        }
        if !has_events && link.dropped.get(&DropCause::Down).is_some_and(|lost| *lost > 0) {
            return Some(format!("{direction} was down"));
        }
        let late = Duration::from_nanos(link.lateness.quantile(0.99));
        (late > limit).then(|| Warning::EmulatorLate { direction, late, limit }.to_string())
    })
}

/// Results of all transfers of a run.
#[derive(Default)]
struct TransferResults {
    transfers: Vec<Transfer>,
    /// All transfers, with their paths if a relay chooses between paths. Empty without such a relay and without
    /// arrivals.
    sessions: Vec<SessionRun>,
    /// Metrics of the rates of the links during the transfers.
    link_rates: BTreeMap<String, f64>,
}

/// Makes the unmeasured transfers before the measured ones. Failures are ignored: a failed or slow transfer is also a
/// sample for the relay.
fn run_priming(task: &TransferTask<'_>, timeout: Duration) -> anyhow::Result<()> {
    let Some(priming) = &task.workload.prime else { return Ok(()) };
    let until = Instant::now() + priming.time.0;
    let files = if priming.files.is_empty() { task.workload.file.as_slice() } else { &priming.files };
    for file in files.iter().cycle().take(priming.sessions.unwrap_or(usize::MAX)) {
        if Instant::now() >= until {
            break;
        }
        let _ = task.fetch(file.0, timeout);
        arrivals::sleep_until(until.min(Instant::now() + priming.pause.0))?;
    }
    Ok(())
}

/// Waits until the transfers begin: at `begins` of the workload after the start of the lab, by default now, plus a
/// random delay.
fn wait_for_start(task: &TransferTask<'_>, started: Instant, seed: u64) -> anyhow::Result<()> {
    let age = started.elapsed();
    let begins = task.workload.begins.map_or(age, |begins| begins.0);
    anyhow::ensure!(
        age <= begins,
        "hosts and programs were ready only after {age:?}: workload.begins = {begins:?} is too early"
    );
    let delay = plan::start_delay(task.workload.longest_start_delay(), seed, "transfers");
    arrivals::sleep_until(started + begins + delay)
}

/// Makes all transfers, with the events of the experiment file at their times.
///
/// # Errors
/// A transfer that must succeed fails, an event cannot be executed, or the links or the log of the relay cannot be
/// read.
fn run_transfers(
    task: &TransferTask<'_>,
    spec: &RunSpec,
    running: &RunningLab,
    services: &mut Vec<Service>,
    timeout: Duration,
) -> anyhow::Result<TransferResults> {
    let (schedule, started) = (Schedule::from_spec(spec), running.started_at());
    let (guard, stop) = channel();
    std::thread::scope(|scope| {
        let events = scope.spawn(|| schedule.run(started, stop, running.network(), task.folder, services));
        let meter = LinkRateMeter::start(running);
        let ended = run_all(task, running, timeout);
        let link_rates = meter.and_then(|meter| meter.finish(running));
        drop(guard);
        events.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let results = assign_session_paths(ended?, spec, task.folder)?;
        Ok(TransferResults { link_rates: link_rates?, ..results })
    })
}

fn run_all(task: &TransferTask<'_>, running: &RunningLab, timeout: Duration) -> anyhow::Result<Vec<CompletedDownload>> {
    let (started, network) = (running.started_at(), running.network());
    if let Some(time) = task.time.filter(|_| !task.workload.arrivals.is_empty()) {
        return arrivals::run_arrivals(task, started, time, timeout);
    }
    let download = |number| {
        if let Some(idle) = task.workload.idle.filter(|_| number > 0) {
            arrivals::sleep_until(Instant::now() + idle.0)?;
        }
        let (at, before) = (started.elapsed().as_secs_f64(), network.recovery()?);
        let mut transfer = task.run_transfer(timeout)?;
        (transfer.at, transfer.recovery) = (at, network.recovery()?.since(before));
        let session = SessionRun { at, bytes: transfer.bytes, ms: transfer.seconds * 1e3, ..SessionRun::default() };
        Ok(CompletedDownload { session, transfer: Some(transfer) })
    };
    (0..task.workload.transfers).map(download).collect()
}

/// Sets the paths of the sessions from the log of the first relay, if that relay chooses between paths.
fn assign_session_paths(
    downloads: Vec<CompletedDownload>,
    spec: &RunSpec,
    folder: &Path,
) -> anyhow::Result<TransferResults> {
    let ports: Vec<Option<u16>> =
        downloads.iter().map(|download| download.transfer.as_ref().and_then(|transfer| transfer.port)).collect();
    let (mut sessions, transfers): (Vec<SessionRun>, Vec<Option<Transfer>>) =
        downloads.into_iter().map(|download| (download.session, download.transfer)).unzip();
    let transfers = transfers.into_iter().flatten().collect();
    match spec.treatment.chain.first().filter(|_| !spec.treatment.relays.is_empty()) {
        Some(chooser) => choices::assign_paths(&mesh::log_path(folder, chooser), &mut sessions, &ports)?,
        None if spec.workload.arrivals.is_empty() => sessions.clear(),
        None => {}
    }
    Ok(TransferResults { transfers, sessions, ..TransferResults::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_emulator::lateness::LatenessHistogram;

    fn link(hidden: u64, late: u64) -> DirectionReport {
        let lateness = LatenessHistogram { bounds: vec![late, u64::MAX], counts: vec![100, 0], max: late };
        DirectionReport { link: "wan".into(), from: "a".into(), to: "b".into(), hidden, lateness, ..Default::default() }
    }

    #[test]
    fn late_emulation_and_hidden_drops_invalidate_a_run() {
        let limit = Duration::from_millis(1);
        assert_eq!(invalid_reason(&[link(0, 900_000)], false, limit), None);
        let late = invalid_reason(&[link(0, 0), link(0, 2_000_000)], false, limit).unwrap();
        assert!(late.starts_with("the emulator fell behind on wan (a → b)"), "{late}");
        let hidden = invalid_reason(&[link(3, 0)], false, limit).unwrap();
        assert_eq!(hidden, "the kernel dropped 3 packets outside of the emulator on wan (a → b)");
    }

    #[test]
    fn link_down_invalidates_a_run_without_events() {
        let mut down = link(0, 0);
        down.dropped.insert(DropCause::Down, 1);
        let limit = Duration::from_millis(1);
        assert_eq!(invalid_reason(&[down.clone()], false, limit).as_deref(), Some("wan (a → b) was down"));
        assert_eq!(invalid_reason(&[down], true, limit), None);
    }
}

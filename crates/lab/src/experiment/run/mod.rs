//! One run: a lab of its own, its programs, the transfers, and whether it counts.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::emulator::DirectionReport;
use crate::experiment::choices;
use crate::experiment::cpu::{self, CpuSample};
use crate::experiment::fairness;
use crate::experiment::manifest;
use crate::experiment::metric;
use crate::experiment::named;
use crate::experiment::packets::{self, DirectionLog, PacketLogRecorder};
use crate::experiment::plan::PlannedRun;
use crate::experiment::predict;
use crate::experiment::read::RunSpec;
use crate::experiment::results::{GroupRun, Run, SessionRun};
use crate::experiment::task::{ContentFiles, TRIAL_BYTES, TransferTask};
use crate::experiment::transfer::Transfer;
use crate::experiment::{schedule, share};
use crate::program::chain::{self, RelayContext};
use crate::program::mesh;
use crate::program::receiver::FlowReceiver;
use crate::program::server::{Protocol, ServerOptions};
use crate::program::service::Service;
use crate::program::transparent;
use crate::topology::Lab;
use crate::topology::running::RunningLab;
use crate::warnings::{BUSY_SHARE, Warning};

mod faithful;
mod transfers;
use faithful::invalid_reason;

/// How long a chain may take until it works.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How often it is tried until then.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What runs have in common.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// Where files of runs go.
    pub folder: PathBuf,
    /// Where results go, and logs of packets beside them.
    pub results_dir: PathBuf,
    /// Where ekiden is; none if no treatment uses it.
    pub ekiden: Option<PathBuf>,
    /// Whether runs are of the full size.
    pub full: bool,
    /// How long a stream is. None: as the workload says for the size.
    pub time: Option<Duration>,
    /// How long a transfer may take.
    pub timeout: Duration,
    /// How late one packet in a hundred may be.
    pub lateness_limit: Duration,
}

/// What a run that came to its end has measured.
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

/// Makes a run. Whatever goes wrong is in its `invalid`.
#[must_use]
pub fn execute_run(planned: &PlannedRun<'_>, means: &RunContext) -> Run {
    let (started, clock) = (manifest::utc_now(), Instant::now());
    let place = planned.cell.key.clone();
    let measured = measure_run(&planned.cell.spec, planned.seed, means);
    let mut run = Run {
        block: planned.block,
        order: planned.order,
        levels: place.levels,
        treatment: place.treatment,
        took: clock.elapsed().as_secs_f64(),
        started,
        ..Run::default()
    };
    match measured {
        Err(error) => run.invalid = Some(format!("{error:#}")),
        Ok(measured) => {
            run.invalid =
                invalid_reason(&measured.links, !planned.cell.spec.lab.events.is_empty(), means.lateness_limit);
            run.metrics = measured.metrics;
            run.timeline = measured.timeline;
            run.groups = measured.groups;
            run.sessions = measured.sessions;
            run.links = measured.links;
            run.warnings = measured.warnings;
            run.sequences = packets::sequence_plots(&measured.packet_log);
            run.warnings.extend(
                write_packet_log(planned, &measured.packet_log, &means.results_dir)
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

/// The log of the first block, beside the results; those of all would fill disks.
fn write_packet_log(planned: &PlannedRun<'_>, log: &[DirectionLog], results: &Path) -> anyhow::Result<()> {
    if planned.block > 0 || log.is_empty() {
        return Ok(());
    }
    packets::write_log(log, &results.join("packets").join(packets::folder_name(&planned.cell.key)))
}

fn measure_run(spec: &RunSpec, seed: u64, means: &RunContext) -> anyhow::Result<RunMeasurements> {
    // What is made last goes first: programs before the network they run in.
    let lab = Lab { seed, ..spec.lab.clone() };
    let running = RunningLab::start_with_packet_log(&lab, &spec.workload.packet_log)?;
    let folder = TempDir::create(&means.folder, "run")?;
    if spec.workload.protocol == Protocol::Share {
        return measure_shared(spec, &running, &folder.0, means);
    }
    let network = running.network();
    let find = |name: &str| network.host(name).with_context(|| format!("there is no host {name}"));
    let workload = &spec.workload;
    let time = workload.time.map(|time| means.time.unwrap_or(time.for_size(means.full)));
    let (client, host) = (find(&workload.client)?, find(&workload.server)?);
    let files = ContentFiles::create(&means.folder, workload.file_sizes())?;

    let stamped_block_size = workload.stamped_block_size();
    let serving = ServerOptions { root: &files.root, stamped_block_size, rate: workload.server_rate };
    let (mut services, mut receiver) = (Vec::new(), None);
    match workload.protocol {
        Protocol::Flows => receiver = Some(FlowReceiver::start(host, Protocol::Flows.port())?),
        _ => services.push(workload.server_program().start(host, serving, &folder.0)?),
    }
    let around = RelayContext {
        network,
        lab: &lab,
        client: client.address(),
        server: SocketAddrV4::new(host.address(), workload.protocol.port()),
        folder: &folder.0,
        ekiden: means.ekiden.as_deref(),
    };
    let (relays, via) = chain::start_relays(&spec.treatment, around)?;
    services.extend(relays);
    let (files, receiver, folder) = (&files, receiver.as_ref(), &folder.0);
    let server = host.address();
    let task = TransferTask { workload, time, client, server, client_route: via, files, receiver, folder };
    let dialled = || transparent::read_active_opens(&spec.treatment, network);
    wait_until_working(&task, &dialled, &mut services)?;
    for _ in 0..workload.warm_up_transfers {
        task.try_transfer(READY_TIMEOUT).context("warm-up")?;
    }
    services.extend(schedule::start_background(spec, network, folder)?);
    transfers::run_priming(&task, means.timeout)?;
    transfers::wait_for_start(&task, running.started_at())?;

    let log = PacketLogRecorder::start(&running, &lab, &workload.packet_log)?;
    let (before, hosts_before, dialled_before) = (CpuSample::now(), cpu::cpu_time_by_host(network)?, dialled()?);
    let made = transfers::run_transfers(&task, spec, &running, &mut services, means.timeout);
    let cpu_busy = CpuSample::now().zip(before).map_or(0.0, |(now, before)| now.busy_since(before));
    let hosts = cpu::cpu_time_by_host(network)?;
    // A program that died explains a failed transfer, and makes one that succeeded worthless. Background traffic that
    // has ended was not there all the time.
    if let Some(failure) = first_failure(&mut services) {
        anyhow::bail!(failure);
    }
    network.ensure_no_hidden_drops()?;
    let transfers::TransferResults { transfers, sessions } = made?;
    transparent::ensure_carried(&dialled_before, &dialled()?, workload.transfers)?;
    let mut metrics = run_metrics(spec, &transfers, &sessions);
    metrics.extend(metric::cpu_metrics(&hosts_before, &hosts, &workload.client, &transfers));
    let told = read_named_limit(spec, folder)?;
    metrics.extend(told.iter().map(|(expected, told)| (named::LIMIT_NAMED.to_owned(), told.metric(expected))));
    let warnings = told.iter().filter_map(|(expected, told)| told.mismatch_warning(expected)).collect();
    // Of downloads that come all the time, the first is no picture of the run.
    let first = transfers.into_iter().next().filter(|_| workload.arrivals.is_empty());
    let timeline = first.map(|first| first.timeline).unwrap_or_default();
    let (log, links) = (log.finish(&running)?, running.reports()?);
    Ok(RunMeasurements { metrics, timeline, groups: Vec::new(), sessions, links, packet_log: log, cpu_busy, warnings })
}

/// What the first relay is to name, if it is to, and what it names.
fn read_named_limit<'a>(spec: &'a RunSpec, folder: &Path) -> anyhow::Result<Option<(&'a str, named::ClosedEvent)>> {
    let Some((expected, relay)) = spec.workload.limited.as_deref().zip(spec.treatment.chain.first()) else {
        return Ok(None);
    };
    Ok(Some((expected, named::read_largest_session(&mesh::log_path(folder, relay))?)))
}

fn run_metrics(spec: &RunSpec, transfers: &[Transfer], sessions: &[SessionRun]) -> BTreeMap<String, f64> {
    let mut metrics = metric::transfer_metrics(transfers);
    metrics.extend(predict::prediction_metrics(spec, transfers));
    if !spec.workload.arrivals.is_empty() {
        let trouble = schedule::first_change(spec).map(|at| at.as_secs_f64());
        let figures = choices::path_metrics(sessions, trouble, spec.workload.worse.as_deref());
        metrics.extend(figures.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
    metrics
}

/// The same where several groups share a bottleneck.
fn measure_shared(
    spec: &RunSpec,
    running: &RunningLab,
    folder: &Path,
    means: &RunContext,
) -> anyhow::Result<RunMeasurements> {
    let (workload, network) = (&spec.workload, running.network());
    let time = workload.time.map(|time| means.time.unwrap_or(time.for_size(means.full))).unwrap_or_default();
    let warm_up = workload.warm_up.map_or(Duration::ZERO, |warm_up| warm_up.0);
    anyhow::ensure!(warm_up < time, "all of {time:?} would be the warm-up of {warm_up:?}: a longer --time");
    let request = share::SharedBottleneckRequest {
        groups: &workload.group,
        network,
        time,
        warm_up,
        timeout: means.timeout,
        folder,
    };
    let mut ready = share::prepare(request)?;
    let (before, busy_before) = (running.reports()?, CpuSample::now());
    let groups = ready.run();
    let cpu_busy = CpuSample::now().zip(busy_before).map_or(0.0, |(now, before)| now.busy_since(before));
    if let Some(failure) = first_failure(&mut ready.services) {
        anyhow::bail!(failure);
    }
    network.ensure_no_hidden_drops()?;
    let (groups, links) = (groups?, running.reports()?);
    let waits = fairness::bottleneck_delays(&before, &links);
    let mut metrics = fairness::group_metrics(&groups, workload.ratio.as_ref(), &waits);
    metrics.extend(
        fairness::mean_window(&spec.lab, workload, &groups).map(|window| ("window_packets".to_owned(), window)),
    );
    Ok(RunMeasurements {
        metrics,
        timeline: Vec::new(),
        groups,
        sessions: Vec::new(),
        links,
        packet_log: Vec::new(),
        cpu_busy,
        warnings: Vec::new(),
    })
}

/// Tries a small transfer until it succeeds: a chain of proxies answers with errors until each knows that the next is
/// alive, and a transparent one lets packets pass until its rules are there. What is measured afterwards finds programs in
/// service, as users do.
fn wait_until_working(
    task: &TransferTask<'_>,
    dialled: &impl Fn() -> anyhow::Result<transparent::ActiveOpens>,
    services: &mut [Service],
) -> anyhow::Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let before = dialled()?;
        let attempt =
            task.try_transfer(READY_TIMEOUT).and_then(|_| transparent::ensure_carried(&before, &dialled()?, 1));
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

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes `base/name`, anew.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(base: &Path, name: &str) -> anyhow::Result<Self> {
        let folder = base.join(name);
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self(folder))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // Nobody is left to be told; it is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

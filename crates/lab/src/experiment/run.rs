//! One run: a lab of its own, its programs, the transfers, and whether it counts.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use crate::emulator::DirectionReport;
use crate::experiment::choices;
use crate::experiment::cpu::{self, Reading};
use crate::experiment::fairness;
use crate::experiment::manifest;
use crate::experiment::metric;
use crate::experiment::named;
use crate::experiment::packets::{self, Direction, Log};
use crate::experiment::plan::Planned;
use crate::experiment::predict;
use crate::experiment::read::Spec;
use crate::experiment::results::{GroupRun, Run, SessionRun};
use crate::experiment::task::{Files, TRIAL, Task};
use crate::experiment::transfer::Transfer;
use crate::experiment::{schedule, share};
use crate::program::chain::{self, Surroundings};
use crate::program::mesh;
use crate::program::receiver::Receiver;
use crate::program::server::{Protocol, Serving};
use crate::program::service::Service;
use crate::program::transparent;
use crate::topology::Lab;
use crate::topology::running::Running;
use crate::warnings::{BUSY, Warning};

mod faithful;
mod transfers;
use faithful::objection;

/// How long a chain may take until it works.
const WORKS: Duration = Duration::from_secs(20);
/// How often it is tried until then.
const AGAIN: Duration = Duration::from_millis(200);

/// What runs have in common.
#[derive(Debug, Clone)]
pub struct Means {
    /// Where files of runs go.
    pub folder: PathBuf,
    /// Where results go, and logs of packets beside them.
    pub results: PathBuf,
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
struct Measured {
    metrics: BTreeMap<String, f64>,
    timeline: Vec<(f64, u64)>,
    groups: Vec<GroupRun>,
    sessions: Vec<SessionRun>,
    links: Vec<DirectionReport>,
    log: Vec<Direction>,
    cpu_busy: f64,
    warnings: Vec<String>,
}

/// Makes a run. Whatever goes wrong is in its `invalid`.
#[must_use]
pub fn make(planned: &Planned<'_>, means: &Means) -> Run {
    let (started, clock) = (manifest::now(), Instant::now());
    let place = planned.cell.place.clone();
    let measured = measure(&planned.cell.spec, planned.seed, means);
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
            run.invalid = objection(&measured.links, !planned.cell.spec.lab.events.is_empty(), means.lateness_limit);
            run.metrics = measured.metrics;
            run.timeline = measured.timeline;
            run.groups = measured.groups;
            run.sessions = measured.sessions;
            run.links = measured.links;
            run.warnings = measured.warnings;
            run.sequences = packets::pictures(&measured.log);
            run.warnings
                .extend(write_log(planned, &measured.log, &means.results).err().map(|error| format!("{error:#}")));
            run.cpu_busy = measured.cpu_busy;
            if run.cpu_busy > BUSY {
                run.warnings.push(Warning::CpuBound.to_string());
            }
        }
    }
    run
}

/// The log of the first block, beside the results; those of all would fill disks.
fn write_log(planned: &Planned<'_>, log: &[Direction], results: &Path) -> anyhow::Result<()> {
    if planned.block > 0 || log.is_empty() {
        return Ok(());
    }
    packets::write(log, &results.join("packets").join(packets::folder_name(&planned.cell.place)))
}

fn measure(spec: &Spec, seed: u64, means: &Means) -> anyhow::Result<Measured> {
    // What is made last goes first: programs before the network they run in.
    let lab = Lab { seed, ..spec.lab.clone() };
    let running = Running::start_logged(&lab, &spec.workload.packet_log)?;
    let folder = Folder::create(&means.folder, "run")?;
    if spec.workload.protocol == Protocol::Share {
        return shared(spec, &running, &folder.0, means);
    }
    let network = running.network();
    let find = |name: &str| network.host(name).with_context(|| format!("there is no host {name}"));
    let workload = &spec.workload;
    let time = workload.time.map(|time| means.time.unwrap_or(time.of(means.full)));
    let (client, host) = (find(&workload.client)?, find(&workload.server)?);
    let files = Files::create(&means.folder, workload.files())?;

    let serving = Serving { root: &files.root, stamped: workload.stamped(), rate: workload.server_rate };
    let (mut services, mut receiver) = (Vec::new(), None);
    match workload.protocol {
        Protocol::Flows => receiver = Some(Receiver::start(host, Protocol::Flows.port())?),
        _ => services.push(workload.server_program().start(host, serving, &folder.0)?),
    }
    let around = Surroundings {
        network,
        lab: &lab,
        client: client.address(),
        server: SocketAddrV4::new(host.address(), workload.protocol.port()),
        folder: &folder.0,
        ekiden: means.ekiden.as_deref(),
    };
    let (relays, via) = chain::start(&spec.treatment, around)?;
    services.extend(relays);
    let (files, receiver, folder) = (&files, receiver.as_ref(), &folder.0);
    let task = Task { workload, time, client, server: host.address(), via, files, receiver, folder };
    let dialled = || transparent::dialled(&spec.treatment, network);
    until_it_works(&task, &dialled, &mut services)?;
    for _ in 0..workload.warm_up_transfers {
        task.attempt(WORKS).context("warm-up")?;
    }
    services.extend(schedule::start_background(spec, network, folder)?);
    transfers::prime(&task, means.timeout)?;
    transfers::await_beginning(&task, running.started())?;

    let log = Log::begin(&running, &lab, &workload.packet_log)?;
    let (before, hosts_before, dialled_before) = (Reading::now(), cpu::of_hosts(network)?, dialled()?);
    let made = transfers::make(&task, spec, &running, &mut services, means.timeout);
    let cpu_busy = Reading::now().zip(before).map_or(0.0, |(now, before)| now.busy_since(before));
    let hosts = cpu::of_hosts(network)?;
    // A program that died explains a failed transfer, and makes one that succeeded worthless. Background traffic that
    // has ended was not there all the time.
    if let Some(failure) = first_failure(&mut services) {
        anyhow::bail!(failure);
    }
    network.ensure_nothing_hidden()?;
    let transfers::Made { transfers, sessions } = made?;
    transparent::carried(&dialled_before, &dialled()?, workload.transfers)?;
    let mut metrics = figures(spec, &transfers, &sessions);
    metrics.extend(metric::of_hosts(&hosts_before, &hosts, &workload.client, &transfers));
    let told = told(spec, folder)?;
    metrics.extend(told.iter().map(|(expected, told)| (named::NAMED.to_owned(), told.figure(expected))));
    let warnings = told.iter().filter_map(|(expected, told)| told.objection(expected)).collect();
    // Of downloads that come all the time, the first is no picture of the run.
    let first = transfers.into_iter().next().filter(|_| workload.arrivals.is_empty());
    let timeline = first.map(|first| first.timeline).unwrap_or_default();
    let (log, links) = (log.end(&running)?, running.reports()?);
    Ok(Measured { metrics, timeline, groups: Vec::new(), sessions, links, log, cpu_busy, warnings })
}

/// What the first relay is to name, if it is to, and what it names.
fn told<'a>(spec: &'a Spec, folder: &Path) -> anyhow::Result<Option<(&'a str, named::Told)>> {
    let Some((expected, relay)) = spec.workload.limited.as_deref().zip(spec.treatment.chain.first()) else {
        return Ok(None);
    };
    Ok(Some((expected, named::read(&mesh::log(folder, relay))?)))
}

fn figures(spec: &Spec, transfers: &[Transfer], sessions: &[SessionRun]) -> BTreeMap<String, f64> {
    let mut metrics = metric::of(transfers);
    metrics.extend(predict::figures(spec, transfers));
    if !spec.workload.arrivals.is_empty() {
        let trouble = schedule::trouble(spec).map(|at| at.as_secs_f64());
        let figures = choices::figures(sessions, trouble, spec.workload.worse.as_deref());
        metrics.extend(figures.into_iter().map(|(key, value)| (key.to_owned(), value)));
    }
    metrics
}

/// The same where several groups share a bottleneck.
fn shared(spec: &Spec, running: &Running, folder: &Path, means: &Means) -> anyhow::Result<Measured> {
    let (workload, network) = (&spec.workload, running.network());
    let time = workload.time.map(|time| means.time.unwrap_or(time.of(means.full))).unwrap_or_default();
    let warm_up = workload.warm_up.map_or(Duration::ZERO, |warm_up| warm_up.0);
    anyhow::ensure!(warm_up < time, "all of {time:?} would be the warm-up of {warm_up:?}: a longer --time");
    let request = share::Request { groups: &workload.group, network, time, warm_up, timeout: means.timeout, folder };
    let mut ready = share::prepare(request)?;
    let (before, busy_before) = (running.reports()?, Reading::now());
    let groups = ready.carry();
    let cpu_busy = Reading::now().zip(busy_before).map_or(0.0, |(now, before)| now.busy_since(before));
    if let Some(failure) = first_failure(&mut ready.services) {
        anyhow::bail!(failure);
    }
    network.ensure_nothing_hidden()?;
    let (groups, links) = (groups?, running.reports()?);
    let waits = fairness::waits(&before, &links);
    let mut metrics = fairness::of(&groups, workload.ratio.as_ref(), &waits);
    metrics.extend(fairness::window(&spec.lab, workload, &groups).map(|window| ("window_packets".to_owned(), window)));
    Ok(Measured {
        metrics,
        timeline: Vec::new(),
        groups,
        sessions: Vec::new(),
        links,
        log: Vec::new(),
        cpu_busy,
        warnings: Vec::new(),
    })
}

/// Tries a small transfer until it succeeds: a chain of proxies answers with errors until each knows that the next is
/// alive, and a transparent one lets packets pass until its rules are there. What is measured afterwards finds programs in
/// service, as users do.
fn until_it_works(
    task: &Task<'_>,
    dialled: &impl Fn() -> anyhow::Result<transparent::Dialled>,
    services: &mut [Service],
) -> anyhow::Result<()> {
    let deadline = Instant::now() + WORKS;
    loop {
        let before = dialled()?;
        let attempt = task.attempt(WORKS).and_then(|_| transparent::carried(&before, &dialled()?, 1));
        let Err(error) = attempt else { return Ok(()) };
        if let Some(failure) = first_failure(services) {
            anyhow::bail!(failure);
        }
        anyhow::ensure!(!signal::interrupted(), "interrupted");
        if Instant::now() > deadline {
            return Err(error.context(format!("a trial of {TRIAL} bytes did not succeed in {WORKS:?}")));
        }
        std::thread::sleep(AGAIN);
    }
}

fn first_failure(services: &mut [Service]) -> Option<String> {
    services.iter_mut().find_map(Service::failure)
}

/// A folder that is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
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

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody is left to be told; it is in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

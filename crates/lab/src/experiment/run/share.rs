//! Several concurrent groups of connections: each is an iperf3 process with its own server, or sends short flows from
//! threads of the laboratory.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::transfer::ClientProcess;
use super::{RunContext, RunMeasurements, first_failure, plan, short, stream};
use crate::experiment::collect::cpu::CpuSample;
use crate::experiment::collect::fairness;
use crate::experiment::collect::results::GroupRun;
use crate::experiment::spec::group::FlowGroup;
use crate::experiment::spec::read::RunSpec;
use crate::program::iperf3::{self, GroupStats};
use crate::program::service::{LaunchSpec, Service};
use crate::topology::RunningLab;
use crate::topology::network::{HostHandle, Network};

/// Factor from bytes to megabits.
const BYTES_TO_MBIT: f64 = 8e-6;

/// Makes the measurements of a run in which several groups share a bottleneck.
///
/// # Errors
/// A program is missing or failed, a group did not use its configured congestion control, a timeout, or an interrupt.
pub(super) fn measure(
    spec: &RunSpec,
    seed: u64,
    running: &RunningLab,
    folder: &Path,
    context: &RunContext,
) -> anyhow::Result<RunMeasurements> {
    let (workload, network) = (&spec.workload, running.network());
    let time = workload.time.map(|time| context.time.unwrap_or(time.for_size(context.full))).unwrap_or_default();
    let warm_up = workload.warm_up.map_or(Duration::ZERO, |warm_up| warm_up.0);
    anyhow::ensure!(warm_up < time, "warm_up = {warm_up:?} is not shorter than the time {time:?}: use a longer --time");
    let request = SharedBottleneckRequest {
        groups: &workload.group,
        network,
        time,
        warm_up,
        stagger: workload.longest_start_delay(),
        seed,
        timeout: context.timeout,
        folder,
    };
    let mut prepared = prepare(request)?;
    let (before, busy_before) = (running.reports()?, CpuSample::now());
    let groups = prepared.run();
    let cpu_busy = CpuSample::now().zip(busy_before).map_or(0.0, |(now, before)| now.busy_since(before));
    if let Some(failure) = first_failure(&mut prepared.services) {
        anyhow::bail!(failure);
    }
    network.ensure_no_hidden_drops()?;
    let (groups, links) = (groups?, running.reports()?);
    let queue_delays = fairness::bottleneck_delays(&before, &links);
    let mut metrics = fairness::group_metrics(&groups, workload.ratio.as_ref(), &queue_delays);
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

/// Parameters of a run in which several groups share a bottleneck.
#[derive(Clone, Copy)]
struct SharedBottleneckRequest<'a> {
    /// The groups of connections that share the bottleneck.
    groups: &'a [FlowGroup],
    /// The hosts and links of the lab.
    network: &'a Network,
    /// Duration of each group, including the warm-up.
    time: Duration,
    /// Time at the start that is not measured.
    warm_up: Duration,
    /// Upper bound of the start delay of each group.
    stagger: Duration,
    /// Seed of the start delays.
    seed: u64,
    /// Time that a client may take beyond `time`.
    timeout: Duration,
    /// Directory of the programs' output.
    folder: &'a Path,
}

/// A group with its hosts.
#[derive(Clone, Copy)]
pub(in crate::experiment) struct GroupEndpoints<'a> {
    pub(in crate::experiment) group: &'a FlowGroup,
    pub(in crate::experiment) from: &'a HostHandle,
    pub(in crate::experiment) to: &'a HostHandle,
    /// The address and port of the group's receiver.
    pub(in crate::experiment) server: SocketAddr,
    /// Delay of the group after the start of the measurement.
    pub(in crate::experiment) start_delay: Duration,
}

/// The groups after their iperf3 servers have been started.
struct PreparedGroups<'a> {
    request: SharedBottleneckRequest<'a>,
    endpoints: Vec<GroupEndpoints<'a>>,
    /// The iperf3 servers of the groups without short flows.
    services: Vec<Service>,
}

/// Starts the iperf3 server of each group without short flows.
///
/// # Errors
/// A host does not exist, or iperf3 is not installed or cannot be started.
fn prepare(request: SharedBottleneckRequest<'_>) -> anyhow::Result<PreparedGroups<'_>> {
    let find = |name: &str| request.network.host(name).with_context(|| format!("there is no host {name}"));
    let mut group_endpoints = Vec::new();
    let mut services = Vec::new();
    for (group, port) in request.groups.iter().zip(iperf3::PORT..) {
        let (from, to) = (find(&group.from)?, find(&group.to)?);
        let server = SocketAddr::new(to.address(), port);
        let start_delay = plan::start_delay(request.stagger, request.seed, &group.name);
        group_endpoints.push(GroupEndpoints { group, from, to, server, start_delay });
        if group.short.is_none() {
            let (name, arguments) = (format!("iperf3-{}", group.name), iperf3::server_arguments(port));
            let launch = LaunchSpec { name, executable: iperf3::PROGRAM.find()?, arguments, port: Some(port) };
            services.push(Service::start(to, launch, request.folder)?);
        }
    }
    Ok(PreparedGroups { request, endpoints: group_endpoints, services })
}

impl PreparedGroups<'_> {
    /// Starts each group after its delay, and waits until all groups have ended.
    ///
    /// # Errors
    /// A group failed, timed out, or did not use its configured congestion control; or an interrupt.
    fn run(&self) -> anyhow::Result<Vec<GroupRun>> {
        let SharedBottleneckRequest { time, warm_up, timeout, .. } = self.request;
        std::thread::scope(|scope| {
            let short: Vec<_> = (self.endpoints.iter().filter(|ends| ends.group.short.is_some()))
                .map(|ends| scope.spawn(|| short::run_short_flows(*ends, time, warm_up)))
                .collect();
            let long = self.endpoints.iter().filter(|ends| ends.group.short.is_none());
            let sent = self.start_clients(long.clone().collect()).and_then(|mut clients| {
                clients
                    .iter_mut()
                    .try_for_each(|client| stream::wait_for_exit(client, "iperf3", time + timeout).map(drop))
            });
            let short =
                short.into_iter().map(|flows| flows.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let short = short.collect::<anyhow::Result<Vec<_>>>();
            sent?;
            let long = long.map(|ends| self.read_result(ends.group)).collect::<anyhow::Result<Vec<_>>>()?;
            sort_by_group(self.request.groups, long.into_iter().chain(short?).collect())
        })
    }

    fn start_clients(&self, mut groups: Vec<&GroupEndpoints<'_>>) -> anyhow::Result<Vec<ClientProcess>> {
        let started = Instant::now();
        groups.sort_by_key(|ends| ends.start_delay);
        let start = |ends: &GroupEndpoints<'_>| {
            // One sleep, rather than the steps of `sleep_until`, which would end some microseconds later and change
            // published figures.
            std::thread::sleep(ends.start_delay.saturating_sub(started.elapsed()));
            self.start_client(ends)
        };
        groups.into_iter().map(start).collect()
    }

    fn start_client(&self, ends: &GroupEndpoints<'_>) -> anyhow::Result<ClientProcess> {
        let FlowGroup { name, congestion, connections, .. } = ends.group;
        let mut command = ends.from.command(iperf3::PROGRAM.find()?);
        command
            .args(iperf3::group_client_arguments(ends.server, *connections, congestion, self.request.time))
            .process_group(0);
        // With a file, no process has to read a pipe during the transfer.
        command.stdin(Stdio::null()).stdout(File::create(self.answer_path(name))?).stderr(Stdio::null());
        Ok(ClientProcess(command.spawn().context("iperf3")?))
    }

    fn answer_path(&self, name: &str) -> std::path::PathBuf {
        self.request.folder.join(format!("{name}.json"))
    }

    fn read_result(&self, group: &FlowGroup) -> anyhow::Result<GroupRun> {
        let text = std::fs::read_to_string(self.answer_path(&group.name))?;
        let [from, to] = [self.request.warm_up, self.request.time].map(|time| time.as_secs_f64());
        let stats = GroupStats::parse(&text, from, to).with_context(|| format!("group {}", group.name))?;
        anyhow::ensure!(
            stats.congestion == group.congestion,
            "group {}: expected congestion = {:?}, but its connections used {:?}: check congestion of the hosts",
            group.name,
            group.congestion,
            stats.congestion
        );
        Ok(GroupRun {
            name: group.name.clone(),
            congestion: stats.congestion,
            mbit_s: stats.rates.iter().sum::<f64>() * BYTES_TO_MBIT,
            rates: stats.rates.iter().map(|rate| rate * BYTES_TO_MBIT).collect(),
            retransmits: Some(stats.retransmits),
            timeline: stats.timeline,
            completions: Vec::new(),
        })
    }
}

/// Sorts the results in the order of the groups in the experiment file.
fn sort_by_group(groups: &[FlowGroup], mut runs: Vec<GroupRun>) -> anyhow::Result<Vec<GroupRun>> {
    runs.sort_by_key(|run| groups.iter().position(|group| group.name == run.name));
    Ok(runs)
}

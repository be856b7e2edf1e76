//! Several groups of connections at once: each is a process of iperf3 with a server of its own, or a thread of short flows.

use std::fs::File;
use std::net::SocketAddrV4;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;

use crate::experiment::group::Group;
use crate::experiment::results::GroupRun;
use crate::experiment::transfer::Client;
use crate::experiment::{short, stream};
use crate::program::iperf3::{self, counted::Counted};
use crate::program::service::{Launch, Service};
use crate::topology::network::{HostHandle, Network};

/// Bits in a byte, in millions.
const MBIT: f64 = 8e-6;

/// Who shares, for how long, and what of it counts.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The groups.
    pub groups: &'a [Group],
    /// The hosts.
    pub network: &'a Network,
    /// How long they send.
    pub time: Duration,
    /// How much of that, at its start, does not count.
    pub warm_up: Duration,
    /// How much longer they may take in all.
    pub timeout: Duration,
    /// Where programs' output goes.
    pub folder: &'a Path,
}

/// A group with its ends.
#[derive(Clone, Copy)]
pub(super) struct Ends<'a> {
    pub(super) group: &'a Group,
    pub(super) from: &'a HostHandle,
    pub(super) to: &'a HostHandle,
    /// Where its receiver listens.
    pub(super) server: SocketAddrV4,
}

/// The groups, ready to begin: everybody who receives is there.
pub struct Ready<'a> {
    request: Request<'a>,
    all: Vec<Ends<'a>>,
    /// The receivers of the long groups.
    pub services: Vec<Service>,
}

/// Starts all receivers.
///
/// # Errors
/// iperf3 is not installed, or does not start.
pub fn prepare(request: Request<'_>) -> anyhow::Result<Ready<'_>> {
    let find = |name: &str| request.network.host(name).with_context(|| format!("there is no host {name}"));
    let mut all = Vec::new();
    let mut services = Vec::new();
    for (group, port) in request.groups.iter().zip(iperf3::PORT..) {
        let (from, to) = (find(&group.from)?, find(&group.to)?);
        all.push(Ends { group, from, to, server: SocketAddrV4::new(to.address(), port) });
        if group.short.is_none() {
            let (name, arguments) = (format!("iperf3-{}", group.name), iperf3::listen(port));
            let launch = Launch { name, executable: iperf3::ABOUT.find()?, arguments, port: Some(port) };
            services.push(Service::start(to, launch, request.folder)?);
        }
    }
    Ok(Ready { request, all, services })
}

impl Ready<'_> {
    /// Lets all groups begin together, and waits until they have ended.
    ///
    /// # Errors
    /// A group failed, took too long, or had another congestion control than it asked for; or an interrupt.
    pub fn carry(&self) -> anyhow::Result<Vec<GroupRun>> {
        let Request { time, warm_up, timeout, .. } = self.request;
        std::thread::scope(|scope| {
            let short: Vec<_> = (self.all.iter().filter(|ends| ends.group.short.is_some()))
                .map(|ends| scope.spawn(|| short::carry(*ends, time, warm_up)))
                .collect();
            let long = self.all.iter().filter(|ends| ends.group.short.is_none());
            let clients = long.clone().map(|ends| self.start(ends)).collect::<anyhow::Result<Vec<Client>>>();
            let sent = clients.and_then(|mut clients| {
                clients.iter_mut().try_for_each(|client| stream::wait(client, "iperf3", time + timeout).map(drop))
            });
            let short =
                short.into_iter().map(|flows| flows.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let short = short.collect::<anyhow::Result<Vec<_>>>();
            sent?;
            let long = long.map(|ends| self.counted(ends.group)).collect::<anyhow::Result<Vec<_>>>()?;
            in_order(self.request.groups, long.into_iter().chain(short?).collect())
        })
    }

    fn start(&self, ends: &Ends<'_>) -> anyhow::Result<Client> {
        let Group { name, congestion, connections, .. } = ends.group;
        let mut command = ends.from.command(iperf3::ABOUT.find()?);
        command.args(iperf3::send_group(ends.server, *connections, congestion, self.request.time)).process_group(0);
        // Into a file: nobody has to read it meanwhile.
        command.stdin(Stdio::null()).stdout(File::create(self.answer(name))?).stderr(Stdio::null());
        Ok(Client(command.spawn().context("iperf3")?))
    }

    fn answer(&self, name: &str) -> std::path::PathBuf {
        self.request.folder.join(format!("{name}.json"))
    }

    fn counted(&self, group: &Group) -> anyhow::Result<GroupRun> {
        let text = std::fs::read_to_string(self.answer(&group.name))?;
        let [from, to] = [self.request.warm_up, self.request.time].map(|time| time.as_secs_f64());
        let counted = Counted::read(&text, from, to).with_context(|| format!("group {}", group.name))?;
        anyhow::ensure!(
            counted.congestion == group.congestion,
            "group {}: congestion = {:?}, but its connections had {:?}; does a host pin another one?",
            group.name,
            group.congestion,
            counted.congestion
        );
        Ok(GroupRun {
            name: group.name.clone(),
            congestion: counted.congestion,
            mbit_s: counted.rates.iter().sum::<f64>() * MBIT,
            rates: counted.rates.iter().map(|rate| rate * MBIT).collect(),
            retransmits: Some(counted.retransmits),
            timeline: counted.timeline,
            completions: Vec::new(),
        })
    }
}

/// In the order of the file.
fn in_order(groups: &[Group], mut runs: Vec<GroupRun>) -> anyhow::Result<Vec<GroupRun>> {
    runs.sort_by_key(|run| groups.iter().position(|group| group.name == run.name));
    Ok(runs)
}

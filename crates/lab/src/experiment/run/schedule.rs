//! Events during transfers: starts of background traffic, and kills of relays. The emulator executes the events of
//! links. All times are relative to the start of the lab.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::experiment::spec::file::BackgroundTraffic;
use crate::experiment::spec::read::RunSpec;
use crate::program::iperf3::{self, CrossTraffic};
use crate::program::service::Service;
use crate::topology::network::{HostHandle, Network};

/// An event that the laboratory executes during transfers.
enum ScheduledEvent<'a> {
    /// Background traffic begins; its number determines its port.
    StartTraffic(u16, &'a BackgroundTraffic),
    /// The relay at this host is killed.
    KillRelay(&'a str),
}

/// All events with their times since the start of the lab, the earliest first.
pub struct Schedule<'a>(Vec<(Duration, ScheduledEvent<'a>)>);

impl<'a> Schedule<'a> {
    /// Collects the events of the background traffic and the workload.
    #[must_use]
    pub fn from_spec(spec: &'a RunSpec) -> Self {
        let begins = |(number, traffic): (u16, &'a BackgroundTraffic)| {
            Some((traffic.at?.0, ScheduledEvent::StartTraffic(number, traffic)))
        };
        let killed = spec.workload.kill.iter().map(|kill| (kill.at.0, ScheduledEvent::KillRelay(kill.relay.as_str())));
        let mut all: Vec<_> = (0..).zip(&spec.background).filter_map(begins).chain(killed).collect();
        all.sort_by_key(|(at, _)| *at);
        Self(all)
    }

    /// Executes each event at its time after `started`, until the sender of `stop` is dropped.
    ///
    /// # Errors
    /// Background traffic cannot be started.
    pub fn run(
        &self,
        started: Instant,
        stop: Receiver<()>,
        network: &Network,
        folder: &Path,
        services: &mut Vec<Service>,
    ) -> anyhow::Result<()> {
        for (at, event) in &self.0 {
            let wait = (started + *at).saturating_duration_since(Instant::now());
            if stop.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected) {
                return Ok(());
            }
            match event {
                ScheduledEvent::StartTraffic(number, traffic) => {
                    services.extend(start_traffic(*number, traffic, network, folder)?)
                }
                ScheduledEvent::KillRelay(host) => {
                    services.iter_mut().filter(|service| service.host() == *host).for_each(Service::kill);
                }
            }
        }
        Ok(())
    }
}

/// Returns the time, since the start of the lab, of the first event of a link, of traffic or of a relay after the
/// transfers begin. `None` without such an event, or if the workload does not set `begins`.
#[must_use]
pub fn first_change(spec: &RunSpec) -> Option<Duration> {
    let begins = spec.workload.begins?.0;
    let events = spec.lab.events.iter().map(|event| event.at.0);
    let others = Schedule::from_spec(spec).0.into_iter().map(|(at, _)| at);
    events.chain(others).filter(|at| *at > begins).min()
}

/// Starts the background traffic that has no start time, and waits for the longest of its warm-up times.
///
/// # Errors
/// The traffic cannot be started.
pub fn start_background(spec: &RunSpec, network: &Network, folder: &Path) -> anyhow::Result<Vec<Service>> {
    let mut services = Vec::new();
    let early = || (0..).zip(&spec.background).filter(|(_, traffic)| traffic.at.is_none());
    for (number, traffic) in early() {
        services.extend(start_traffic(number, traffic, network, folder)?);
    }
    if let Some(longest) = early().map(|(_, traffic)| traffic.warm_up.0).max() {
        std::thread::sleep(longest);
    }
    Ok(services)
}

fn start_traffic(
    number: u16,
    traffic: &BackgroundTraffic,
    network: &Network,
    folder: &Path,
) -> anyhow::Result<Vec<Service>> {
    let find = |name: &String| network.host(name).with_context(|| format!("there is no host {name}"));
    let ends: [&HostHandle; 2] = [find(&traffic.from)?, find(&traffic.to)?];
    let kind = traffic.rate.map_or(CrossTraffic::Tcp(traffic.flows), |rate| CrossTraffic::Udp(rate.bits_per_second()));
    Ok(iperf3::start_cross_traffic(ends, kind, number, folder)?.into_iter().collect())
}

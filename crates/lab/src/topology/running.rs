//! A lab that runs: the network, and the emulator that drives its wires.

use std::time::Instant;

use crate::emulator::{DirectionReport, Emulator, EmulatorOptions, PacketRecord, Recording};
use crate::topology::Lab;
use crate::topology::network::Network;

/// A lab that runs. All of it is gone when this is dropped.
pub struct RunningLab {
    // Fields are dropped in this order: the emulator lets go of interfaces before they vanish.
    emulator: Option<Emulator>,
    network: Network,
    started_at: Instant,
}

impl RunningLab {
    /// Builds the network and starts the emulator, if any link needs one.
    ///
    /// # Errors
    /// What the system refused, with the remedy.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        Self::start_with_packet_log(lab, &[])
    }

    /// The same, with a log of the packets of some links.
    ///
    /// # Errors
    /// The same.
    pub fn start_with_packet_log(lab: &Lab, logged: &[String]) -> anyhow::Result<Self> {
        let network = Network::build(lab)?;
        let wires = network.emulated_links();
        let record = if logged.is_empty() { Recording::None } else { Recording::Links(logged.to_vec()) };
        let options = EmulatorOptions { mode: lab.mode, seed: lab.seed, events: lab.events.clone(), recording: record };
        let emulator = if wires.is_empty() { None } else { Some(Emulator::start(&wires, &options)?) };
        Ok(Self { emulator, network, started_at: Instant::now() })
    }

    /// When it started: the times of events count from here.
    #[must_use]
    pub const fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Its hosts.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// What every direction of every emulated link did so far.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), Emulator::reports)
    }

    /// What became of the packets that entered `link` at host `from`, if it is logged.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), |emulator| emulator.records(link, from))
    }
}

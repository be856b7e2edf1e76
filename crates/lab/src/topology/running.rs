//! A running lab: the network, and the emulator that drives its links.

use std::time::Instant;

use crate::emulator::{DirectionReport, Emulator, EmulatorOptions, PacketRecord, Recording};
use crate::topology::Lab;
use crate::topology::network::Network;

/// A running lab. Dropping it removes the network.
pub struct RunningLab {
    // Fields are dropped in this order: the emulator closes its interfaces before they are removed.
    emulator: Option<Emulator>,
    network: Network,
    started_at: Instant,
}

impl RunningLab {
    /// Builds the network, and starts the emulator if a link needs it.
    ///
    /// # Errors
    /// The system refused a step. The error names the remedy.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        Self::start_with_packet_log(lab, &[])
    }

    /// Starts a lab with a packet log of the links `logged`.
    ///
    /// # Errors
    /// The errors of [`start`](Self::start).
    pub fn start_with_packet_log(lab: &Lab, logged: &[String]) -> anyhow::Result<Self> {
        let network = Network::build(lab)?;
        let wires = network.emulated_links();
        let record = if logged.is_empty() { Recording::None } else { Recording::Links(logged.to_vec()) };
        let options = EmulatorOptions { mode: lab.mode, seed: lab.seed, events: lab.events.clone(), recording: record };
        let emulator = if wires.is_empty() { None } else { Some(Emulator::start(&wires, &options)?) };
        Ok(Self { emulator, network, started_at: Instant::now() })
    }

    /// Returns the start time. Times of events count from it.
    #[must_use]
    pub const fn started_at(&self) -> Instant {
        self.started_at
    }

    /// Returns the network, with the hosts of the lab.
    #[must_use]
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the counters of every direction of every emulated link.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), Emulator::reports)
    }

    /// Returns the records of packets that entered `link` at host `from`. The list is empty without a log of the link.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        self.emulator.as_ref().map_or_else(|| Ok(Vec::new()), |emulator| emulator.records(link, from))
    }
}

//! A lab that runs: the network, and the emulator that drives its wires.

use crate::emulator::{DirectionReport, Emulator, Options};
use crate::topology::Lab;
use crate::topology::network::Network;

/// A lab that runs. All of it is gone when this is dropped.
pub struct Running {
    // Fields are dropped in this order: the emulator lets go of interfaces before they vanish.
    emulator: Option<Emulator>,
    network: Network,
}

impl Running {
    /// Builds the network and starts the emulator, if any link needs one.
    ///
    /// # Errors
    /// What the system refused, with the remedy.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        let network = Network::build(lab)?;
        let wires = network.wires();
        let options = Options { mode: lab.mode, seed: lab.seed, events: lab.events.clone(), record: false };
        let emulator = if wires.is_empty() { None } else { Some(Emulator::start(&wires, &options)?) };
        Ok(Self { emulator, network })
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
}

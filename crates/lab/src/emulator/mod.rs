//! The running emulator: drives the links of a lab between interfaces, against the clock.
//!
//! A virtual kernel has the emulator in it (`kernel.rs`). Elsewhere one thread drives all links of a lab (`driver.rs`), so
//! packets keep their order and no state is shared. Logical time is the kernel's receive timestamp; all later times are
//! computed from that timestamp and never from the current time. A late send delays a packet once, does not accumulate
//! along a chain, and is counted ([`LatenessHistogram`](ekiden_emulator::lateness::LatenessHistogram)).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::links::Link;
use ekiden_emulator::records::PacketRecord;

use driver::DriverThread;
use kernel::KernelEmulator;

mod clock;
mod driver;
mod kernel;
mod port;

pub use clock::hold_cpu_dma_latency;

/// The version of the emulator. A virtual kernel must have the same one.
pub const VERSION: &str = env!("EKIDEN_EMULATOR_VERSION");

/// Attachment of one end of a link.
#[derive(Debug, Clone)]
pub enum Port {
    /// Interface of this network namespace (the wire room), by name.
    Interface(String),
    /// TUN device of the host itself. Each packet starts with a `virtio_net_hdr`.
    Tun(Arc<OwnedFd>),
}

impl Port {
    /// Returns the name of the interface; none for a TUN device.
    fn interface(&self) -> Option<String> {
        match self {
            Self::Interface(name) => Some(name.clone()),
            Self::Tun(_) => None,
        }
    }
}

/// A link to emulate, with its ports.
#[derive(Debug, Clone)]
pub struct EmulatedLink {
    /// Name of the link.
    pub name: String,
    /// Ports, in the order of the link's ends.
    pub ports: [Port; 2],
    /// Ends, MTU and conditions of the link.
    pub link: Link,
}

/// A running emulator. It stops when dropped.
#[derive(Debug)]
pub struct Emulator(RunningDriver);

#[derive(Debug)]
enum RunningDriver {
    Thread(DriverThread),
    Kernel(KernelEmulator),
}

impl Emulator {
    /// Opens the ports in this network namespace and starts the emulator.
    ///
    /// # Errors
    /// An interface cannot be opened: it does not exist, or `CAP_NET_RAW` is missing.
    pub fn start(wires: &[EmulatedLink], options: &EmulationOptions) -> anyhow::Result<Self> {
        let links: Vec<(String, Link)> = wires.iter().map(|wire| (wire.name.clone(), wire.link.clone())).collect();
        let interfaces: Option<Vec<String>> = wires.iter().flat_map(|wire| &wire.ports).map(Port::interface).collect();
        if let Some(interfaces) = interfaces.filter(|_| KernelEmulator::is_available()) {
            let kernel = KernelEmulator::start(links, options, interfaces);
            return Ok(Self(RunningDriver::Kernel(
                kernel.context("the emulator of the virtual kernel does not start")?,
            )));
        }
        DriverThread::start(wires, &links, options).map(RunningDriver::Thread).map(Self)
    }

    /// Returns the counters of every direction.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        match &self.0 {
            RunningDriver::Thread(thread) => thread.reports(),
            RunningDriver::Kernel(kernel) => kernel.reports(),
        }
    }

    /// Returns the records of packets that entered `link` at host `from`, in order. The list is empty without
    /// [`Recording`](ekiden_emulator::records::Recording).
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        match &self.0 {
            RunningDriver::Thread(thread) => thread.records(link, from),
            RunningDriver::Kernel(kernel) => kernel.records(link, from),
        }
    }

    /// Stops the emulator and returns the final counters. Packets under way are lost.
    ///
    /// # Errors
    /// The emulator had already ended with a system error.
    pub fn stop(self) -> anyhow::Result<Vec<DirectionReport>> {
        match self.0 {
            RunningDriver::Thread(thread) => thread.stop(),
            RunningDriver::Kernel(kernel) => kernel.reports(),
        }
    }
}

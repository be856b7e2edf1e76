//! The running emulator: drives the links of a lab between interfaces, against the clock.
//!
//! A virtual kernel contains the emulator (`kernel.rs`). Elsewhere one thread drives all links of a lab (`driver.rs`),
//! so packets keep their order and no state is shared. Logical time is the kernel's receive timestamp; all later times
//! are computed from that timestamp and never from the current time. A late send delays a packet once, does not
//! accumulate along a chain, and is counted ([`LatenessHistogram`](ekiden_emulator::lateness::LatenessHistogram)).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::SystemTime;

use anyhow::Context as _;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::links::Link;
use ekiden_emulator::records::PacketRecord;

use crate::capture::CaptureOptions;
use captured::{CaptureFiles, WriterThread};
use driver::DriverThread;
use kernel::KernelEmulator;

mod arrivals;
mod captured;
mod clock;
mod driver;
mod kernel;
mod port;

pub use captured::StoppedCapture;
pub use clock::hold_cpu_dma_latency;

/// The version of the emulator and of the other parts of ekiden in a virtual kernel, which must equal that of this
/// program.
pub const VERSION: &str = env!("EKIDEN_EMULATOR_VERSION");

/// Maximum number of chunks of a capture that wait for the writer.
const MAX_WAITING_CHUNKS: usize = 64;

/// Attachment of one end of a link.
#[derive(Debug, Clone)]
pub enum Port {
    /// Interface of this network namespace, by name.
    Interface(String),
    /// TUN device of the host itself. Each packet starts with a `virtio_net_hdr`.
    Tun(Arc<OwnedFd>),
}

impl Port {
    /// Returns the name of the interface; `None` for a TUN device.
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

/// A running emulator; it is stopped on drop.
#[derive(Debug)]
pub struct Emulator(RunningDriver);

/// A driver, and the destination of its capture.
#[derive(Debug)]
enum RunningDriver {
    Thread(DriverThread, Option<WriterThread>),
    Kernel(KernelEmulator, Option<CaptureFiles>),
}

impl Emulator {
    /// Opens the ports in this network namespace and starts the emulator.
    ///
    /// # Errors
    /// An interface cannot be opened: it does not exist, or `CAP_NET_RAW` is missing.
    pub fn start(wires: &[EmulatedLink], options: &EmulationOptions) -> anyhow::Result<Self> {
        Self::start_with_capture(wires, options, None)
    }

    /// Starts the emulator as [`start`](Self::start), with a capture of all links.
    ///
    /// # Errors
    /// An error of `start`, or the files of the capture cannot be created.
    pub fn start_with_capture(
        wires: &[EmulatedLink],
        options: &EmulationOptions,
        capture: Option<&CaptureOptions>,
    ) -> anyhow::Result<Self> {
        let links: Vec<(String, Link)> = wires.iter().map(|wire| (wire.name.clone(), wire.link.clone())).collect();
        let options = EmulationOptions { capture: capture.map(|capture| capture.snaplen), ..options.clone() };
        let files = |epoch| capture.map(|options| CaptureFiles::new(wires, options, epoch));
        let interfaces: Option<Vec<String>> = wires.iter().flat_map(|wire| &wire.ports).map(Port::interface).collect();
        if let Some(interfaces) = interfaces.filter(|_| KernelEmulator::is_available()) {
            let kernel = KernelEmulator::start(links, &options, interfaces);
            let kernel = kernel.context("the emulator of the virtual kernel does not start")?;
            return Ok(Self(RunningDriver::Kernel(kernel, files(SystemTime::now()))));
        }
        let (sender, chunks) = sync_channel(MAX_WAITING_CHUNKS);
        let thread = DriverThread::start(wires, &links, &options, capture.map(|_| sender))?;
        let writer = files(thread.epoch).map(|files| WriterThread::start(&files, chunks)).transpose()?;
        Ok(Self(RunningDriver::Thread(thread, writer)))
    }

    /// Returns the counters of every direction.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        match &self.0 {
            RunningDriver::Thread(thread, _) => thread.reports(),
            RunningDriver::Kernel(kernel, _) => kernel.reports(),
        }
    }

    /// Returns the records of packets that entered `link` at host `from`, in order. The list is empty without
    /// [`Recording`](ekiden_emulator::records::Recording).
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        match &self.0 {
            RunningDriver::Thread(thread, _) => thread.records(link, from),
            RunningDriver::Kernel(kernel, _) => kernel.records(link, from),
        }
    }

    /// Stops the emulator, and returns the final counters and the capture. Packets in flight are lost.
    ///
    /// # Errors
    /// The emulator had already ended with a system error.
    pub fn stop(self) -> anyhow::Result<(Vec<DirectionReport>, Option<StoppedCapture>)> {
        match self.0 {
            RunningDriver::Thread(thread, writer) => Ok((thread.stop()?, writer.map(StoppedCapture::Thread))),
            RunningDriver::Kernel(kernel, files) => {
                Ok((kernel.reports()?, files.map(|files| StoppedCapture::Kernel(kernel, files))))
            }
        }
    }

    /// Stops the emulator, and returns the capture. Makes no request to the emulator of a virtual kernel, because a
    /// request takes virtual time.
    ///
    /// # Errors
    /// The emulator had already ended with a system error.
    pub fn into_capture(self) -> anyhow::Result<Option<StoppedCapture>> {
        match self.0 {
            RunningDriver::Thread(thread, writer) => thread.stop().map(|_| writer.map(StoppedCapture::Thread)),
            RunningDriver::Kernel(kernel, files) => Ok(files.map(|files| StoppedCapture::Kernel(kernel, files))),
        }
    }
}

//! The emulator: drives one pipeline for each direction of each link against the real clock. It receives frames from
//! interfaces and sends frames to interfaces.
//!
//! One thread drives all links of a lab, so packets keep their order and no state is shared. Logical time is the
//! kernel's receive timestamp; all later times are computed from that timestamp and never from the current time. A late
//! send delays a packet once, does not accumulate along a chain, and is counted ([`LatenessHistogram`]).

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};

use crate::Nanos;
use crate::conditions::Conditions;
use crate::dice::SeededRng;
use crate::emulator::clock::Clock;
use crate::emulator::direction::EmulatedDirection;
use crate::emulator::driver::{Driver, DriverCommand, ScheduledChange};
use crate::emulator::port::OpenPort;
use crate::emulator::records::RecordBuffer;
use crate::emulator::store::FrameStore;
use crate::ledger::DropCause;
use crate::nanos;
use crate::packet::Packet;
use crate::pipeline::Pipeline;
use crate::topology::{EmulationMode, Link, LinkEvent};
use crate::waits::QueueDelayHistogram;

mod clock;
mod direction;
mod driver;
pub mod frame;
mod lateness;
mod port;
mod records;
mod store;

pub use clock::hold_cpu_dma_latency;
pub use frame::TcpHeader;
pub use lateness::LatenessHistogram;
pub use records::{MAX_LOGGED_PACKETS, Recording};

/// Minimum time between sends of a direction in `fast` mode, in nanoseconds. Packets that become due in between share
/// superpackets, as behind an interface with interrupt moderation.
pub const FAST_QUANTUM: Nanos = 200_000;
/// Minimum time between sends of a direction in `coarse` mode, in nanoseconds.
pub const COARSE_QUANTUM: Nanos = 1_000_000;
/// Rate up to which `auto` means `exact`, in bits per second: a frame of 1500 bytes every 60 µs.
pub const MAX_EXACT_RATE: u64 = 200_000_000;
/// Maximum size of all packets stored in a lab, in bytes: 10 Gbit/s for 800 ms.
const MAX_STORED_BYTES: usize = 1 << 30;

/// Attachment of one end of a link.
#[derive(Debug, Clone)]
pub enum Port {
    /// Interface of this network namespace (the wire room), by name.
    Interface(String),
    /// TUN device of the host itself. Each packet starts with a `virtio_net_hdr`.
    Tun(Arc<OwnedFd>),
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

/// Options of an emulator.
#[derive(Debug, Clone, Default)]
pub struct EmulatorOptions {
    /// Timing of packet output.
    pub mode: EmulationMode,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Changes of conditions, in order of time.
    pub events: Vec<LinkEvent>,
    /// Packets to record for [`Emulator::records`].
    pub recording: Recording,
}

/// Counters of one direction of a link.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Name of the link.
    pub link: String,
    /// Name of the sending host.
    pub from: String,
    /// Name of the receiving host.
    pub to: String,
    /// Whether packets were sent one by one.
    pub exact: bool,
    /// Packets received from the wire.
    pub packets_in: u64,
    /// Bytes received, in the link's accounting.
    pub bytes_in: u64,
    /// Packets sent to the wire.
    pub packets_out: u64,
    /// Bytes sent, in the link's accounting.
    pub bytes_out: u64,
    /// Frames received. A superpacket counts as one frame.
    pub frames_in: u64,
    /// Frames sent. A superpacket counts as one frame.
    pub frames_out: u64,
    /// Dropped packets, by cause.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Duplicates of packets created.
    pub copied: u64,
    /// Packets dropped by the kernel before the emulator or refused from it. The run is invalid unless this is 0.
    pub hidden: u64,
    /// Lateness of sent packets.
    pub lateness: LatenessHistogram,
    /// Queueing delays of packets.
    #[serde(default)]
    pub waits: QueueDelayHistogram,
}

/// Record of one packet, for checks of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// The packet, with its arrival in `at`.
    pub packet: Packet,
    /// Index of the packet in its superpacket, and number of segments of the superpacket.
    pub segment: (u16, u16),
    /// TCP header, for TCP over IPv4.
    pub tcp: Option<TcpHeader>,
    /// Outcome of the packet so far.
    pub outcome: PacketOutcome,
}

/// Outcome of a packet. Times are nanoseconds since the start of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// Neither sent nor dropped yet.
    InFlight,
    /// Sent to the receiving host.
    Delivered {
        /// Ideal time of the departure.
        ideal: Nanos,
        /// Actual time of the departure.
        actual: Nanos,
        /// Whether the packet was marked on the way.
        marked: bool,
    },
    /// Dropped for this cause at this time.
    Dropped(DropCause, Nanos),
}

/// A running emulator. It stops when dropped.
#[derive(Debug)]
pub struct Emulator {
    commands: Sender<DriverCommand>,
    wakeup: UnixStream,
    thread: Option<JoinHandle<io::Result<Vec<DirectionReport>>>>,
}

impl Emulator {
    /// Opens the ports in this network namespace and starts the emulator.
    ///
    /// # Errors
    /// An interface cannot be opened: it does not exist, or `CAP_NET_RAW` is missing.
    pub fn start(wires: &[EmulatedLink], options: &EmulatorOptions) -> anyhow::Result<Self> {
        let (commands, command_receiver) = channel();
        let (wakeup, wakeup_receiver) = UnixStream::pair().context("cannot create a socket pair")?;
        let mut store = FrameStore::new(MAX_STORED_BYTES);
        let buffers = Driver::allocate_buffers(&mut store);
        let mut driver = Driver {
            ports: Vec::new(),
            directions: Vec::new(),
            store,
            clock: Clock::new(),
            changes: Vec::new(),
            commands: command_receiver,
            wakeup: wakeup_receiver,
            buffers,
            received: Vec::new(),
        };
        for wire in wires {
            add_link(&mut driver, wire, options)?;
        }
        driver.changes.sort_by_key(|change| std::cmp::Reverse(change.0));
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn(move || {
            // These settings improve timing. All are optional, because lateness is measured.
            let _ = ekiden_sys::thread::set_min_timer_slack();
            let _ = ekiden_sys::thread::set_realtime();
            let _awake = clock::hold_cpu_dma_latency();
            driver.run()
        })?;
        Ok(Self { commands, wakeup, thread: Some(thread) })
    }

    /// Returns the counters of every direction.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Report(reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// Returns the records of packets that entered `link` at host `from`, in order. The list is empty without
    /// [`Recording`].
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Records(link.to_owned(), from.to_owned(), reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// Stops the emulator and returns the final counters. Packets under way are lost.
    ///
    /// # Errors
    /// The emulator had already ended with a system error.
    pub fn stop(mut self) -> anyhow::Result<Vec<DirectionReport>> {
        self.shut_down()
    }

    fn send_command(&self, command: DriverCommand) -> anyhow::Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the emulator has ended"))?;
        (&self.wakeup).write_all(&[1]).context("the emulator has ended")
    }

    fn shut_down(&mut self) -> anyhow::Result<Vec<DirectionReport>> {
        let thread = self.thread.take().context("the emulator has ended")?;
        // If the thread has already ended, its result has the reason.
        let _ = self.send_command(DriverCommand::Stop);
        thread.join().map_err(|_| anyhow!("the emulator panicked"))?.context("the emulator")
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.shut_down();
        }
    }
}

/// Adds both directions of a link to the driver.
fn add_link(driver: &mut Driver, wire: &EmulatedLink, options: &EmulatorOptions) -> anyhow::Result<()> {
    let rng = SeededRng::new(options.seed).derive(&wire.name);
    let [a, b] = &wire.link.ends;
    for (port, from, to, way) in [(&wire.ports[0], a, b, 0), (&wire.ports[1], b, a, 1)] {
        let changes: Vec<ScheduledChange> = options
            .events
            .iter()
            .filter(|event| event.link == wire.name)
            .map(|event| {
                (
                    nanos(event.at),
                    driver.directions.len(),
                    select_direction(&event.forward, &event.reverse, way).clone(),
                )
            })
            .collect();
        let first = select_direction(&wire.link.forward, &wire.link.reverse, way);
        let conditions: Vec<&Conditions> =
            std::iter::once(first).chain(changes.iter().map(|change| &change.2)).collect();
        let pipeline = Pipeline::new(&conditions, rng.derive(if way == 0 { "forward" } else { "reverse" }));
        let report = DirectionReport {
            link: wire.name.clone(),
            from: from.clone(),
            to: to.clone(),
            exact: is_exact(options.mode, &conditions),
            ..DirectionReport::default()
        };
        let port = OpenPort::open(port).with_context(|| format!("link {:?}: the end at {from:?}", wire.name))?;
        driver.ports.push(port);
        let quantum = if options.mode == EmulationMode::Coarse { COARSE_QUANTUM } else { FAST_QUANTUM };
        let records = RecordBuffer::new(options.recording.limit_for(&wire.name));
        driver.directions.push(EmulatedDirection::new(pipeline, report, first.count.overhead(), quantum, records));
        driver.changes.extend(changes);
    }
    Ok(())
}

fn select_direction<'a>(forward: &'a Conditions, reverse: &'a Conditions, way: usize) -> &'a Conditions {
    if way == 0 { forward } else { reverse }
}

fn is_exact(mode: EmulationMode, conditions: &[&Conditions]) -> bool {
    match mode {
        EmulationMode::Exact => true,
        EmulationMode::Fast | EmulationMode::Coarse => false,
        EmulationMode::Auto => {
            conditions.iter().all(|c| c.rate.is_some_and(|rate| rate.bits_per_second() <= MAX_EXACT_RATE))
        }
    }
}

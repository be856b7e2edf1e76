//! The one place with a real clock: frames of interfaces in, one pipeline for each direction of each link, frames out.
//!
//! One thread drives all links of a lab, so packets keep their order and nothing is shared. Logical time is the kernel's
//! receive stamp; everything behind it is computed from that stamp and never from "now". What the thread does too late is
//! late by that much once, it does not add up along a chain, and it is counted ([`LatenessHistogram`]).

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

/// In `fast` mode a direction that has sent packets sends no others for so long, in nanoseconds: those that become due
/// meanwhile share superpackets, as they would behind an interface that moderates its interrupts.
pub const FAST_QUANTUM: Nanos = 200_000;
/// The same in `coarse` mode, as behind an interface that moderates its interrupts a lot.
pub const COARSE_QUANTUM: Nanos = 1_000_000;
/// `auto` is `exact` up to this rate: 5 frames each 600 µs are no trouble for any machine.
pub const MAX_EXACT_RATE: u64 = 200_000_000;
/// So many bytes of packets may be under way in a lab: 10 Gbit/s for 800 ms.
const MAX_STORED_BYTES: usize = 1 << 30;

/// Where an end of a link is plugged in.
#[derive(Debug, Clone)]
pub enum Port {
    /// An interface of this network namespace (the wire room), by name.
    Interface(String),
    /// A TUN device of the host itself; each packet begins with a `virtio_net_hdr`.
    Tun(Arc<OwnedFd>),
}

/// One emulated link.
#[derive(Debug, Clone)]
pub struct EmulatedLink {
    /// The name of the link.
    pub name: String,
    /// Where it is plugged in, in the order of the link's ends.
    pub ports: [Port; 2],
    /// What it is like.
    pub link: Link,
}

/// How an emulator runs.
#[derive(Debug, Clone, Default)]
pub struct EmulatorOptions {
    /// How packets are handed over.
    pub mode: EmulationMode,
    /// What every random decision depends on.
    pub seed: u64,
    /// What changes while it runs, in order of time.
    pub events: Vec<LinkEvent>,
    /// Of which packets the fate is kept for [`Emulator::records`].
    pub recording: Recording,
}

/// What a direction of a link did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// The link.
    pub link: String,
    /// From which host.
    pub from: String,
    /// To which host.
    pub to: String,
    /// Whether packets were handed over one by one.
    pub exact: bool,
    /// Packets of the wire that came in.
    pub packets_in: u64,
    /// Bytes that came in, as the link counts them.
    pub bytes_in: u64,
    /// Packets that went out.
    pub packets_out: u64,
    /// Bytes that went out.
    pub bytes_out: u64,
    /// Frames read and written: superpackets count once.
    pub frames_in: u64,
    /// See `frames_in`.
    pub frames_out: u64,
    /// Packets dropped, by cause.
    pub dropped: BTreeMap<DropCause, u64>,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets copied.
    pub copied: u64,
    /// Packets that the kernel dropped before the emulator, or refused from it. Not zero: the run is invalid.
    pub hidden: u64,
    /// How late packets were handed over.
    pub lateness: LatenessHistogram,
    /// How long packets waited in the queue.
    #[serde(default)]
    pub waits: QueueDelayHistogram,
}

/// What became of one packet, for those who check the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketRecord {
    /// The packet as it arrived: `at` is the arrival.
    pub packet: Packet,
    /// Which segment of its superpacket it was, and of how many.
    pub segment: (u16, u16),
    /// What TCP says of it, if it is of TCP over IPv4.
    pub tcp: Option<TcpHeader>,
    /// What became of it.
    pub outcome: PacketOutcome,
}

/// What became of a packet. Times are nanoseconds since the emulator started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketOutcome {
    /// It has neither arrived nor been dropped yet.
    InFlight,
    /// It was handed over.
    Delivered {
        /// When it should have been.
        ideal: Nanos,
        /// When it was.
        actual: Nanos,
        /// Whether it was marked on the way.
        marked: bool,
    },
    /// It was dropped at this time.
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
    /// Plugs into the interfaces of this network namespace and starts.
    ///
    /// # Errors
    /// An interface cannot be opened, for want of it or of `CAP_NET_RAW`.
    pub fn start(wires: &[EmulatedLink], options: &EmulatorOptions) -> anyhow::Result<Self> {
        let (commands, orders) = channel();
        let (bell, rung) = UnixStream::pair().context("a pair of sockets")?;
        let mut store = FrameStore::new(MAX_STORED_BYTES);
        let buffers = Driver::allocate_buffers(&mut store);
        let mut driver = Driver {
            ports: Vec::new(),
            directions: Vec::new(),
            store,
            clock: Clock::new(),
            changes: Vec::new(),
            commands: orders,
            wakeup: rung,
            buffers,
            received: Vec::new(),
        };
        for wire in wires {
            add_link(&mut driver, wire, options)?;
        }
        driver.changes.sort_by_key(|change| std::cmp::Reverse(change.0));
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn(move || {
            // All of it makes it more punctual, and nothing is needed: how late it is will be reported.
            let _ = ekiden_sys::thread::set_min_timer_slack();
            let _ = ekiden_sys::thread::set_realtime();
            let _awake = clock::hold_cpu_dma_latency();
            driver.run()
        })?;
        Ok(Self { commands, wakeup: bell, thread: Some(thread) })
    }

    /// What every direction did so far.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Report(reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// What became of every packet that entered `link` at host `from`, in order; empty unless it was told to record.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Records(link.to_owned(), from.to_owned(), reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// Stops. What is under way is lost.
    ///
    /// # Errors
    /// The emulator had ended before, by an error of the system.
    pub fn stop(mut self) -> anyhow::Result<Vec<DirectionReport>> {
        self.shut_down()
    }

    fn send_command(&self, command: DriverCommand) -> anyhow::Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the emulator has ended"))?;
        (&self.wakeup).write_all(&[1]).context("the emulator has ended")
    }

    fn shut_down(&mut self) -> anyhow::Result<Vec<DirectionReport>> {
        let thread = self.thread.take().context("the emulator has ended")?;
        // If it has ended already, the reason is in its result.
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

/// Adds both directions of a link.
fn add_link(driver: &mut Driver, wire: &EmulatedLink, options: &EmulatorOptions) -> anyhow::Result<()> {
    let dice = SeededRng::new(options.seed).derive(&wire.name);
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
        let pipeline = Pipeline::new(&conditions, dice.derive(if way == 0 { "forward" } else { "reverse" }));
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

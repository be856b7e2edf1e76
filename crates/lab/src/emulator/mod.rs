//! The one place with a real clock: frames of interfaces in, one pipeline for each direction of each link, frames out.
//!
//! One thread drives all links of a lab, so packets keep their order and nothing is shared. Logical time is the kernel's
//! receive stamp; everything behind it is computed from that stamp and never from "now". What the thread does too late is
//! late by that much once, it does not add up along a chain, and it is counted ([`Lateness`]).

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
use crate::dice::Dice;
use crate::emulator::clock::Clock;
use crate::emulator::direction::Direction;
use crate::emulator::driver::{Change, Command, Driver};
use crate::emulator::port::OpenPort;
use crate::emulator::records::Records;
use crate::emulator::store::Store;
use crate::ledger::Cause;
use crate::nanos;
use crate::packet::Packet;
use crate::pipeline::Pipeline;
use crate::topology::{Event, Link, Mode};
use crate::waits::Waits;

mod clock;
mod direction;
mod driver;
pub mod frame;
mod lateness;
mod port;
mod records;
mod store;

pub use clock::keep_awake;
pub use frame::TcpHeader;
pub use lateness::Lateness;
pub use records::{LOGGED, Recording};

/// In `fast` mode a direction that has sent packets sends no others for so long, in nanoseconds: those that become due
/// meanwhile share superpackets, as they would behind an interface that moderates its interrupts.
pub const FAST_QUANTUM: Nanos = 200_000;
/// The same in `coarse` mode, as behind an interface that moderates its interrupts a lot.
pub const COARSE_QUANTUM: Nanos = 1_000_000;
/// `auto` is `exact` up to this rate: 5 frames each 600 µs are no trouble for any machine.
pub const EXACT_UP_TO: u64 = 200_000_000;
/// So many bytes of packets may be under way in a lab: 10 Gbit/s for 800 ms.
const MEMORY: usize = 1 << 30;

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
pub struct Wire {
    /// The name of the link.
    pub name: String,
    /// Where it is plugged in, in the order of the link's ends.
    pub ports: [Port; 2],
    /// What it is like.
    pub link: Link,
}

/// How an emulator runs.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How packets are handed over.
    pub mode: Mode,
    /// What every random decision depends on.
    pub seed: u64,
    /// What changes while it runs, in order of time.
    pub events: Vec<Event>,
    /// Of which packets the fate is kept for [`Emulator::records`].
    pub record: Recording,
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
    pub dropped: BTreeMap<Cause, u64>,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets copied.
    pub copied: u64,
    /// Packets that the kernel dropped before the emulator, or refused from it. Not zero: the run is invalid.
    pub hidden: u64,
    /// How late packets were handed over.
    pub lateness: Lateness,
    /// How long packets waited in the queue.
    #[serde(default)]
    pub waits: Waits,
}

/// What became of one packet, for those who check the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The packet as it arrived: `at` is the arrival.
    pub packet: Packet,
    /// Which segment of its superpacket it was, and of how many.
    pub segment: (u16, u16),
    /// What TCP says of it, if it is of TCP over IPv4.
    pub tcp: Option<TcpHeader>,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a packet. Times are nanoseconds since the emulator started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It has neither arrived nor been dropped yet.
    UnderWay,
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
    Dropped(Cause, Nanos),
}

/// A running emulator. It stops when dropped.
#[derive(Debug)]
pub struct Emulator {
    commands: Sender<Command>,
    bell: UnixStream,
    thread: Option<JoinHandle<io::Result<Vec<DirectionReport>>>>,
}

impl Emulator {
    /// Plugs into the interfaces of this network namespace and starts.
    ///
    /// # Errors
    /// An interface cannot be opened, for want of it or of `CAP_NET_RAW`.
    pub fn start(wires: &[Wire], options: &Options) -> anyhow::Result<Self> {
        let (commands, orders) = channel();
        let (bell, rung) = UnixStream::pair().context("a pair of sockets")?;
        let mut store = Store::new(MEMORY);
        let buffers = Driver::buffers(&mut store);
        let mut driver = Driver {
            ports: Vec::new(),
            directions: Vec::new(),
            store,
            clock: Clock::new(),
            changes: Vec::new(),
            commands: orders,
            bell: rung,
            buffers,
            received: Vec::new(),
        };
        for wire in wires {
            add(&mut driver, wire, options)?;
        }
        driver.changes.sort_by_key(|change| std::cmp::Reverse(change.0));
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn(move || {
            // All of it makes it more punctual, and nothing is needed: how late it is will be reported.
            let _ = ekiden_sys::thread::tight_timers();
            let _ = ekiden_sys::thread::realtime();
            let _awake = clock::keep_awake();
            driver.run()
        })?;
        Ok(Self { commands, bell, thread: Some(thread) })
    }

    /// What every direction did so far.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        let (reply, answer) = channel();
        self.order(Command::Report(reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// What became of every packet that entered `link` at host `from`, in order; empty unless it was told to record.
    ///
    /// # Errors
    /// The emulator has ended.
    pub fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<Record>> {
        let (reply, answer) = channel();
        self.order(Command::Records(link.to_owned(), from.to_owned(), reply))?;
        answer.recv().context("the emulator has ended")
    }

    /// Stops. What is under way is lost.
    ///
    /// # Errors
    /// The emulator had ended before, by an error of the system.
    pub fn stop(mut self) -> anyhow::Result<Vec<DirectionReport>> {
        self.end()
    }

    fn order(&self, command: Command) -> anyhow::Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the emulator has ended"))?;
        (&self.bell).write_all(&[1]).context("the emulator has ended")
    }

    fn end(&mut self) -> anyhow::Result<Vec<DirectionReport>> {
        let thread = self.thread.take().context("the emulator has ended")?;
        // If it has ended already, the reason is in its result.
        let _ = self.order(Command::Stop);
        thread.join().map_err(|_| anyhow!("the emulator panicked"))?.context("the emulator")
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
    }
}

/// Adds both directions of a link.
fn add(driver: &mut Driver, wire: &Wire, options: &Options) -> anyhow::Result<()> {
    let dice = Dice::new(options.seed).of(&wire.name);
    let [a, b] = &wire.link.ends;
    for (port, from, to, way) in [(&wire.ports[0], a, b, 0), (&wire.ports[1], b, a, 1)] {
        let changes: Vec<Change> = options
            .events
            .iter()
            .filter(|event| event.link == wire.name)
            .map(|event| {
                (nanos(event.at), driver.directions.len(), of_way(&event.forward, &event.reverse, way).clone())
            })
            .collect();
        let first = of_way(&wire.link.forward, &wire.link.reverse, way);
        let conditions: Vec<&Conditions> =
            std::iter::once(first).chain(changes.iter().map(|change| &change.2)).collect();
        let pipeline = Pipeline::new(&conditions, dice.of(if way == 0 { "forward" } else { "reverse" }));
        let report = DirectionReport {
            link: wire.name.clone(),
            from: from.clone(),
            to: to.clone(),
            exact: is_exact(options.mode, &conditions),
            ..DirectionReport::default()
        };
        let port = OpenPort::open(port).with_context(|| format!("link {:?}: the end at {from:?}", wire.name))?;
        driver.ports.push(port);
        let quantum = if options.mode == Mode::Coarse { COARSE_QUANTUM } else { FAST_QUANTUM };
        let records = Records::new(options.record.of(&wire.name));
        driver.directions.push(Direction::new(pipeline, report, first.count.overhead(), quantum, records));
        driver.changes.extend(changes);
    }
    Ok(())
}

fn of_way<'a>(forward: &'a Conditions, reverse: &'a Conditions, way: usize) -> &'a Conditions {
    if way == 0 { forward } else { reverse }
}

fn is_exact(mode: Mode, conditions: &[&Conditions]) -> bool {
    match mode {
        Mode::Exact => true,
        Mode::Fast | Mode::Coarse => false,
        Mode::Auto => conditions.iter().all(|c| c.rate.is_some_and(|rate| rate.bits_per_second() <= EXACT_UP_TO)),
    }
}

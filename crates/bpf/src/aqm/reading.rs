//! The counters of an attached program, read from its maps.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ekiden_sys::tc;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use super::report::AqmReport;
use super::settings::AqmSettings;
use super::{Error, attach, encode, maps};

/// How many entries are read by one call.
const MAX_BATCH: u32 = 4096;

/// The maps of one program.
struct ProgramMaps {
    interface: String,
    settings: AqmSettings,
    queue: MapHandle,
    slots: MapHandle,
    names: MapHandle,
}

/// The counters at one moment.
struct Snapshot {
    at: Instant,
    counters: Counters,
    connections: Vec<Connection>,
}

/// The activity at an interface, or at all managed ones, over `interval` or a little longer.
///
/// # Errors
/// [`Error::NotAttached`], [`Error::NotReadable`], and the kernel's.
pub fn watch(name: Option<&str>, interval: Duration, wait: impl FnOnce(Duration)) -> Result<Vec<AqmReport>, Error> {
    let programs = match name {
        Some(name) => vec![ProgramMaps::open(name)?.ok_or_else(|| Error::NotAttached(name.to_owned()))?],
        None => open_all()?,
    };
    let before = programs.iter().map(ProgramMaps::read).collect::<Result<Vec<_>, _>>()?;
    if !programs.is_empty() {
        wait(interval);
    }
    let after = programs.iter().map(ProgramMaps::read).collect::<Result<Vec<_>, _>>()?;
    let snapshots = before.iter().zip(&after);
    Ok(programs.iter().zip(snapshots).map(|(maps, (before, after))| maps.report(before, after)).collect())
}

/// Every interface of this network namespace that has the program.
fn open_all() -> Result<Vec<ProgramMaps>, Error> {
    let interfaces = tc::interfaces().map_err(Error::from_io("listing the interfaces"))?;
    interfaces.into_iter().filter_map(|(_, name)| ProgramMaps::open(&name).transpose()).collect()
}

impl ProgramMaps {
    fn open(name: &str) -> Result<Option<Self>, Error> {
        let Some(place) = attach::find_attachment(attach::interface_index(name)?)? else { return Ok(None) };
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let mut programs = ProgInfoIter::with_query_opts(options);
        let ids = programs.find(|program| program.id == place.program).ok_or(Error::NotReadable)?.map_ids;
        let mut maps = HashMap::new();
        for id in ids {
            let map = MapHandle::from_map_id(id).map_err(|_| Error::NotReadable)?;
            maps.insert(map.name().to_string_lossy().into_owned(), map);
        }
        let mut take = |name: &str| maps.remove(name).ok_or_else(|| foreign_program(name));
        let (queue, slots, names) = (take(maps::QUEUE)?, take(maps::SLOTS)?, take(maps::NAMES)?);
        // The kernel keeps fifteen bytes of a name.
        let settings = read_entry(&take(&maps::SETTINGS[..15])?, 0, MapFlags::ANY)?;
        let settings = encode::decode_settings(&settings).ok_or_else(|| foreign_program("settings"))?;
        Ok(Some(Self { interface: name.to_owned(), settings, queue, slots, names }))
    }

    fn read(&self) -> Result<Snapshot, Error> {
        let at = Instant::now();
        let queue = read_entry(&self.queue, 0, MapFlags::ANY)?;
        let counters = maps::parse_counters(&queue).ok_or_else(|| foreign_program(maps::QUEUE))?;
        let [slots, names] = [&self.slots, &self.names].map(read_array);
        let sets = slots?.into_iter().zip(names?);
        let connections =
            sets.flat_map(|(set, names)| maps::parse_connections(&set, &names).collect::<Vec<_>>()).collect();
        Ok(Snapshot { at, counters, connections })
    }

    fn report(&self, before: &Snapshot, after: &Snapshot) -> AqmReport {
        let interval = after.at - before.at;
        let previous: HashMap<_, _> =
            before.connections.iter().map(|connection| (connection.key(), connection)).collect();
        let gains = after.connections.iter().map(|connection| {
            let before = previous.get(&connection.key());
            ConnectionDelta {
                connection: connection.clone(),
                bytes: counter_delta(before.map_or(0, |before| before.bytes), connection.bytes),
                hit: counter_delta(before.map_or(0, |before| before.hit), connection.hit),
            }
        });
        let recent = after.counters.since(&before.counters);
        AqmReport::new(&self.interface, &self.settings, after.counters, recent, gains.collect(), interval)
    }
}

/// The growth of a counter of the table. It wraps; but no connection sends 2 GiB in about a second, so a larger
/// difference means that the connection lost its slot and began anew.
const fn counter_delta(before: u32, after: u32) -> u32 {
    let growth = after.wrapping_sub(before);
    if growth > u32::MAX / 2 { after } else { growth }
}

/// An error about a program that has our name, and is not ours or of another version.
fn foreign_program(name: &str) -> Error {
    let source = std::io::Error::other(format!("{name} is missing or has an unexpected size"));
    Error::Kernel { what: "reading the maps (was the program attached by another version of ekiden?)", source }
}

/// All entries of an array.
fn read_array(map: &MapHandle) -> Result<Vec<Vec<u8>>, Error> {
    let entries = map.lookup_batch(MAX_BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|_| Error::NotReadable)?;
    Ok(entries.map(|(_, value)| value).collect())
}

fn read_entry(map: &MapHandle, key: u32, flags: MapFlags) -> Result<Vec<u8>, Error> {
    let value = map.lookup(&key.to_ne_bytes(), flags).map_err(|_| Error::NotReadable)?;
    value.ok_or_else(|| foreign_program("an entry"))
}

/// The counters of the program. A superpacket of a network card or of the kernel counts as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Of this host's own sockets: let through.
    pub own: u64,
    /// Not IP: let through.
    pub other: u64,
    /// Packets let through without a mark.
    pub passed: u64,
    /// Packets let through with a mark (ECN CE).
    pub marked: u64,
    /// Packets dropped because the queue was full.
    pub full: u64,
    /// Dropped by the law.
    pub early: u64,
    /// Dropped: the average was above every threshold.
    pub forced: u64,
    /// Packets let through, with those that superpackets will be cut into.
    pub packets: u64,
    /// Bytes of the packets let through.
    pub bytes: u64,
    /// The sum of the backlogs before each packet, in bytes.
    #[serde(skip)]
    pub waited: u64,
    /// The backlog before the last packet, in bytes.
    #[serde(skip)]
    pub waiting: u64,
    /// Let through, for other processors were at it for too long.
    pub missed: u64,
}

/// The bytes that one connection was permitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// From where; the port is 0 where there is none.
    pub source: SocketAddr,
    /// The destination; the port is 0 where there is none.
    pub destination: SocketAddr,
    /// The IP protocol number (IANA).
    pub protocol: u8,
    /// Bytes let through; wraps, so that only differences say something.
    #[serde(skip)]
    pub bytes: u32,
    /// Bytes marked or dropped; wraps.
    #[serde(skip)]
    pub hit: u32,
}

/// The activity of a connection while it was watched.
pub(super) struct ConnectionDelta {
    pub(super) connection: Connection,
    pub(super) bytes: u32,
    /// Bytes marked or dropped.
    pub(super) hit: u32,
}

impl Counters {
    /// Packets that have arrived.
    #[must_use]
    pub const fn arrived(&self) -> u64 {
        self.own + self.other + self.missed + self.judged()
    }

    /// Packets that were judged.
    const fn judged(&self) -> u64 {
        self.passed + self.marked + self.dropped()
    }

    /// Packets that were dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.full + self.early + self.forced
    }

    /// The difference to an earlier reading.
    pub(super) const fn since(&self, before: &Self) -> Self {
        Self {
            own: self.own - before.own,
            other: self.other - before.other,
            passed: self.passed - before.passed,
            marked: self.marked - before.marked,
            full: self.full - before.full,
            early: self.early - before.early,
            forced: self.forced - before.forced,
            packets: self.packets - before.packets,
            bytes: self.bytes - before.bytes,
            waited: self.waited - before.waited,
            waiting: self.waiting,
            missed: self.missed - before.missed,
        }
    }
}

impl Connection {
    /// The key of the connection.
    pub(super) const fn key(&self) -> (SocketAddr, SocketAddr, u8) {
        (self.source, self.destination, self.protocol)
    }
}

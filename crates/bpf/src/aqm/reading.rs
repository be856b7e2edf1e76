//! What a program that hangs somewhere has counted, read from its maps.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ekiden_sys::tc;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::counted::{Connection, Counters, Gain};
use super::report::Report;
use super::settings::Settings;
use super::{Error, attach, encode, maps};

/// How many entries are read by one call.
const BATCH: u32 = 4096;

/// The maps of one program.
struct Maps {
    interface: String,
    settings: Settings,
    queue: MapHandle,
    slots: MapHandle,
    names: MapHandle,
}

/// What was counted at one moment.
struct Snapshot {
    at: Instant,
    counters: Counters,
    connections: Vec<Connection>,
}

/// What goes on at an interface, or at all that are managed, watched for so long or a little longer.
///
/// # Errors
/// [`Error::NotThere`], [`Error::NotReadable`], and the kernel's.
pub fn show(name: Option<&str>, watch: Duration, wait: impl FnOnce(Duration)) -> Result<Vec<Report>, Error> {
    let all = match name {
        Some(name) => vec![Maps::open(name)?.ok_or_else(|| Error::NotThere(name.to_owned()))?],
        None => managed()?,
    };
    let before = all.iter().map(Maps::read).collect::<Result<Vec<_>, _>>()?;
    if !all.is_empty() {
        wait(watch);
    }
    let after = all.iter().map(Maps::read).collect::<Result<Vec<_>, _>>()?;
    let both = before.iter().zip(&after);
    Ok(all.iter().zip(both).map(|(maps, (before, after))| maps.report(before, after)).collect())
}

/// Every interface of this network namespace that has the program.
fn managed() -> Result<Vec<Maps>, Error> {
    let interfaces = tc::interfaces().map_err(Error::of("listing the interfaces"))?;
    interfaces.into_iter().filter_map(|(_, name)| Maps::open(&name).transpose()).collect()
}

impl Maps {
    fn open(name: &str) -> Result<Option<Self>, Error> {
        let Some(place) = attach::find(attach::index(name)?)? else { return Ok(None) };
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let mut programs = ProgInfoIter::with_query_opts(options);
        let ids = programs.find(|program| program.id == place.program).ok_or(Error::NotReadable)?.map_ids;
        let mut maps = HashMap::new();
        for id in ids {
            let map = MapHandle::from_map_id(id).map_err(|_| Error::NotReadable)?;
            maps.insert(map.name().to_string_lossy().into_owned(), map);
        }
        let mut take = |name: &str| maps.remove(name).ok_or_else(|| stranger(name));
        let (queue, slots, names) = (take(maps::QUEUE)?, take(maps::SLOTS)?, take(maps::NAMES)?);
        // The kernel keeps fifteen bytes of a name.
        let settings = lookup(&take(&maps::SETTINGS[..15])?, 0, MapFlags::ANY)?;
        let settings = encode::told(&settings).ok_or_else(|| stranger("settings"))?;
        Ok(Some(Self { interface: name.to_owned(), settings, queue, slots, names }))
    }

    fn read(&self) -> Result<Snapshot, Error> {
        let at = Instant::now();
        let queue = lookup(&self.queue, 0, MapFlags::ANY)?;
        let counters = maps::counters(&queue).ok_or_else(|| stranger(maps::QUEUE))?;
        let [slots, names] = [&self.slots, &self.names].map(table);
        let both = slots?.into_iter().zip(names?);
        let connections = both.flat_map(|(set, names)| maps::connections(&set, &names).collect::<Vec<_>>()).collect();
        Ok(Snapshot { at, counters, connections })
    }

    fn report(&self, before: &Snapshot, after: &Snapshot) -> Report {
        let watch = after.at - before.at;
        let known: HashMap<_, _> = before.connections.iter().map(|connection| (connection.key(), connection)).collect();
        let gains = after.connections.iter().map(|connection| {
            let before = known.get(&connection.key());
            Gain {
                connection: connection.clone(),
                bytes: gained(before.map_or(0, |before| before.bytes), connection.bytes),
                hit: gained(before.map_or(0, |before| before.hit), connection.hit),
            }
        });
        let recent = after.counters.since(&before.counters);
        Report::new(&self.interface, &self.settings, after.counters, recent, gains.collect(), watch)
    }
}

/// By how much a number of the table has grown. It wraps; but nobody sends 2 GiB in a second or so, so that a connection of
/// which it would seem so had lost its slot, and begun anew.
const fn gained(before: u32, after: u32) -> u32 {
    let gained = after.wrapping_sub(before);
    if gained > u32::MAX / 2 { after } else { gained }
}

/// An error about a program that has our name, and is not ours or of another version.
fn stranger(what: &str) -> Error {
    let source = std::io::Error::other(format!("{what} is not there, or not as it should be"));
    Error::Kernel { what: "reading the maps (was it attached by another version of ekiden?)", source }
}

/// All entries of an array.
fn table(map: &MapHandle) -> Result<Vec<Vec<u8>>, Error> {
    let entries = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|_| Error::NotReadable)?;
    Ok(entries.map(|(_, value)| value).collect())
}

fn lookup(map: &MapHandle, key: u32, flags: MapFlags) -> Result<Vec<u8>, Error> {
    let found = map.lookup(&key.to_ne_bytes(), flags).map_err(|_| Error::NotReadable)?;
    found.ok_or_else(|| stranger("an entry"))
}

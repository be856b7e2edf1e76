//! What a program that hangs somewhere has counted, read from its maps.

use std::collections::HashMap;
use std::time::Duration;

use ekiden_sys::tc;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::report::{Connection, Counters, Report};
use super::settings::Settings;
use super::{Error, attach, encode, maps};

/// The maps of one program.
struct Maps {
    interface: String,
    settings: Settings,
    queue: MapHandle,
    slots: MapHandle,
}

/// What was counted at one moment.
struct Snapshot {
    counters: Counters,
    connections: Vec<Connection>,
}

/// What goes on at an interface, or at all that are managed, watched for so long.
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
    Ok(all.iter().zip(both).map(|(maps, (before, after))| maps.report(before, after, watch)).collect())
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
        let (queue, slots) = (take(maps::QUEUE)?, take(maps::SLOTS)?);
        // The kernel keeps fifteen bytes of a name.
        let settings = lookup(&take(&maps::SETTINGS[..15])?, 0, MapFlags::ANY)?;
        let settings = encode::told(&settings).ok_or_else(|| stranger("settings"))?;
        Ok(Some(Self { interface: name.to_owned(), settings, queue, slots }))
    }

    fn read(&self) -> Result<Snapshot, Error> {
        let queue = lookup(&self.queue, 0, MapFlags::LOCK)?;
        let counters = maps::counters(&queue).ok_or_else(|| stranger(maps::QUEUE))?;
        let mut connections = Vec::new();
        for set in 0..self.slots.max_entries() {
            connections.extend(maps::connections(&lookup(&self.slots, set, MapFlags::ANY)?));
        }
        Ok(Snapshot { counters, connections })
    }

    fn report(&self, before: &Snapshot, after: &Snapshot, watch: Duration) -> Report {
        let known: HashMap<_, _> = before.connections.iter().map(|connection| (connection.key(), connection)).collect();
        let gained = after.connections.iter().map(|connection| {
            let bytes = known.get(&connection.key()).map_or(0, |before| before.bytes);
            // A slot that was taken over in the meantime begins anew.
            let gained = connection.bytes.checked_sub(bytes).unwrap_or(connection.bytes);
            (connection.clone(), gained)
        });
        let recent = after.counters.since(&before.counters);
        Report::new(&self.interface, &self.settings, after.counters, recent, gained.collect(), watch)
    }
}

/// An error about a program that has our name, and is not ours or of another version.
fn stranger(what: &str) -> Error {
    let source = std::io::Error::other(format!("{what} is not there, or not as it should be"));
    Error::Kernel { what: "reading the maps (was it attached by another version of ekiden?)", source }
}

fn lookup(map: &MapHandle, key: u32, flags: MapFlags) -> Result<Vec<u8>, Error> {
    let found = map.lookup(&key.to_ne_bytes(), flags).map_err(|_| Error::NotReadable)?;
    found.ok_or_else(|| stranger("an entry"))
}

//! Into the kernel's list of congestion controls and out of it: held by this process, or pinned by a name.

use std::os::fd::OwnedFd;

use libbpf_rs::{ErrorKind, Link, MapCore, MapHandle};

use super::object::{self, Loaded, Way};
use super::telemetry::Sections;
use super::{Algorithm, CongestionError, Origin, catalogue, pins, presence};
use crate::{chatter, link};

/// A congestion control that is registered for as long as this lives, at least.
#[derive(Debug)]
pub struct Held {
    /// Who else has put it there; [`Origin::NotLoaded`] when nobody had, so that it is this process's own.
    pub origin: Origin,
    /// The storage of its connections, where it is ours and can be read.
    pub sections: Option<Sections>,
    registered: Registered,
}

#[derive(Debug)]
enum Registered {
    Link(Link),
    Map(MapHandle),
    /// Somebody else's link.
    Shared(#[expect(dead_code, reason = "open, and nothing else")] OwnedFd),
    /// Nothing of it is in our hands.
    Elsewhere,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Registered::Map(map) = &self.registered {
            // Somebody may have done it already; doctor finds what stays.
            let _ = map.delete(&ENTRY);
        }
    }
}

/// The only key of a map of operations.
const ENTRY: [u8; 4] = [0; 4];

/// Sees to it that the kernel has the congestion control of this name while the result lives: whoever has loaded it, or
/// else this process. The older way it outlives a process that is killed, and [`unload`] finds it.
///
/// # Errors
/// [`CongestionError`]
pub fn hold(name: &str, way: Option<Way>) -> Result<Held, CongestionError> {
    match hold_now(name, way) {
        // Somebody was faster, a second relay that starts at the same time: then it is his, and there.
        Err(CongestionError::Taken { .. }) => hold_now(name, way),
        other => other,
    }
}

fn hold_now(name: &str, way: Option<Way>) -> Result<Held, CongestionError> {
    let origin = presence::presence(name).origin;
    let (registered, sections) = match origin {
        Origin::NotLoaded => return load(catalogue::find(name)?, way),
        // Who may not open the link depends on whoever has loaded it.
        Origin::Pinned => (pins::link(name).map_or(Registered::Elsewhere, Registered::Link), Sections::pinned(name)),
        Origin::Held(_) => {
            let link = presence::link_of(name).and_then(|number| link::by_number(number).ok());
            (link.map_or(Registered::Elsewhere, Registered::Shared), None)
        }
        Origin::Kernel | Origin::Left | Origin::Hidden => (Registered::Elsewhere, None),
    };
    Ok(Held { origin, sections, registered })
}

fn load(algorithm: &Algorithm, way: Option<Way>) -> Result<Held, CongestionError> {
    let (mut loaded, way) = object::load(algorithm, way, false)?;
    let registered = register(algorithm, &mut loaded, way)?;
    Ok(Held { origin: Origin::NotLoaded, sections: loaded.sections().map(Sections::new), registered })
}

/// What [`pin`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// It is new in the kernel.
    Loaded,
    /// It replaces what [`pin`] had loaded before: new connections get this one, older ones keep theirs.
    Updated,
    /// It is registered, and not pinned: the older way needs no BPF file system, and without one nobody can read what
    /// connections tell.
    Unpinned,
}

/// Puts it into the kernel until [`unload`], or in the place of what was pinned before.
///
/// # Errors
/// [`CongestionError`]
pub fn pin(algorithm: &Algorithm, way: Option<Way>) -> Result<Pinned, CongestionError> {
    let name = algorithm.name;
    let (mut loaded, way) = object::load(algorithm, way, true)?;
    if way == Way::Link && !pins::is_mounted() {
        return Err(CongestionError::NotMounted);
    }
    if let (Way::Link, Some(old)) = (way, pins::link(name)) {
        update(algorithm, &mut loaded, &old)?;
        return pin_sections(algorithm, &loaded).map(|()| Pinned::Updated);
    }
    let replaced = pins::map(name).is_some_and(|old| old.delete(&ENTRY).is_ok());
    let registered = register(algorithm, &mut loaded, way)?;
    if !pins::is_mounted() {
        // It stays without us: not to be deleted here is all it takes.
        std::mem::forget(registered);
        return Ok(Pinned::Unpinned);
    }
    keep(algorithm, &loaded, registered)?;
    Ok(if replaced { Pinned::Updated } else { Pinned::Loaded })
}

/// What [`unload`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unloaded {
    /// The kernel does not have it any more; connections that use it go on.
    Gone,
    /// These processes hold it until they end.
    Held(Vec<u32>),
}

/// Takes it out again: what is pinned, and what was left behind by somebody who did not end by himself.
///
/// # Errors
/// [`CongestionError::NotLoaded`], [`CongestionError::Taken`] when it is not ours to remove, [`CongestionError::Pin`].
pub fn unload(name: &str) -> Result<Unloaded, CongestionError> {
    let held = match presence::presence(name).origin {
        Origin::Kernel => return Err(taken(name, "by the kernel's own, and stays")),
        Origin::Hidden => return Err(taken(name, "by somebody whom only root sees: run as root")),
        Origin::Held(processes) => return Err(taken(name, &format!("{}: it goes when that ends", by(&processes)))),
        Origin::NotLoaded if !pins::pinned().iter().any(|pinned| pinned == name) => {
            return Err(CongestionError::NotLoaded { name: name.to_owned() });
        }
        Origin::NotLoaded | Origin::Left => Vec::new(),
        Origin::Pinned => pins::link(name).map(|link| let_go(&link)).unwrap_or_default(),
    };
    for map in pins::map(name).into_iter().chain(presence::left(name)) {
        // It may be the same map twice.
        let _ = map.delete(&ENTRY);
    }
    pins::clear(name)?;
    Ok(if held.is_empty() { Unloaded::Gone } else { Unloaded::Held(held) })
}

/// Unregisters at once what nobody else holds, where the kernel can (Linux 6.11); otherwise the kernel does it in its own
/// time when the pin is gone.
fn let_go(link: &Link) -> Vec<u32> {
    let holders = link.info().map(|info| presence::holders(info.id)).unwrap_or_default();
    if holders.is_empty() {
        let _ = link.detach();
    }
    holders
}

fn register(algorithm: &Algorithm, loaded: &mut Loaded, way: Way) -> Result<Registered, CongestionError> {
    let (result, log) = chatter::during(|| attach(loaded));
    match (result, way) {
        (Ok(link), Way::Link) => Ok(Registered::Link(link)),
        (Ok(mut link), Way::Map) => {
            // Of the older way there is no link: libbpf would delete the entry when this is dropped.
            link.disconnect();
            loaded.operations().map(Registered::Map).ok_or_else(|| incomplete(algorithm))
        }
        (Err(error), _) if error.kind() == ErrorKind::AlreadyExists => Err(taken_by_whom(algorithm.name)),
        (Err(error), _) => Err(refused(algorithm, &error.to_string(), log)),
    }
}

fn attach(loaded: &mut Loaded) -> libbpf_rs::Result<Link> {
    let Loaded { object, operations } = loaded;
    let map = object.maps_mut().find(|map| map.name() == operations.as_str());
    map.ok_or_else(|| libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound)))?.attach_struct_ops()
}

/// Exchanges what `link` runs. The map has to be written before, and of what libbpf offers only attaching does that; it
/// then fails because the name is taken, by what is to be replaced.
fn update(algorithm: &Algorithm, loaded: &mut Loaded, old: &Link) -> Result<(), CongestionError> {
    let (attached, log) = chatter::during(|| attach(loaded));
    if let Err(error) = attached.map(drop)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(refused(algorithm, &error.to_string(), log));
    }
    let map = loaded.operations().ok_or_else(|| incomplete(algorithm))?;
    link::update(old, &map).map_err(|error| refused(algorithm, &error.to_string(), String::new()))
}

fn keep(algorithm: &Algorithm, loaded: &Loaded, registered: Registered) -> Result<(), CongestionError> {
    pins::prepare(algorithm.name)?;
    // The storage first: where the link is, everything is.
    pin_sections(algorithm, loaded)?;
    match registered {
        Registered::Link(mut link) => pins::pin_link(algorithm.name, &mut link),
        Registered::Map(mut map) => pins::pin_map(algorithm.name, &mut map),
        Registered::Shared(_) | Registered::Elsewhere => Ok(()),
    }
}

fn pin_sections(algorithm: &Algorithm, loaded: &Loaded) -> Result<(), CongestionError> {
    let mut sections = loaded.sections().ok_or_else(|| incomplete(algorithm))?;
    pins::pin_sections(algorithm.name, &mut sections)
}

fn taken_by_whom(name: &str) -> CongestionError {
    match presence::presence(name).origin {
        Origin::Kernel => {
            taken(name, "by the kernel's own, or by somebody else's program: that one is chosen by this name")
        }
        Origin::Pinned => taken(name, "by what `ekiden cc load` has loaded the other way: `ekiden cc unload` it first"),
        Origin::Held(processes) => {
            let by = by(&processes);
            taken(name, &format!("{by}: it can be chosen now, and goes when that ends; to keep it, load it before"))
        }
        Origin::Left => {
            taken(name, &format!("by what a killed process has left: `ekiden cc unload {name}` removes it"))
        }
        Origin::Hidden | Origin::NotLoaded => taken(name, "by somebody whom only root sees: run as root"),
    }
}

fn by(processes: &[u32]) -> String {
    let shown = |process: &u32| {
        let program = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        format!("{} (pid {process})", program.trim())
    };
    match processes {
        [] => "by a program that holds it out of sight".to_owned(),
        processes => format!("by {}", processes.iter().map(shown).collect::<Vec<_>>().join(", ")),
    }
}

fn taken(name: &str, by: &str) -> CongestionError {
    CongestionError::Taken { name: name.to_owned(), by: by.to_owned() }
}

fn incomplete(algorithm: &Algorithm) -> CongestionError {
    refused(algorithm, "its object lacks a map", String::new())
}

fn refused(algorithm: &Algorithm, cause: &str, log: String) -> CongestionError {
    CongestionError::Refused { name: algorithm.name.to_owned(), cause: cause.to_owned(), log }
}

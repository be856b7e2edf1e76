//! Into the kernel's list of congestion controls and out of it: held by this process, or pinned by a name.

use std::os::fd::OwnedFd;

use libbpf_rs::{ErrorKind, Link, MapCore, MapHandle};

use super::object::{self, LoadedObject, RegistrationMethod};
use super::resume::ResumeMap;
use super::telemetry::TelemetryMap;
use super::{Algorithm, CongestionError, LoadedBy, catalogue, pins, presence};
use crate::{link, messages};

/// A congestion control that is registered for as long as this lives, at least.
#[derive(Debug)]
pub struct RegistrationGuard {
    /// The other loader; [`LoadedBy::NotLoaded`] when this process has loaded it.
    pub loaded_by: LoadedBy,
    /// The storage of its connections, where it is ours and can be read.
    pub sections: Option<TelemetryMap>,
    /// The requests for Careful Resume of its connections, where it knows them, is ours, and can be read.
    pub resumes: Option<ResumeMap>,
    registered: Registration,
}

#[derive(Debug)]
enum Registration {
    Link(Link),
    Map(MapHandle),
    /// The link of another process.
    Shared(#[expect(dead_code, reason = "open, and nothing else")] OwnedFd),
    /// Nothing of it is in our hands.
    Elsewhere,
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        if let Registration::Map(map) = &self.registered {
            // Another process may have deleted it already; doctor finds leftovers.
            let _ = map.delete(&MAP_KEY);
        }
    }
}

/// The only key of a map of operations.
const MAP_KEY: [u8; 4] = [0; 4];

/// Makes sure that the kernel has the congestion control of this name while the result lives: registered by another
/// process, or else by this one. Registered the older way it outlives a process that is killed, and [`unload`] finds
/// it.
///
/// # Errors
/// [`CongestionError`]
pub fn acquire(name: &str, method: Option<RegistrationMethod>) -> Result<RegistrationGuard, CongestionError> {
    match try_acquire(name, method) {
        // Another process was faster, such as a second relay that starts at that moment: then its registration is used.
        Err(CongestionError::NameTaken { .. }) => try_acquire(name, method),
        other => other,
    }
}

fn try_acquire(name: &str, method: Option<RegistrationMethod>) -> Result<RegistrationGuard, CongestionError> {
    let origin = presence::lookup(name).loaded_by;
    let (registered, (sections, resumes)) = match origin {
        LoadedBy::NotLoaded => return load(catalogue::find(name)?, method),
        // The loader's permissions decide whether this process may open the link.
        LoadedBy::Pinned => {
            let storages = (TelemetryMap::pinned(name), ResumeMap::pinned(name));
            (pins::link(name).map_or(Registration::Elsewhere, Registration::Link), storages)
        }
        LoadedBy::Held(_) => {
            let link = presence::link_id(name).and_then(|number| link::by_id(number).ok());
            (link.map_or(Registration::Elsewhere, Registration::Shared), (None, None))
        }
        LoadedBy::Kernel | LoadedBy::Orphaned | LoadedBy::Hidden => (Registration::Elsewhere, (None, None)),
    };
    Ok(RegistrationGuard { loaded_by: origin, sections, resumes, registered })
}

fn load(algorithm: &Algorithm, method: Option<RegistrationMethod>) -> Result<RegistrationGuard, CongestionError> {
    let (mut loaded, method) = object::load(algorithm, method, false)?;
    let registered = register(algorithm, &mut loaded, method)?;
    Ok(RegistrationGuard {
        loaded_by: LoadedBy::NotLoaded,
        sections: loaded.sections().map(TelemetryMap::new),
        resumes: loaded.resumes().map(ResumeMap::new),
        registered,
    })
}

/// The result of [`pin`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinOutcome {
    /// It is new in the kernel.
    Loaded,
    /// It replaces an earlier pin: new connections get this one, older ones keep theirs.
    Updated,
    /// It is registered, and not pinned: the older way needs no BPF file system, and without one the telemetry of
    /// connections cannot be read.
    Unpinned,
}

/// Registers the control until [`unload`], or replaces the pinned one.
///
/// # Errors
/// [`CongestionError`]
pub fn pin(algorithm: &Algorithm, method: Option<RegistrationMethod>) -> Result<PinOutcome, CongestionError> {
    let name = algorithm.name;
    let (mut loaded, method) = object::load(algorithm, method, true)?;
    if method == RegistrationMethod::Link && !pins::is_mounted() {
        return Err(CongestionError::NotMounted);
    }
    if let (RegistrationMethod::Link, Some(old)) = (method, pins::link(name)) {
        update(algorithm, &mut loaded, &old)?;
        return pin_storages(algorithm, &loaded).map(|()| PinOutcome::Updated);
    }
    let replaced = pins::map(name).is_some_and(|old| old.delete(&MAP_KEY).is_ok());
    let registered = register(algorithm, &mut loaded, method)?;
    if !pins::is_mounted() {
        // It stays without us: not to be deleted here is all it takes.
        std::mem::forget(registered);
        return Ok(PinOutcome::Unpinned);
    }
    pin_all(algorithm, &loaded, registered)?;
    Ok(if replaced { PinOutcome::Updated } else { PinOutcome::Loaded })
}

/// The result of [`unload`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnloadOutcome {
    /// The kernel does not have it any more; connections that use it go on.
    Gone,
    /// These processes hold it until they end.
    Held(Vec<u32>),
}

/// Unregisters the control: its pin, and registrations of killed processes.
///
/// # Errors
/// [`CongestionError::NotLoaded`], [`CongestionError::NameTaken`] when it belongs to another program,
/// [`CongestionError::Pin`].
pub fn unload(name: &str) -> Result<UnloadOutcome, CongestionError> {
    let holders = match presence::lookup(name).loaded_by {
        LoadedBy::Kernel => return Err(name_taken(name, "by a control of the kernel, which cannot be unloaded")),
        LoadedBy::Hidden => return Err(name_taken(name, "by a process that only root can see: run as root")),
        LoadedBy::Held(processes) => {
            return Err(name_taken(
                name,
                &format!("{}: the control is unloaded when the process ends", describe_processes(&processes)),
            ));
        }
        LoadedBy::NotLoaded if !pins::pinned_names().iter().any(|pinned| pinned == name) => {
            return Err(CongestionError::NotLoaded { name: name.to_owned() });
        }
        LoadedBy::NotLoaded | LoadedBy::Orphaned => Vec::new(),
        LoadedBy::Pinned => pins::link(name).map(|link| detach_unheld(&link)).unwrap_or_default(),
    };
    for map in pins::map(name).into_iter().chain(presence::orphaned_maps(name)) {
        // It may be the same map twice.
        let _ = map.delete(&MAP_KEY);
    }
    pins::remove_all(name)?;
    Ok(if holders.is_empty() { UnloadOutcome::Gone } else { UnloadOutcome::Held(holders) })
}

/// Unregisters a link without other users at once, where the kernel can (Linux 6.11); otherwise the kernel does it in
/// the background when the pin is gone.
fn detach_unheld(link: &Link) -> Vec<u32> {
    let holders = link.info().map(|info| presence::holders(info.id)).unwrap_or_default();
    if holders.is_empty() {
        let _ = link.detach();
    }
    holders
}

fn register(
    algorithm: &Algorithm,
    loaded: &mut LoadedObject,
    method: RegistrationMethod,
) -> Result<Registration, CongestionError> {
    let (result, log) = messages::capture(|| attach(loaded));
    match (result, method) {
        (Ok(link), RegistrationMethod::Link) => Ok(Registration::Link(link)),
        (Ok(mut link), RegistrationMethod::Map) => {
            // Of the older way there is no link: libbpf would delete the entry when this is dropped.
            link.disconnect();
            loaded.operations().map(Registration::Map).ok_or_else(|| missing_map(algorithm))
        }
        (Err(error), _) if error.kind() == ErrorKind::AlreadyExists => Err(name_taken_by(algorithm.name)),
        (Err(error), _) => Err(load_refused(algorithm, &error.to_string(), log)),
    }
}

fn attach(loaded: &mut LoadedObject) -> libbpf_rs::Result<Link> {
    let LoadedObject { object, operations } = loaded;
    let map = object.maps_mut().find(|map| map.name() == operations.as_str());
    map.ok_or_else(|| libbpf_rs::Error::from(std::io::Error::from(std::io::ErrorKind::NotFound)))?.attach_struct_ops()
}

/// Replaces the program of `link`. The map has to be written before, and in libbpf only attaching does that; it then
/// fails because the name is taken by the program to replace.
fn update(algorithm: &Algorithm, loaded: &mut LoadedObject, old: &Link) -> Result<(), CongestionError> {
    let (attached, log) = messages::capture(|| attach(loaded));
    if let Err(error) = attached.map(drop)
        && error.kind() != ErrorKind::AlreadyExists
    {
        return Err(load_refused(algorithm, &error.to_string(), log));
    }
    let map = loaded.operations().ok_or_else(|| missing_map(algorithm))?;
    link::update(old, &map).map_err(|error| load_refused(algorithm, &error.to_string(), String::new()))
}

fn pin_all(algorithm: &Algorithm, loaded: &LoadedObject, registered: Registration) -> Result<(), CongestionError> {
    pins::create_directory(algorithm.name)?;
    // The storages first: where the link is, everything is.
    pin_storages(algorithm, loaded)?;
    match registered {
        Registration::Link(mut link) => pins::pin_link(algorithm.name, &mut link),
        Registration::Map(mut map) => pins::pin_map(algorithm.name, &mut map),
        Registration::Shared(_) | Registration::Elsewhere => Ok(()),
    }
}

fn pin_storages(algorithm: &Algorithm, loaded: &LoadedObject) -> Result<(), CongestionError> {
    loaded.storages().try_for_each(|(kind, mut storage)| pins::pin_storage(algorithm.name, kind, &mut storage))
}

fn name_taken_by(name: &str) -> CongestionError {
    match presence::lookup(name).loaded_by {
        LoadedBy::Kernel => {
            name_taken(name, "by a control of the kernel or of another program, which the name selects")
        }
        LoadedBy::Pinned => name_taken(
            name,
            "by a control that `ekiden cc load` has loaded by another method: run `ekiden cc unload` first",
        ),
        LoadedBy::Held(processes) => {
            let holder = describe_processes(&processes);
            name_taken(
                name,
                &format!(
                    "{holder}: the control can be selected now, and is unloaded when the process ends; to keep the \
                     control, load it before the process starts"
                ),
            )
        }
        LoadedBy::Orphaned => {
            name_taken(name, &format!("by the remains of a killed process: `ekiden cc unload {name}` removes them"))
        }
        LoadedBy::Hidden | LoadedBy::NotLoaded => name_taken(name, "by a process that only root can see: run as root"),
    }
}

fn describe_processes(processes: &[u32]) -> String {
    let describe = |process: &u32| {
        let program = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        format!("{} (pid {process})", program.trim())
    };
    match processes {
        [] => "by a hidden process".to_owned(),
        processes => format!("by {}", processes.iter().map(describe).collect::<Vec<_>>().join(", ")),
    }
}

fn name_taken(name: &str, holder: &str) -> CongestionError {
    CongestionError::NameTaken { name: name.to_owned(), by: holder.to_owned() }
}

fn missing_map(algorithm: &Algorithm) -> CongestionError {
    load_refused(algorithm, "its object lacks a map", String::new())
}

fn load_refused(algorithm: &Algorithm, cause: &str, log: String) -> CongestionError {
    CongestionError::Refused { name: algorithm.name.to_owned(), cause: cause.to_owned(), log }
}

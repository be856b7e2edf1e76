//! The congestion controls of the kernel, and their loaders. The kernel reveals the names to every process, and the
//! loaders to root alone (`CAP_SYS_ADMIN`).

use std::collections::BTreeSet;
use std::fs;

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfo, MapInfoIter};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::catalogue::{self, CATALOGUE};
use super::object::{BPF_F_LINK, is_ours};
use super::pins::PinKind;
use crate::kernel::Capability;

const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// The loader of a congestion control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadedBy {
    /// It came with the kernel.
    Kernel,
    /// `ekiden cc load`; it stays until `ekiden cc unload`.
    Pinned,
    /// Processes that hold it; it goes when they end.
    Held(Vec<u32>),
    /// Registered the older way without a pin: its process was killed.
    Orphaned,
    /// Named like one of ekiden's; this process may not know the loader.
    Hidden,
    /// Not loaded; ekiden carries it.
    NotLoaded,
}

/// One congestion control on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControl {
    /// The name it is chosen by.
    pub name: String,
    /// Whether the kernel, ekiden or another program provides it.
    pub loaded_by: LoadedBy,
    /// Whether every process may choose it, without `CAP_NET_ADMIN`.
    pub is_unprivileged: bool,
    /// The purpose; empty for an unknown one.
    pub about: &'static str,
}

/// All that the kernel has and ekiden carries, by name.
#[must_use]
pub fn list() -> Vec<CongestionControl> {
    let names: BTreeSet<String> =
        read_words(AVAILABLE).into_iter().chain(CATALOGUE.iter().map(|algorithm| algorithm.name.to_owned())).collect();
    names.iter().map(|name| lookup(name)).collect()
}

/// Looks up one congestion control by its name.
#[must_use]
pub fn lookup(name: &str) -> CongestionControl {
    let has = |list| read_words(list).iter().any(|word| word == name);
    let origin = if has(AVAILABLE) { loaded_by(name) } else { LoadedBy::NotLoaded };
    CongestionControl {
        name: name.to_owned(),
        loaded_by: origin,
        is_unprivileged: has(ALLOWED),
        about: catalogue::about(name),
    }
}

fn read_words(file: &str) -> Vec<String> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn loaded_by(name: &str) -> LoadedBy {
    if PinKind::Link.path(name).exists() || PinKind::Map.path(name).exists() {
        return LoadedBy::Pinned;
    }
    if CATALOGUE.iter().all(|algorithm| algorithm.name != name) {
        return LoadedBy::Kernel;
    }
    if !Capability::SysAdmin.is_effective() {
        return LoadedBy::Hidden;
    }
    if let Some(link) = link_id(name) {
        return LoadedBy::Held(holders(link));
    }
    if orphaned_maps(name).is_empty() { LoadedBy::Kernel } else { LoadedBy::Orphaned }
}

/// The number of the link by which `name` is registered; root alone sees it.
pub(super) fn link_id(name: &str) -> Option<u32> {
    let maps: Vec<u32> = operations(name).map(|map| map.id).collect();
    LinkInfoIter::default().find_map(|link| match link.info {
        LinkTypeInfo::StructOps(info) if maps.contains(&info.map_id) => Some(link.id),
        _ => None,
    })
}

/// The maps by which `name` is registered the older way; root alone sees them.
pub(super) fn orphaned_maps(name: &str) -> Vec<MapHandle> {
    // BPF_STRUCT_OPS_STATE_INUSE, after a reference count (kernel/bpf/bpf_struct_ops.c); a deleted control that
    // connections still use is in another state.
    const IN_USE: [u8; 4] = 1_u32.to_ne_bytes();
    let registered = |map: &MapHandle| {
        map.lookup(&[0; 4], MapFlags::ANY).is_ok_and(|value| value.is_some_and(|value| value[4..8] == IN_USE))
    };
    operations(name)
        .filter(|map| map.map_flags & BPF_F_LINK == 0)
        .filter_map(|map| MapHandle::from_map_id(map.id).ok())
        .filter(registered)
        .collect()
}

fn operations(name: &str) -> impl Iterator<Item = MapInfo> {
    MapInfoIter::default()
        .filter(move |map| map.ty == MapType::StructOps && map.name.to_str().is_some_and(|map| is_ours(map, name)))
}

/// The processes that have a descriptor of link `number`, without this one (proc(5), fdinfo).
pub(super) fn holders(number: u32) -> Vec<u32> {
    let line = format!("link_id:\t{number}");
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    let holds = |process: &u32| {
        entries(format!("/proc/{process}/fdinfo"))
            .any(|file| fs::read_to_string(file.path()).is_ok_and(|text| text.lines().any(|one| one == line)))
    };
    let processes = entries("/proc".to_owned()).filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    processes.filter(|process| *process != std::process::id()).filter(holds).collect()
}

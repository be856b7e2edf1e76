//! Congestion controls that are pinned in the BPF file system.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_bpf::congestion::{
    LoadedBy, PIN_ROOT, PinOutcome, RegistrationMethod, ResumeMap, ResumePhase, ResumeRequest, TelemetryMap,
    UnloadOutcome, acquire, find, lookup, pin, unload,
};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter};
use libbpf_rs::{Link, MapType};

use crate::connection::{LoopbackConnection, run_with_bpf_mount};
use crate::name_lock::{RegistrationLock, wait_absent, wait_for};

fn link_of(name: &str) -> PathBuf {
    Path::new(PIN_ROOT).join("cc").join(name).join("link")
}

/// The ids of the pinned link and of its map.
fn link_and_map_ids(name: &str) -> (u32, u32) {
    let info = Link::open(link_of(name)).unwrap().info().unwrap();
    match info.info {
        LinkTypeInfo::StructOps(operations) => (info.id, operations.map_id),
        other => panic!("{other:?}"),
    }
}

fn operations(name: &str) -> Vec<u32> {
    let ours = MapInfoIter::default().filter(|map| map.ty == MapType::StructOps && map.name.to_str() == Some(name));
    ours.map(|map| map.id).collect()
}

#[test]
fn update_applies_to_new_connections_only() {
    if run_with_bpf_mount("pinned::update_applies_to_new_connections_only") {
        return;
    }
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    let algorithm = find(lock.name).unwrap();
    assert_eq!(pin(algorithm, None).unwrap(), PinOutcome::Loaded);
    let (link, first) = link_and_map_ids(lock.name);
    let mut old = LoopbackConnection::connect_with(lock.name);
    assert_eq!(pin(algorithm, None).unwrap(), PinOutcome::Updated);
    let (same, second) = link_and_map_ids(lock.name);
    assert_eq!(link, same, "the name was never free");
    assert_ne!(first, second);
    let mut new = LoopbackConnection::connect_with(lock.name);
    old.transfer(1 << 20);
    new.transfer(1 << 20);
    assert!(operations(lock.name).contains(&first), "the old connection keeps the old version");
    // Both versions of the control share one storage, so the update does not concern readers of the storage.
    let sections = TelemetryMap::pinned(lock.name).unwrap();
    for connection in [&old, &new] {
        sections.request_gamma(connection.near.as_fd(), 9, false).unwrap();
        assert_eq!(sections.read(connection.near.as_fd()).unwrap().gamma, 9);
    }
    assert_eq!(unload(lock.name).unwrap(), UnloadOutcome::Gone);
    wait_absent(lock.name);
    assert!(!Path::new(PIN_ROOT).exists(), "no pins are left");
    old.transfer(1 << 20);
    new.transfer(1 << 20);
    wait_for("the end of the link", || LinkInfoIter::default().all(|other| other.id != link).then_some(()));
}

#[test]
fn map_registration_is_pinned_updated_and_unloaded() {
    if run_with_bpf_mount("pinned::map_registration_is_pinned_updated_and_unloaded") {
        return;
    }
    let Some(lock) = RegistrationLock::acquire() else { return };
    let algorithm = find(lock.name).unwrap();
    assert_eq!(pin(algorithm, Some(RegistrationMethod::Map)).unwrap(), PinOutcome::Loaded);
    let mut old = LoopbackConnection::connect_with(lock.name);
    assert_eq!(pin(algorithm, Some(RegistrationMethod::Map)).unwrap(), PinOutcome::Updated);
    assert_eq!(lookup(lock.name).loaded_by, LoadedBy::Pinned);
    old.transfer(1 << 20);
    assert_eq!(unload(lock.name).unwrap(), UnloadOutcome::Gone);
    wait_absent(lock.name);
    old.transfer(1 << 20);
}

/// A relay uses the control that `ekiden cc load` has pinned, and an update of the control keeps the requests of
/// sockets.
#[test]
fn careful_resume_requests_use_the_pinned_map() {
    if run_with_bpf_mount("pinned::careful_resume_requests_use_the_pinned_map") {
        return;
    }
    let Some(lock) = RegistrationLock::acquire_named("cubicresume") else { return };
    let algorithm = find(lock.name).unwrap();
    assert_eq!(pin(algorithm, None).unwrap(), PinOutcome::Loaded);
    let connection = LoopbackConnection::connect_with(lock.name);
    let socket = connection.near.as_fd();
    let (jump_bytes, saved_rtt, lifetime) = (100_000, Duration::from_millis(9), Duration::from_secs(60));
    let request = ResumeRequest { jump_bytes, saved_rtt, lifetime };
    acquire(lock.name, None).unwrap().resumes.as_ref().unwrap().request(socket, &request).unwrap();
    assert_eq!(pin(algorithm, None).unwrap(), PinOutcome::Updated);
    let state = ResumeMap::pinned(lock.name).unwrap().state(socket);
    assert_eq!(state.unwrap().phase, ResumePhase::Waiting);
    assert_eq!(unload(lock.name).unwrap(), UnloadOutcome::Gone);
    assert!(ResumeMap::pinned(lock.name).is_none() && !Path::new(PIN_ROOT).exists(), "no pins are left");
    wait_absent(lock.name);
}

/// A relay must not lose the control that it uses while it runs.
#[test]
fn unpinned_control_lasts_until_its_holder_releases_it() {
    if run_with_bpf_mount("pinned::unpinned_control_lasts_until_its_holder_releases_it") {
        return;
    }
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    pin(find(lock.name).unwrap(), None).unwrap();
    let registration = acquire(lock.name, None).unwrap();
    assert_eq!(registration.loaded_by, LoadedBy::Pinned);
    assert!(registration.sections.is_some());
    std::fs::remove_file(link_of(lock.name)).unwrap();
    assert_eq!(lookup(lock.name).loaded_by, LoadedBy::Held(Vec::new()));
    drop(registration);
    wait_absent(lock.name);
}

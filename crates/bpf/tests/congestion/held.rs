//! Registrations held by this process, both ways; options and telemetry of connections.

use std::os::fd::AsFd;

use ekiden_bpf::congestion::{CongestionError, LoadedBy, RegistrationMethod, acquire, lookup, unload};

use crate::connection::{LoopbackConnection, listener_with, socket_with};
use crate::turn::{RegistrationLock, wait_absent, wait_for};

#[test]
fn it_is_there_while_it_is_held_and_connections_outlive_it() {
    let Some(turn) = RegistrationLock::acquire_linked() else { return };
    for way in [RegistrationMethod::Link, RegistrationMethod::Map] {
        let held = acquire(turn.name, Some(way)).unwrap();
        assert_eq!(held.loaded_by, LoadedBy::NotLoaded, "nobody had it before");
        assert!(lookup(turn.name).is_unprivileged, "everybody may choose it");
        let mut connection = LoopbackConnection::connect_with(turn.name);
        connection.transfer(1 << 20);
        drop(held);
        wait_absent(turn.name);
        connection.transfer(1 << 20);
        let socket = socket2::SockRef::from(&connection.near);
        assert!(socket.tcp_congestion().unwrap().starts_with(turn.name.as_bytes()), "{way:?}");
    }
}

#[test]
fn the_way_without_links_stays_behind_and_is_found_by_its_name() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    // As if the process had been killed: its destructors do not run.
    std::mem::forget(acquire(turn.name, Some(RegistrationMethod::Map)).unwrap());
    assert_eq!(lookup(turn.name).loaded_by, LoadedBy::Orphaned);
    // A later process uses the registration, and does not end it.
    drop(acquire(turn.name, None).unwrap());
    assert_eq!(lookup(turn.name).loaded_by, LoadedBy::Orphaned);
    socket_with(turn.name);
    unload(turn.name).unwrap();
    wait_absent(turn.name);
}

#[test]
fn who_holds_what_another_has_loaded_keeps_it() {
    let Some(turn) = RegistrationLock::acquire_linked() else { return };
    let first = acquire(turn.name, Some(RegistrationMethod::Link)).unwrap();
    let second = acquire(turn.name, None).unwrap();
    // By this very process; and for a moment by a child of it that has not become another program yet.
    assert!(matches!(second.loaded_by, LoadedBy::Held(_)), "{:?}", second.loaded_by);
    let ours_alone = || (lookup(turn.name).loaded_by == LoadedBy::Held(Vec::new())).then_some(());
    wait_for("the end of other holders", ours_alone);
    assert!(second.sections.is_none(), "its storage is the first one's");
    drop(first);
    socket_with(turn.name);
    let refused = unload(turn.name).unwrap_err();
    assert!(matches!(refused, CongestionError::NameTaken { .. }), "{refused}");
    drop(second);
    wait_absent(turn.name);
}

/// As relays do that start together.
#[test]
fn of_two_who_load_it_at_once_both_have_it() {
    let Some(turn) = RegistrationLock::acquire_linked() else { return };
    for _ in 0..5 {
        let both: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(|| acquire(turn.name, Some(RegistrationMethod::Link)).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let loaded = both.iter().filter(|held| held.loaded_by == LoadedBy::NotLoaded).count();
        assert_eq!(loaded, 1, "the other one has it from the first");
        drop(both);
        wait_absent(turn.name);
    }
}

/// The relay sets parameters on its listeners only because of this (BPF_F_CLONE).
#[test]
fn accepted_connections_inherit_what_their_listener_was_asked() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let held = acquire(turn.name, None).unwrap();
    let sections = held.sections.as_ref().unwrap();
    let listener = listener_with(turn.name);
    sections.request_gamma(listener.as_fd(), 17, true).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let inherited = sections.read(accepted.as_fd()).unwrap();
    assert_eq!((inherited.gamma, inherited.auto_gamma), (17, true));
    assert_eq!(sections.read(near.as_fd()), None, "the other end was asked nothing");
    sections.request_gamma(accepted.as_fd(), 5, false).unwrap();
    assert_eq!(sections.read(accepted.as_fd()).unwrap().gamma, 5);
    assert_eq!(sections.read(listener.as_fd()).unwrap().gamma, 17, "each has its own");
}

#[test]
fn a_connection_tells_what_it_is_at() {
    let Some(_turn) = RegistrationLock::acquire_named("ctcp") else { return };
    let held = acquire("ctcp", None).unwrap();
    let sections = held.sections.as_ref().unwrap();
    let mut connection = LoopbackConnection::connect_with("ctcp");
    sections.request_gamma(connection.near.as_fd(), 21, false).unwrap();
    for _ in 0..20 {
        connection.transfer(1 << 20);
    }
    let told = sections.read(connection.near.as_fd()).unwrap();
    assert_eq!((told.gamma, told.gamma_now), (21, 21), "{told:?}");
    assert!(told.rounds > 0 && told.window >= 2 && told.rtt_us >= told.base_rtt_us, "{told:?}");
    assert!(told.base_rtt_us > 0 && told.base_rtt_us < 1_000_000, "{told:?}");
    assert_eq!(told.timeouts, 0, "{told:?}");
}

#[test]
fn a_name_that_nobody_knows_is_told_with_the_one_that_was_meant() {
    let unknown = acquire("ctpc", None).unwrap_err().to_string();
    assert!(unknown.contains("perhaps ctcp?"), "{unknown}");
}

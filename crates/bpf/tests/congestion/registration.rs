//! Registrations that this process holds, by both methods, and the parameters and telemetry of connections.

use std::os::fd::AsFd;

use ekiden_bpf::congestion::{CongestionError, LoadedBy, RegistrationMethod, acquire, lookup, unload};

use crate::connection::{LoopbackConnection, listener_with, socket_with};
use crate::name_lock::{RegistrationLock, wait_absent, wait_for};

#[test]
fn registration_lasts_while_held_and_connections_outlive_it() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    for method in [RegistrationMethod::Link, RegistrationMethod::Map] {
        let registration = acquire(lock.name, Some(method)).unwrap();
        assert_eq!(registration.loaded_by, LoadedBy::NotLoaded, "the control had no earlier holder");
        assert!(lookup(lock.name).is_unprivileged, "every user may select the control");
        let mut connection = LoopbackConnection::connect_with(lock.name);
        connection.transfer(1 << 20);
        drop(registration);
        wait_absent(lock.name);
        connection.transfer(1 << 20);
        let socket = socket2::SockRef::from(&connection.near);
        assert!(socket.tcp_congestion().unwrap().starts_with(lock.name.as_bytes()), "{method:?}");
    }
}

#[test]
fn map_registration_outlives_its_process_and_is_found_by_name() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    // As if the process had been killed: its destructors do not run.
    std::mem::forget(acquire(lock.name, Some(RegistrationMethod::Map)).unwrap());
    assert_eq!(lookup(lock.name).loaded_by, LoadedBy::Orphaned);
    // A later process uses the registration, and leaves it in place.
    drop(acquire(lock.name, None).unwrap());
    assert_eq!(lookup(lock.name).loaded_by, LoadedBy::Orphaned);
    socket_with(lock.name);
    unload(lock.name).unwrap();
    wait_absent(lock.name);
}

#[test]
fn second_holder_keeps_the_registration_of_the_first() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    let first = acquire(lock.name, Some(RegistrationMethod::Link)).unwrap();
    let second = acquire(lock.name, None).unwrap();
    // A child process between fork and exec may be another holder for a moment.
    assert!(matches!(second.loaded_by, LoadedBy::Held(_)), "{:?}", second.loaded_by);
    let ours_alone = || (lookup(lock.name).loaded_by == LoadedBy::Held(Vec::new())).then_some(());
    wait_for("the end of other holders", ours_alone);
    assert!(second.sections.is_none(), "the storage belongs to the first holder");
    drop(first);
    socket_with(lock.name);
    let refused = unload(lock.name).unwrap_err();
    assert!(matches!(refused, CongestionError::NameTaken { .. }), "{refused}");
    drop(second);
    wait_absent(lock.name);
}

/// As when two relays start at the same time.
#[test]
fn concurrent_loads_share_one_registration() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    for _ in 0..5 {
        let both: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(|| acquire(lock.name, Some(RegistrationMethod::Link)).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let loaded = both.iter().filter(|registration| registration.loaded_by == LoadedBy::NotLoaded).count();
        assert_eq!(loaded, 1, "exactly one thread loads the control");
        drop(both);
        wait_absent(lock.name);
    }
}

/// The relay sets parameters on its listeners and relies on this inheritance (BPF_F_CLONE).
#[test]
fn accepted_connections_inherit_the_parameters_of_their_listener() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let registration = acquire(lock.name, None).unwrap();
    let sections = registration.sections.as_ref().unwrap();
    let listener = listener_with(lock.name);
    sections.request_gamma(listener.as_fd(), 17, true).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let inherited = sections.read(accepted.as_fd()).unwrap();
    assert_eq!((inherited.gamma, inherited.auto_gamma), (17, true));
    assert_eq!(sections.read(near.as_fd()), None, "the other end has no parameters");
    sections.request_gamma(accepted.as_fd(), 5, false).unwrap();
    assert_eq!(sections.read(accepted.as_fd()).unwrap().gamma, 5);
    assert_eq!(sections.read(listener.as_fd()).unwrap().gamma, 17, "each socket has its own parameters");
}

#[test]
fn ctcp_connection_reports_its_telemetry() {
    let Some(_lock) = RegistrationLock::acquire_named("ctcp") else { return };
    let registration = acquire("ctcp", None).unwrap();
    let sections = registration.sections.as_ref().unwrap();
    let mut connection = LoopbackConnection::connect_with("ctcp");
    sections.request_gamma(connection.near.as_fd(), 21, false).unwrap();
    for _ in 0..20 {
        connection.transfer(1 << 20);
    }
    let telemetry = sections.read(connection.near.as_fd()).unwrap();
    assert_eq!((telemetry.gamma, telemetry.gamma_now), (21, 21), "{telemetry:?}");
    assert!(
        telemetry.rounds > 0 && telemetry.window >= 2 && telemetry.rtt_us >= telemetry.base_rtt_us,
        "{telemetry:?}"
    );
    assert!(telemetry.base_rtt_us > 0 && telemetry.base_rtt_us < 1_000_000, "{telemetry:?}");
    assert_eq!(telemetry.timeouts, 0, "{telemetry:?}");
}

#[test]
fn unknown_name_error_suggests_the_nearest_name() {
    let unknown = acquire("ctpc", None).unwrap_err().to_string();
    assert!(unknown.contains("perhaps ctcp?"), "{unknown}");
}

//! Held by this process, both ways; what connections are told and tell.

use std::os::fd::AsFd;

use ekiden_bpf::congestion::{CongestionError, Origin, Way, hold, presence, unload};

use crate::connection::{Connection, choosing, listener};
use crate::turn::{Turn, absent, eventually};

#[test]
fn it_is_there_while_it_is_held_and_connections_outlive_it() {
    let Some(turn) = Turn::take() else { return };
    for way in [Way::Link, Way::Map] {
        let held = hold(turn.name, Some(way)).unwrap();
        assert_eq!(held.origin, Origin::NotLoaded, "nobody had it before");
        assert!(presence(turn.name).free, "everybody may choose it");
        let mut connection = Connection::under(turn.name);
        connection.carries(1 << 20);
        drop(held);
        absent(turn.name);
        connection.carries(1 << 20);
        let socket = socket2::SockRef::from(&connection.near);
        assert!(socket.tcp_congestion().unwrap().starts_with(turn.name.as_bytes()), "{way:?}");
    }
}

#[test]
fn the_way_without_links_stays_behind_and_is_found_by_its_name() {
    let Some(turn) = Turn::take() else { return };
    // As if the process had been killed: its destructors do not run.
    std::mem::forget(hold(turn.name, Some(Way::Map)).unwrap());
    assert_eq!(presence(turn.name).origin, Origin::Left);
    // Who comes later uses it, and does not take it along.
    drop(hold(turn.name, None).unwrap());
    assert_eq!(presence(turn.name).origin, Origin::Left);
    choosing(turn.name);
    unload(turn.name).unwrap();
    absent(turn.name);
}

#[test]
fn who_holds_what_another_has_loaded_keeps_it() {
    let Some(turn) = Turn::take() else { return };
    let first = hold(turn.name, Some(Way::Link)).unwrap();
    let second = hold(turn.name, None).unwrap();
    // By this very process; and for a moment by a child of it that has not become another program yet.
    assert!(matches!(second.origin, Origin::Held(_)), "{:?}", second.origin);
    let ours_alone = || (presence(turn.name).origin == Origin::Held(Vec::new())).then_some(());
    eventually("the end of other holders", ours_alone);
    assert!(second.sections.is_none(), "its storage is the first one's");
    drop(first);
    choosing(turn.name);
    let refused = unload(turn.name).unwrap_err();
    assert!(matches!(refused, CongestionError::Taken { .. }), "{refused}");
    drop(second);
    absent(turn.name);
}

/// As relays do that start together.
#[test]
fn of_two_who_load_it_at_once_both_have_it() {
    let Some(turn) = Turn::take() else { return };
    for _ in 0..5 {
        let both: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| hold(turn.name, Some(Way::Link)).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let loaded = both.iter().filter(|held| held.origin == Origin::NotLoaded).count();
        assert_eq!(loaded, 1, "the other one has it from the first");
        drop(both);
        absent(turn.name);
    }
}

/// The relay sets parameters on its listeners only because of this (BPF_F_CLONE).
#[test]
fn accepted_connections_inherit_what_their_listener_was_asked() {
    let Some(turn) = Turn::take() else { return };
    let held = hold(turn.name, None).unwrap();
    let sections = held.sections.as_ref().unwrap();
    let listener = listener(turn.name);
    sections.ask(listener.as_fd(), 17, true).unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let inherited = sections.read(accepted.as_fd()).unwrap();
    assert_eq!((inherited.gamma, inherited.auto_gamma), (17, true));
    assert_eq!(sections.read(near.as_fd()), None, "the other end was asked nothing");
    sections.ask(accepted.as_fd(), 5, false).unwrap();
    assert_eq!(sections.read(accepted.as_fd()).unwrap().gamma, 5);
    assert_eq!(sections.read(listener.as_fd()).unwrap().gamma, 17, "each has its own");
}

#[test]
fn a_connection_tells_what_it_is_at() {
    let Some(_turn) = Turn::of("ctcp") else { return };
    let held = hold("ctcp", None).unwrap();
    let sections = held.sections.as_ref().unwrap();
    let mut connection = Connection::under("ctcp");
    sections.ask(connection.near.as_fd(), 21, false).unwrap();
    for _ in 0..20 {
        connection.carries(1 << 20);
    }
    let told = sections.read(connection.near.as_fd()).unwrap();
    assert_eq!((told.gamma, told.gamma_now), (21, 21), "{told:?}");
    assert!(told.rounds > 0 && told.window >= 2 && told.rtt_us >= told.base_rtt_us, "{told:?}");
    assert!(told.base_rtt_us > 0 && told.base_rtt_us < 1_000_000, "{told:?}");
    assert_eq!(told.timeouts, 0, "{told:?}");
}

#[test]
fn a_name_that_nobody_knows_is_told_with_the_one_that_was_meant() {
    let unknown = hold("ctpc", None).unwrap_err().to_string();
    assert!(unknown.contains("perhaps ctcp?"), "{unknown}");
}

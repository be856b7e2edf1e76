//! A relay is killed, or hangs, in each state of its sessions: clients receive an error or a reset, never an end of
//! stream, and new sessions succeed after the relay has returned.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};

use crate::harness::*;
use crate::interceptor::*;
use crate::relays::*;
use crate::streams::*;

fn layout(relays: usize, encrypt: bool, mode: &str) -> Layout {
    let listener_keys = format!("kind = \"auto\"\nconnect = \"{mode}\"\n");
    let home = "[timeouts]\nconnect = \"5s\"\n".to_owned();
    Layout { relays, encrypt, listener_keys, home, ..Layout::default() }
}

fn chain(relays: usize, encrypt: bool, mode: &str) -> Chain {
    layout(relays, encrypt, mode).start()
}

/// Kills a relay with SIGKILL, and starts it again at the same address.
fn kill_and_restart(chain: &mut Chain, at: usize, encrypt: bool) {
    let count = chain.relays.len();
    drop(chain.relays.remove(at - 1));
    chain.relays.insert(at - 1, layout(count, encrypt, "strict").relay(&chain.sites, at));
}

/// Checks that ten sessions succeed.
fn check_sessions(home: SocketAddr, target: SocketAddr) {
    for number in 0..10 {
        let client = socks5(home, target);
        let mut client = client.unwrap_or_else(|code| panic!("session {number} failed with {code}"));
        assert_echo(&mut client);
    }
}

#[test]
fn sessions_work_after_a_relay_with_ready_connections_is_killed() {
    for encrypt in [false, true] {
        let mut chain = chain(3, encrypt, "strict");
        let target = echo_server();
        check_sessions(chain.home.address(), target);
        for at in 1..=3 {
            let address = chain.sites[at].address;
            eventually("a ready connection", || (connections_to(address) > 0).then_some(()));
            kill_and_restart(&mut chain, at, encrypt);
            check_sessions(chain.home.address(), target);
        }
        eventually("the end of all sessions", || chain.home.sessions().is_empty().then_some(()));
    }
}

/// A receiver must be able to tell partial data from complete data.
#[test]
fn kill_during_a_transfer_resets_the_receiver() {
    for encrypt in [false, true] {
        for at in 1..=3 {
            let mut chain = chain(3, encrypt, "strict");
            let (mut client, server) = chain.pair();
            let writer = flood(&server);
            read_exactly(&mut client, 1_000_000);
            kill_and_restart(&mut chain, at, encrypt);
            assert_eq!(read_remaining(&mut client).1, Ending::Reset, "relay {at} of 3, encrypt = {encrypt}");
            join(writer);
            check_sessions(chain.home.address(), echo_server());

            let (client, mut server) = chain.pair();
            let writer = flood(&client);
            read_exactly(&mut server, 1_000_000);
            kill_and_restart(&mut chain, at, encrypt);
            assert_eq!(read_remaining(&mut server).1, Ending::Reset, "relay {at} of 3, encrypt = {encrypt}");
            join(writer);
        }
    }
}

#[test]
fn kill_during_an_idle_session_resets_both_ends() {
    for encrypt in [false, true] {
        for at in 1..=3 {
            let mut chain = chain(3, encrypt, "strict");
            let (mut client, mut server) = chain.pair();
            exchange_messages(&mut client, &mut server);
            kill_and_restart(&mut chain, at, encrypt);
            assert!(is_reset(&mut client), "the client, relay {at} of 3, encrypt = {encrypt}");
            assert!(is_reset(&mut server), "the server, relay {at} of 3, encrypt = {encrypt}");
        }
    }
}

/// Only the client has sent FIN; the open direction must end with a reset.
#[test]
fn kill_during_a_half_closed_session_is_a_reset() {
    for encrypt in [false, true] {
        for at in 1..=3 {
            let mut chain = chain(3, encrypt, "strict");
            let (mut client, mut server) = chain.pair();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut server), b"");
            server.write_all(b"only the beginning").unwrap();
            assert_eq!(read_exactly(&mut client, 18), b"only the beginning");
            kill_and_restart(&mut chain, at, encrypt);
            assert!(is_reset(&mut client), "relay {at} of 3, encrypt = {encrypt}");
        }
    }
}

/// Kills relay `at` of two while OPEN is unanswered, because the far relay is stopped.
fn check_kill_before_the_answer(at: usize, encrypt: bool, mode: &str) {
    let mut chain = chain(2, encrypt, mode);
    let target = echo_server();
    check_sessions(chain.home.address(), target);
    eventually("the end of all sessions", || chain.relays[0].sessions().is_empty().then_some(()));
    chain.relays[1].stop();
    let home = chain.home.address();
    let asking = std::thread::spawn(move || socks5(home, target));
    let opened = |relay: &Relay| relay.sessions().iter().any(|session| session["target"].is_string()).then_some(());
    eventually("the arrival of OPEN", || opened(&chain.relays[0]));
    drop(chain.relays.remove(at - 1));
    match join(asking) {
        Ok(mut client) if mode == "early" => assert!(is_reset(&mut client)),
        outcome => assert_eq!(outcome.map(|_| ()), Err(1), "relay {at} of 2, {mode}"),
    }
    if at == 1 {
        chain.relays[0].signal("CONT");
    }
    chain.relays.insert(at - 1, layout(2, encrypt, mode).relay(&chain.sites, at));
    check_sessions(home, target);
}

#[test]
fn kill_before_the_answer_fails_the_session() {
    for at in [1, 2] {
        for encrypt in [false, true] {
            check_kill_before_the_answer(at, encrypt, "strict");
        }
        check_kill_before_the_answer(at, false, "early");
    }
}

/// A client's bytes reach the server at most once: when the connection breaks, the delivered part is unknown, so
/// nothing is sent again.
#[test]
fn unanswered_client_data_is_not_sent_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    for mode in ["early", "strict"] {
        let openings = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&openings);
        // OPEN with the data is forwarded; the answer is replaced by a reset.
        let reset_answer = move |frame: Frame| match (frame.direction, frame.number) {
            (Direction::Up, 1) => {
                counted.fetch_add(1, Ordering::Relaxed);
                forward_unchanged(frame)
            }
            (Direction::Down, 1) => FrameAction::Reset,
            _ => forward_unchanged(frame),
        };
        let (listener, target) = server();
        let listener_keys = format!("kind = \"tcp\"\ntarget = \"{target}\"\nconnect = \"{mode}\"\n");
        let layout = Layout { listener_keys, ..Layout::default() };
        let mut chain = layout.start_through(|address| start_interceptor(address, Framed::Plain, reset_answer));
        let mut client = chain.home.connect();
        client.write_all(b"pay 100").unwrap();
        let mut server = accept(&listener);
        let (received, _) = read_remaining(&mut server);
        assert!(b"pay 100".starts_with(&received[..]), "{received:?}");
        assert!(is_reset(&mut client), "{mode}");
        chain.home.closed();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "a second session was opened");
        assert_eq!(openings.load(Ordering::Relaxed), 1, "OPEN was sent again");
    }
}

/// The kernel accepts connections for a stopped relay, which sends nothing.
#[test]
fn hanging_relay_times_out_at_the_connect_deadline() {
    for ready in [false, true] {
        let home = "[timeouts]\nconnect = \"2s\"\n".to_owned();
        let mut chain = Layout { home, ..Layout::default() }.start();
        let target = echo_server();
        if ready {
            assert_echo(&mut socks5(chain.home.address(), target).unwrap());
            chain.home.closed();
            eventually("a ready connection", || (connections_to(chain.sites[1].address) > 0).then_some(()));
        }
        chain.relays[0].stop();
        assert_eq!(socks5(chain.home.address(), target).map(|_| ()), Err(6), "ready = {ready}");
        assert_eq!(chain.home.closed()["end"], "timed_out");
        chain.relays[0].signal("CONT");
        eventually("a session after the stop", || socks5(chain.home.address(), target).ok());
    }
}

/// No session may remain on the other relays.
#[test]
fn kill_of_the_home_relay_resets_both_ends() {
    for encrypt in [false, true] {
        let chain = chain(2, encrypt, "strict");
        let (mut client, mut server) = chain.pair();
        exchange_messages(&mut client, &mut server);
        let Chain { home, mut relays, sites: _sites } = chain;
        drop(home);
        assert!(is_reset(&mut client) && is_reset(&mut server));
        for relay in &mut relays {
            let closed = session_closed(relay);
            assert_eq!(closed["end"], "reset_by_client");
            eventually("all sessions to end", || relay.sessions().is_empty().then_some(()));
        }
    }
}

use std::future::Future;
use std::task::{Context, Poll, Waker};

use super::*;

fn source(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn is_evicted(permit: &UnprovenPermit) -> bool {
    pin!(permit.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// A claimed address and the address itself are different parties, and so are two addresses.
#[test]
fn a_client_has_its_own_places() {
    let admission = Arc::new(Admission::default());
    let enter = |client| admission.enter_client(client, Some(2));
    let (one, other) = (Client::Address(source(1)), Client::Address(source(2)));
    let (first, second) = (enter(one).unwrap(), enter(one).unwrap().enter());
    assert!(enter(one).is_none());
    assert!(enter(other).is_some() && enter(Client::Peer(PublicKey([1; 32]))).is_some());
    assert!(admission.enter_client(one, None).is_some(), "no limit");
    drop(second);
    let second = enter(one).unwrap();
    assert!(enter(one).is_none());
    drop((first, second));
    assert!(admission.clients().is_empty(), "a returned place leaves no entry");
    assert_eq!(admission.sessions(), 0);
}

/// A client without a place in total keeps its place for the client, and returns that place once.
#[test]
fn a_session_has_two_places_and_gives_back_both() {
    let admission = Arc::new(Admission::default());
    let client = |last| admission.enter_client(Client::Address(source(last)), Some(1)).unwrap();
    let session = client(1).try_enter(1).unwrap();
    let waits = client(2).try_enter(1).unwrap_err();
    assert_eq!((admission.sessions(), admission.clients().len()), (1, 2));
    let accepted = waits.enter();
    assert_eq!(admission.sessions(), 2, "a connection that was accepted is not refused");
    drop(session);
    drop(client(1).try_enter(1).unwrap_err());
    drop(accepted);
    assert_eq!((admission.sessions(), admission.clients().len()), (0, 0));
}

#[test]
fn the_end_of_a_session_wakes_those_that_wait() {
    let admission = Arc::new(Admission::default());
    let client = |last| admission.enter_client(Client::Address(source(last)), None).unwrap();
    let session = client(1).enter();
    let mut context = Context::from_waker(Waker::noop());
    let (mut listener, mut opened) = (Box::pin(admission.wait_below(1)), Box::pin(client(2).enter_below(1)));
    assert!(listener.as_mut().poll(&mut context).is_pending());
    assert!(opened.as_mut().poll(&mut context).is_pending());
    drop(session);
    assert!(listener.as_mut().poll(&mut context).is_ready());
    let Poll::Ready(session) = opened.as_mut().poll(&mut context) else { panic!("it waits for nothing") };
    assert_eq!(admission.sessions(), 1);
    // One that gives up while it waits leaves nothing behind.
    let mut opened = Box::pin(client(3).enter_below(1));
    assert!(opened.as_mut().poll(&mut context).is_pending());
    drop((opened, session));
    assert_eq!((admission.sessions(), admission.clients().len()), (0, 0));
}

#[test]
fn the_oldest_idle_connection_of_a_source_makes_room() {
    let admission = Arc::new(Admission::default());
    let enter = |last| admission.enter_pending(source(last), 10).unwrap();
    let (elsewhere, all) = (enter(9), [(); 4].map(|()| enter(1)));
    elsewhere.idle(Some(2));
    // In whatever order they become idle, the youngest stay.
    for at in [1, 0, 3, 2, 3] {
        all[at].idle(Some(2));
    }
    assert_eq!(all.each_ref().map(is_evicted), [true, true, false, false]);
    assert!(!is_evicted(&elsewhere));
    assert_eq!(admission.connections(), 3);
    all[0].idle(Some(2));
    drop(all);
    assert_eq!(admission.connections(), 1, "an evicted connection has nothing to give back");
    drop(elsewhere);
    assert!(admission.pending().unproven.is_empty());
}

#[test]
fn the_source_with_most_unproven_connections_makes_room() {
    let admission = Arc::new(Admission::default());
    let enter = |last| admission.enter_pending(source(last), 4);
    let all = [enter(1), enter(2), enter(2), enter(3), enter(4), enter(5)].map(Option::unwrap);
    // The first of address 2, which has two; then the oldest of those that have one each.
    assert_eq!(all.each_ref().map(is_evicted), [true, true, false, false, false, false]);
    assert_eq!(admission.connections(), 4);
}

/// A host has all addresses of its /64.
#[test]
fn addresses_of_one_ipv6_network_are_one_source() {
    let admission = Arc::new(Admission::default());
    let enter = |text: &str| admission.enter_pending(text.parse().unwrap(), 4).unwrap();
    let relay = [enter("2001:db8:1::1"), enter("2001:db8:1::1")];
    let crowd = ["2001:db8:2::1", "2001:db8:2::2", "2001:db8:2::3", "2001:db8:2::4"].map(enter);
    assert_eq!(relay.each_ref().map(is_evicted), [true, false]);
    assert_eq!(crowd.each_ref().map(is_evicted), [true, false, false, false]);
}

#[test]
fn a_proven_connection_is_not_evicted() {
    let admission = Arc::new(Admission::default());
    let enter = || admission.enter_pending(source(1), 2);
    let (first, second) = (enter().unwrap(), enter().unwrap());
    let first = first.prove().unwrap();
    let third = enter().unwrap();
    assert!(is_evicted(&second) && second.prove().is_none());
    let third = third.prove().unwrap();
    assert!(enter().is_none(), "all are proven");
    assert_eq!(admission.connections(), 2);
    drop((first, third));
    assert_eq!(admission.connections(), 0);
}

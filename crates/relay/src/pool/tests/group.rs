//! Groups: the order of members, and probes.

use std::net::Ipv4Addr;
use std::time::Instant;

use ekiden_proto::balance::Balance;

use super::*;
use crate::config::RelayGroup;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Time for which a member that has refused a session is tried last, as in `proto::balance`.
const REFUSAL_PAUSE: Duration = Duration::from_secs(1);

/// Starts the pools of a group with these members, and waits until each is full or its relay is down.
fn start_group(members: Vec<Arc<Hop>>) -> (Arc<Hop>, TestPools) {
    let Hop { kind, address, profile, .. } = &*members[0];
    let (name, kind, address, profile) = ("osaka".into(), kind.clone(), address.clone(), Arc::clone(profile));
    let group = Some(RelayGroup { balance: Balance::Least, members });
    let group = Arc::new(Hop { name, kind, address, profile, group });
    let test = TestPools::start(&config(&[&group]));
    wait_until("the pools of all members", || test.pools.views().iter().all(|view| view.ready == 2 || !view.up));
    (group, test)
}

/// Returns the order of the members after `prepare`. Slow members are tried last, as are members that have refused a
/// session in the last second. On a busy machine both may change in between; then the function tries again.
fn order_after<T>(test: &TestPools, group: &Arc<Hop>, prepare: impl Fn() -> T) -> Vec<Arc<Hop>> {
    eventually("an order without delay", || {
        let began = Instant::now();
        let _prepared = prepare();
        let has_slow = || test.pools.views().iter().any(|view| view.slow);
        let order = (!has_slow()).then(|| test.pools.order(group, CLIENT));
        order.filter(|_| !has_slow() && began.elapsed() < REFUSAL_PAUSE)
    })
}

#[test]
fn a_session_tries_the_member_with_fewer_sessions_first() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, test) = start_group(relays.iter().map(hop_to).collect());
    let [first, second] = group.members() else { panic!("{group:?}") };
    let _session = test.pools.start_session(first).unwrap();
    assert_eq!(order_after(&test, &group, || ()), [Arc::clone(second), Arc::clone(first)]);
    let more = || [(); 2].map(|()| test.pools.start_session(second).unwrap());
    assert_eq!(order_after(&test, &group, more), [Arc::clone(first), Arc::clone(second)]);
}

#[test]
fn a_session_tries_a_member_that_is_down_last() {
    let relay = TestRelay::start();
    // This relay ends at once.
    let unreachable = hop_to(&TestRelay::start());
    let (group, test) = start_group(vec![unreachable, hop_to(&relay)]);
    let [unreachable, first] = group.members() else { panic!("{group:?}") };
    let _session = test.pools.start_session(first).unwrap();
    assert_eq!(test.pools.order(&group, CLIENT), [Arc::clone(first), Arc::clone(unreachable)]);
    assert!(test.pools.is_down(unreachable) && !test.pools.is_down(&group), "one member is enough");
}

#[test]
fn member_that_refused_a_session_is_tried_last() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, test) = start_group(relays.iter().map(hop_to).collect());
    let [first, second] = group.members() else { panic!("{group:?}") };
    let _session = test.pools.start_session(first).unwrap();
    let refuse = || {
        let refused = test.pools.start_session(second).unwrap();
        refused.on_answer(None);
        refused.on_refusal();
    };
    assert_eq!(order_after(&test, &group, refuse), [Arc::clone(first), Arc::clone(second)]);
}

/// The other member, which has no session, is not probed.
#[test]
fn member_with_an_unanswered_session_is_probed() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, test) = start_group(relays.iter().map(hop_to).collect());
    let session = test.pools.start_session(&group.members()[1]).unwrap();
    assert_eq!(test.pools.views()[1].sessions, 1);
    // On a busy machine the first answer may be late.
    wait_until("answers to two probes", || relays[1].handshakes() >= 4 && !test.pools.views()[1].slow);
    assert_eq!(relays[0].handshakes(), 2);
    session.on_answer(None);
    drop(session);
    assert_eq!(test.pools.views()[1].sessions, 0);
}

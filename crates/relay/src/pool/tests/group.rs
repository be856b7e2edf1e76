//! Groups: the order of members, and probes.

use std::net::Ipv4Addr;

use ekiden_proto::balance::Balance;

use super::*;
use crate::config::RelayGroup;

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Pools of a group at these addresses.
fn serving(members: Vec<Arc<Hop>>) -> (Arc<Hop>, TestPools) {
    let Hop { kind, address, profile, .. } = &*members[0];
    let (name, kind, address, profile) = ("osaka".into(), kind.clone(), address.clone(), Arc::clone(profile));
    let group = Some(RelayGroup { balance: Balance::Least, members });
    let group = Arc::new(Hop { name, kind, address, profile, group });
    let kept = TestPools::serving(&config(&[&group]));
    wait_until("all pools", || kept.pools.views().iter().all(|view| view.ready == 2 || !view.up));
    (group, kept)
}

/// On a busy machine the first answer of a member may come late, and slow members come last.
fn wait_until_none_is_slow(kept: &TestPools) {
    wait_until("members without delay", || kept.pools.views().iter().all(|view| !view.slow));
}

#[test]
fn a_session_tries_the_member_with_fewer_sessions_first() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, kept) = serving(relays.iter().map(hop_to).collect());
    let [first, second] = group.members() else { panic!("{group:?}") };
    wait_until_none_is_slow(&kept);
    let _session = kept.pools.start_session(first).unwrap();
    assert_eq!(kept.pools.order(&group, CLIENT), [Arc::clone(second), Arc::clone(first)]);
    let _more = [(); 2].map(|()| kept.pools.start_session(second).unwrap());
    assert_eq!(kept.pools.order(&group, CLIENT), [Arc::clone(first), Arc::clone(second)]);
}

#[test]
fn a_session_tries_a_member_that_is_down_last() {
    let relay = TestRelay::start();
    let nobody = section("nobody", SocketAddr::from(([127, 0, 0, 1], 1)), own_key().public_key(), &own_key());
    let (group, kept) = serving(vec![nobody, hop_to(&relay)]);
    let [nobody, first] = group.members() else { panic!("{group:?}") };
    let _session = kept.pools.start_session(first).unwrap();
    assert_eq!(kept.pools.order(&group, CLIENT), [Arc::clone(first), Arc::clone(nobody)]);
    assert!(kept.pools.is_down(nobody) && !kept.pools.is_down(&group), "one member is enough");
}

#[test]
fn a_session_tries_a_member_that_has_just_refused_one_last() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, kept) = serving(relays.iter().map(hop_to).collect());
    let [first, second] = group.members() else { panic!("{group:?}") };
    wait_until_none_is_slow(&kept);
    let _session = kept.pools.start_session(first).unwrap();
    let refused = kept.pools.start_session(second).unwrap();
    refused.on_answer(None);
    refused.on_refusal();
    drop(refused);
    assert_eq!(kept.pools.order(&group, CLIENT), [Arc::clone(first), Arc::clone(second)]);
}

/// Only the member of a session without an answer: the others have nothing to prove.
#[test]
fn a_member_that_owes_an_answer_is_probed() {
    let relays = [TestRelay::start(), TestRelay::start()];
    let (group, kept) = serving(relays.iter().map(hop_to).collect());
    let session = kept.pools.start_session(&group.members()[1]).unwrap();
    assert_eq!(kept.pools.views()[1].sessions, 1);
    // On a busy machine the first answer may come late.
    wait_until("answers to two probes", || relays[1].made() >= 4 && !kept.pools.views()[1].slow);
    assert_eq!(relays[0].made(), 2);
    session.on_answer(None);
    drop(session);
    assert_eq!(kept.pools.views()[1].sessions, 0);
}

//! The events of relays that go down and come back.

use std::sync::mpsc;
use std::time::Instant;

use super::*;

#[test]
fn a_relay_that_is_away_is_told_of_once_and_filled_when_it_is_back() {
    let relay = TestRelay::start();
    let (address, key) = (relay.address, Arc::clone(&relay.key));
    let hop = hop_to(&relay);
    drop(relay);
    let kept = TestPools::serving(&config(&[&hop]));
    wait_until("the first failures", || kept.pools.is_down(&hop));
    assert!(kept.pools.take(&hop, false).is_none());
    kept.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    let relay = TestRelay::at(address, key);
    wait_until("it is back", || !kept.pools.is_down(&hop));
    wait_until("a full pool", || kept.view().ready >= kept.view().wanted);
    assert_works(&mut kept.pools.take(&hop, false).unwrap(), &relay);
    drop(relay);
    wait_until("it is away again", || kept.events().len() == 3);
    let events = kept.events();
    assert_eq!(events[..2], ["osaka down refused None", "osaka up"]);
    // The interrupted step differs: the connect, or the handshake.
    assert!(events[2].starts_with("osaka down"), "{events:?}");
    wait_until("the end of what was ready", || kept.view().ready == 0);
    assert!(!kept.view().up, "{:?}", kept.view());
}

#[test]
fn what_is_told_last_is_what_is_so() {
    let hop = hop_to(&TestRelay::start());
    let told = Arc::new(Mutex::new(Vec::new()));
    let (begun, begins) = mpsc::channel();
    let list = Arc::clone(&told);
    let pools = Pools::new(counts(), move |event| {
        let is_up = matches!(event, Event::RelayReachable { .. });
        if is_up {
            begun.send(()).unwrap();
            // Time for the other one to come first.
            let began = Instant::now();
            while list.lock().unwrap().len() == 1 && began.elapsed() < Duration::from_millis(100) {
                std::thread::yield_now();
            }
        }
        list.lock().unwrap().push(if is_up { "up" } else { "down" });
    });
    pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 0), MOST).unwrap();
    let fails = || pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    fails();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            begins.recv().unwrap();
            fails();
        });
        pools.record_attempt(&hop, None);
    });
    assert_eq!(*told.lock().unwrap(), ["down", "up", "down"]);
}

#[test]
fn a_session_that_reaches_it_ends_the_pause() {
    let relay = TestRelay::start();
    let stranger = section("osaka", relay.address, own_key().public_key(), &own_key());
    let kept = TestPools::serving(&config(&[&stranger]));
    let down = "osaka down denied_by_hop Some(\"refused: it has another key than the one configured here\")";
    wait_until("the refusal", || kept.events() == [down]);
    kept.pools.record_attempt(&stranger, None);
    // The keeper, which does no better than before, tries at once.
    wait_until("another refusal", || kept.events() == [down, "osaka up", down]);
    let hop = hop_to(&relay);
    kept.pools.serve(&config(&[&hop]), MOST).unwrap();
    kept.wait_for_ready(2);
    assert!(!kept.pools.is_down(&hop) && !kept.pools.is_down(&stranger), "one is up, the other unknown");
}

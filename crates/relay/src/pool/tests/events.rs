//! Events of relays that become unreachable or reachable.

use std::sync::mpsc;
use std::time::Instant;

use super::*;

#[test]
fn unreachable_relay_is_reported_once_and_its_pool_is_refilled() {
    let relay = TestRelay::start();
    let (address, key) = (relay.address, Arc::clone(&relay.key));
    let hop = hop_to(&relay);
    drop(relay);
    let test = TestPools::start(&config(&[&hop]));
    wait_until("the relay to be unreachable", || test.pools.is_down(&hop));
    assert!(test.pools.take(&hop, false).is_none());
    test.pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    let relay = TestRelay::at(address, key);
    wait_until("the relay to be reachable", || !test.pools.is_down(&hop));
    wait_until("a full pool", || test.view().ready >= test.view().wanted);
    assert_decrypted(&mut test.pools.take(&hop, false).unwrap(), &relay);
    drop(relay);
    wait_until("the third event", || test.events().len() == 3);
    let events = test.events();
    assert_eq!(events[..2], ["osaka down refused None", "osaka up"]);
    // The cause depends on the interrupted step, which is the connect or the handshake.
    assert!(events[2].starts_with("osaka down"), "{events:?}");
    wait_until("the end of the ready connections", || test.view().ready == 0);
    assert!(!test.view().up, "{:?}", test.view());
}

#[test]
fn last_event_matches_the_final_state() {
    let hop = hop_to(&TestRelay::start());
    let events = Arc::new(Mutex::new(Vec::new()));
    let (up_sender, up_receiver) = mpsc::channel();
    let list = Arc::clone(&events);
    let pools = Pools::new(pool_metrics(), move |event| {
        let is_up = matches!(event, Event::RelayReachable { .. });
        if is_up {
            up_sender.send(()).unwrap();
            // Gives the other thread up to 100 ms to emit its event before this one.
            let began = Instant::now();
            while list.lock().unwrap().len() == 1 && began.elapsed() < Duration::from_millis(100) {
                std::thread::yield_now();
            }
        }
        list.lock().unwrap().push(if is_up { "up" } else { "down" });
    });
    pools.serve(&config_with(&[&hop], |config| config.limits.ready_connections = 0), MOST).unwrap();
    let fail = || pools.record_attempt(&hop, Some(&DialError::at_hop(Cause::Refused, &hop)));
    fail();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            up_receiver.recv().unwrap();
            fail();
        });
        pools.record_attempt(&hop, None);
    });
    assert_eq!(*events.lock().unwrap(), ["down", "up", "down"]);
}

#[test]
fn successful_session_ends_the_retry_delay() {
    let relay = TestRelay::start();
    let wrong_key = section("osaka", relay.address, own_key().public_key(), &own_key());
    let test = TestPools::start(&config(&[&wrong_key]));
    let down = "osaka down denied_by_hop Some(\"refused: its key is not the configured key\")";
    wait_until("the refused handshake", || test.events() == [down]);
    test.pools.record_attempt(&wrong_key, None);
    // The keeper retries at once, and fails again.
    wait_until("the second refused handshake", || test.events() == [down, "osaka up", down]);
    let hop = hop_to(&relay);
    test.pools.serve(&config(&[&hop]), MOST).unwrap();
    test.wait_for_ready(2);
    assert!(!test.pools.is_down(&hop) && !test.pools.is_down(&wrong_key), "one is up, the other unknown");
}

//! Jumps in time: all timers of a process that was stopped for a while, as on a suspended machine, expire at once when
//! the process continues.

use std::time::{Duration, Instant};

use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// Stops a relay for `span`. The passage of time is tested, so there is no event to wait for.
fn suspend(relay: &Relay, span: Duration) {
    relay.stop();
    pause_until(Instant::now() + span);
    relay.signal("CONT");
}

const SLEEP: Duration = Duration::from_millis(1200);

/// Timeouts shorter than [`SLEEP`], except those that sessions need.
const SHORT: &str = "[timeouts]\nready_age = \"200ms\"\nhandshake = \"1s\"\nkept_idle = \"200ms\"\n";

#[test]
fn sessions_and_pools_survive_a_sleep() {
    for encrypt in [false, true] {
        let (home, far) = (SHORT.to_owned(), SHORT.to_owned());
        let mut chain = Layout { encrypt, home, far, ..Layout::default() }.start();
        let target = echo_server();
        let (mut client, mut server) = chain.pair();
        assert_echo(&mut socks5(chain.home.address(), target).unwrap());
        for at in [0, 1] {
            suspend(if at == 0 { &chain.home } else { &chain.relays[0] }, SLEEP);
            exchange_messages(&mut client, &mut server);
            for number in 0..5 {
                let outcome = socks5(chain.home.address(), target);
                let mut fresh = outcome.unwrap_or_else(|code| panic!("session {number} failed with {code}"));
                assert_echo(&mut fresh);
            }
        }
        transfer_both_ways(client, server, 200_000, 200_000);
        assert_eq!(chain.home.next(|event| event["bytes_up"] == 200_016)["end"], "finished");
    }
}

/// The transfer stops during the sleep and continues afterwards.
#[test]
fn a_transfer_survives_a_sleep() {
    for encrypt in [false, true] {
        let chain = Chain::start_with(1, encrypt);
        let (mut client, server) = chain.pair();
        let writer = send(&server, pattern(4_000_000));
        let mut received = read_exactly(&mut client, 1_000_000);
        suspend(&chain.relays[0], SLEEP);
        received.extend(read_all(&mut client));
        assert!(received == pattern(4_000_000), "bytes were changed");
        join(writer);
    }
}

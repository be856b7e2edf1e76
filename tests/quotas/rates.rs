//! Rate limits: accuracy within 2 % over a minute, sharing between flows, and the ends of rate-limited flows.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use crate::fixture::*;
use crate::harness::*;
use crate::programs::is_any_missing;

/// The configured rate, in bits per second.
const RATE: f64 = 10e6;

const LIMITED: &str = "[user.alice]\nrate = \"10Mbit/s\"\n";

/// Returns the time of a measurement: 60 s in virtual time, 10 s in real time.
fn span() -> Duration {
    if is_virtual() { Duration::from_secs(60) } else { Duration::from_secs(10) }
}

/// Asserts that `rate` is within 2 % of the rate `limit`. In real time 20 % less is accepted, because the relay may not
/// get the CPU in time.
fn assert_rate(rate: f64, limit: f64) {
    let share = rate / limit;
    let expected: RangeInclusive<f64> = if is_virtual() { 0.98..=1.02 } else { 0.8..=1.02 };
    assert!(expected.contains(&share), "{share} of {limit} bit/s");
}

/// Waits until each of these byte counts exceeds 100,000. Returns their rates during the following [`span`], in bit/s.
fn measure<const N: usize>(counts: [&dyn Fn() -> u64; N]) -> [f64; N] {
    eventually("the start of all transfers", || counts.iter().all(|count| count() > 100_000).then_some(()));
    let (begun, before) = (Instant::now(), counts.map(|count| count()));
    pause_until(begun + span());
    let (seconds, after) = (begun.elapsed().as_secs_f64(), counts.map(|count| count()));
    std::array::from_fn(|at| (after[at] - before[at]) as f64 * 8.0 / seconds)
}

/// The sessions of a user share one rate over all listeners and threads, and do not delay other users.
#[test]
fn user_rate_is_shared_by_all_listeners_and_threads() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let fixture = Fixture::new(&format!("{LIMITED}[user.bob]\nrate = \"20Mbit/s\"\n{LISTENER}{LISTENER}"));
    let start = |user| [0, 1].map(|index| fixture.start_endless(user, index));
    let (alice, bob) = (start("alice"), start("bob"));
    let [first, second, third, fourth] =
        measure([&|| alice[0].bytes(), &|| alice[1].bytes(), &|| bob[0].bytes(), &|| bob[1].bytes()]);
    assert_rate(first + second, RATE);
    assert_rate(third + fourth, 2.0 * RATE);
    // The turns of the two sessions alternate, so each session has half of the rate.
    assert!((0.9..1.1).contains(&(first / second)), "{first} and {second} bit/s");
}

/// The rate applies to each direction separately. The rates of the listener and the user both apply.
#[test]
fn both_directions_have_the_rate_of_the_listener() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let text = format!("[user.alice]\nrate = \"1Gbit/s\"\n{LISTENER}rate = \"10Mbit/s\"\nname = \"door\"\n");
    let fixture = Fixture::new(&text);
    let download = fixture.start_endless("alice", 0);
    let _upload = fixture.start_upload("alice", 0);
    let sent = || fixture.account("user", "alice")["bytes_up"].as_u64().unwrap();
    let [down, up] = measure([&|| download.bytes(), &sent]);
    assert_rate(down, RATE);
    assert_rate(up, RATE);
}

#[test]
fn a_reload_changes_the_rate_of_running_sessions() {
    if is_any_missing(&["curl"]) {
        return;
    }
    let mut fixture = Fixture::new(&format!("{LIMITED}{LISTENER}"));
    let download = fixture.start_endless("alice", 0);
    let rate = || measure([&|| download.bytes()])[0];
    assert_rate(rate(), RATE);
    let limit = fixture.relay.sessions()[0]["limits"]["down"].clone();
    assert_eq!((&limit["section"], &limit["by"]), (&"relay".into(), &"rate_limit".into()), "{limit}");
    fixture.reload(&format!("[user.\"*\"]\nrate = \"2Mbit/s\"\n{LISTENER}"));
    let new_rate = || fixture.account("user", "alice")["rate_bits_per_second"] == 2_000_000;
    eventually("the new rate", || new_rate().then_some(()));
    // Bytes that arrived at the old rate may still be in the client's receive buffer.
    let sent = fixture.relay.sessions()[0]["bytes_down"].as_u64().unwrap();
    eventually("the bytes at the old rate", || (download.bytes() >= sent).then_some(()));
    assert_rate(rate(), RATE / 5.0);
}

/// Length of a response body in bytes. The body arrives with the head, so the pump does not read it.
const SMALL_ANSWER: usize = 3000;

/// Response bodies that arrive with their head are rate-limited, and leave a part of the rate to a tunnel.
#[test]
fn small_answers_share_the_rate_with_a_tunnel() {
    let relay = Relay::listen(&["auto://127.0.0.1:0?rate=1Mbit/s"]);
    let endless = serve(|mut stream| while stream.write_all(&[7; 65_536]).is_ok() {});
    let answering = serve(|mut stream| {
        let mut head = [0; 4096];
        while let Ok(1..) = stream.read(&mut head) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {SMALL_ANSWER}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), &pattern(SMALL_ANSWER)].concat()).unwrap();
        }
    });
    let mut client = relay.connect();
    let mut exchange = || {
        let head = format!("GET http://{answering}/ HTTP/1.1\r\nHost: {answering}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        read_head(&mut client);
        assert!(read_exactly(&mut client, SMALL_ANSWER) == pattern(SMALL_ANSWER));
    };
    let begun = Instant::now();
    (0..60).for_each(|_| exchange());
    // 180,000 bytes at 1 Mbit/s take 1.44 s, less the burst of 100 ms. The heads are less than 4000 bytes, 32 ms.
    let earliest = Duration::from_millis(1340);
    assert_within(begun.elapsed(), earliest..=Duration::from_millis(1480), earliest..=TEST_TIMEOUT);

    let mut tunnel = socks5(relay.address(), endless).unwrap();
    let reading = std::thread::spawn(move || while let Ok(1..) = tunnel.read(&mut [0; 65_536]) {});
    let tunnelled = || relay.sessions().iter().map(|session| session["bytes_down"].as_u64().unwrap()).min().unwrap();
    eventually("a tunnel at its rate", || (tunnelled() > 20_000).then_some(()));
    let before = tunnelled();
    (0..20).for_each(|_| exchange());
    assert!(tunnelled() - before > 10_000, "{} bytes beside 60,000 of answers", tunnelled() - before);
    drop(relay);
    join(reading);
}

/// Bytes that arrive together with the head of CONNECT count toward the rate.
#[test]
fn early_bytes_of_connect_are_rate_limited() {
    let (listener, target) = server();
    let relay = Relay::listen(&["auto://127.0.0.1:0?rate=8kbit/s"]);
    let begun = Instant::now();
    for _ in 0..4 {
        let mut client = relay.connect();
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        client.write_all(&[head.as_bytes(), &[7; 500]].concat()).unwrap();
        read_exactly(&mut accept(&listener), 500);
    }
    // The last request waits for the 1500 bytes before it, less the burst of 100 ms, which is shorter if the relay has
    // just started. The timer of each turn may be late.
    let earliest = Duration::from_millis(1400);
    assert_within(begun.elapsed(), earliest..=Duration::from_millis(1510), earliest..=TEST_TIMEOUT);
}

/// After a half-close by the client, its remaining bytes arrive at the rate, and the server can still send.
#[test]
fn half_close_of_a_rate_limited_flow_is_clean() {
    let (listener, target) = server();
    let url = format!("tcp://127.0.0.1:0/{target}?rate=1Mbit/s");
    let relay = Relay::listen(&[&url]);
    let mut client = relay.connect();
    let mut server = accept(&listener);
    let (sent, answered) = (pattern(200_000), pattern(50_000));
    let begun = Instant::now();
    let sending = {
        let (mut client, sent) = (client.try_clone().unwrap(), sent.clone());
        std::thread::spawn(move || {
            client.write_all(&sent).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
        })
    };
    assert!(read_all(&mut server) == sent);
    // 200,000 bytes at 1 Mbit/s take 1.6 s, less the burst of 100 ms. The timer of each turn may be late.
    let exact = Duration::from_millis(1500)..=Duration::from_millis(1610);
    assert_within(begun.elapsed(), exact, Duration::from_millis(1500)..=TEST_TIMEOUT);
    join(sending);
    server.write_all(&answered).unwrap();
    drop(server);
    let (received, ending) = read_remaining(&mut client);
    assert!(received == answered && ending == Ending::Clean);
}

/// A session that waits for its turn must still detect a reset: at 8 kbit/s a turn of 512 bytes takes 0.5 s, and a turn
/// after a large read takes minutes.
#[test]
fn reset_ends_a_rate_limited_session_at_once() {
    let (listener, target) = server();
    let url = format!("tcp://127.0.0.1:0/{target}?rate=8kbit/s");
    let mut relay = Relay::listen(&[&url]);
    // The turns of 40 sessions are queued one after the other.
    let mut pairs: Vec<_> = (0..40).map(|_| (relay.connect(), accept(&listener))).collect();
    for (client, _) in &mut pairs {
        client.write_all(&[7; 10_000]).unwrap();
    }
    let moved = || relay.sessions().iter().map(|session| session["bytes_up"].as_u64().unwrap()).sum::<u64>();
    eventually("a second turn", || (moved() > 512).then_some(()));
    let begun = Instant::now();
    for (client, _) in pairs.drain(..) {
        reset(client);
    }
    for closed in relay.all_closed(40, "session") {
        assert_eq!(closed["end"], "reset_by_client");
    }
    assert_within(
        begun.elapsed(),
        Duration::ZERO..=Duration::from_millis(100),
        Duration::ZERO..=Duration::from_secs(10),
    );
}

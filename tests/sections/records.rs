//! Records of the smallest and the largest size, and those that nobody takes.

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::between::*;
use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// A length and as many bytes: the longest that the two bytes of it can say.
const LONGEST: usize = 2 + 65_535;

/// The one that ends a stream: a length, nothing, and its tag.
const END: usize = 2 + 16;

/// An encrypted session, and the sizes of the records that went down; the last one is that of the end.
#[test]
fn the_longest_record_crosses_and_the_shortest_is_the_end() {
    let (site, home) = (Site::new(), Site::new());
    let peers = site.admit(&[(&home.key.public, "home")]);
    let mut relay = site.relay("", &format!("peers = {peers:?}\nencrypt = true\n"));
    let (longest, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (Arc::clone(&longest), Arc::clone(&last));
    let middle = between(site.address, Framed::Encrypted, move |frame| {
        // Behind the hello and the answer; other connections only wait.
        if frame.way == Way::Down && frame.number > 1 {
            seen.0.fetch_max(frame.bytes.len(), Ordering::Relaxed);
            seen.1.store(frame.bytes.len(), Ordering::Relaxed);
        }
        untouched(frame)
    });
    let settings = site.table_at(middle, "far", "encrypt = true\n") + &everything_by("way", &["far".to_owned()]);
    let at_home = home.home(&settings, AUTO);
    let (client, server) = pair(&at_home);
    exchange(client, server, 1, 16_000_000);
    assert_eq!(session_closed(&mut relay)["end"], "finished");
    assert_eq!((longest.load(Ordering::Relaxed), last.load(Ordering::Relaxed)), (LONGEST, END));
}

/// Whoever stops reading holds back the sender, through all that is encrypted; what waits, waits in the kernel.
#[test]
fn a_peer_that_stops_reading_holds_back_the_sender_and_costs_no_memory() {
    let chain = Chain::of_kind(2, true);
    let (mut client, server) = chain.pair();
    let all: Vec<&Relay> = [&chain.home].into_iter().chain(&chain.relays).collect();
    let before: Vec<u64> = all.iter().map(|relay| relay.resident_kib()).collect();
    server.set_nonblocking(true).unwrap();
    let block = pattern(1 << 16);
    let (mut written, mut stuck_for) = (0, 0);
    // Until nothing more fits anywhere: the writer has been refused for a second.
    while stuck_for < 100 {
        let at = written % block.len();
        match (&server).write(&block[at..]) {
            Ok(count) => (written, stuck_for) = (written + count, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stuck_for += 1;
                std::thread::park_timeout(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 500 << 20, "nobody holds the writer back");
    }
    for (relay, before) in all.iter().zip(before) {
        let growth = relay.resident_kib().saturating_sub(before);
        assert!(growth < 2048, "{growth} KiB of a relay's own memory for one peer that does not read");
    }
    drop(server);
    let heard = read_all(&mut client);
    assert!(heard.iter().eq(block.iter().cycle().take(written)), "{} bytes of {written}", heard.len());
}

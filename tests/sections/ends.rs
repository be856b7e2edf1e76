//! FIN, RST and urgent data cross three relays unchanged, and records of the smallest and largest sizes do.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden_sys::outq::unacknowledged;
use socket2::SockRef;

use super::between::*;
use super::harness::*;
use super::relays::*;
use super::streams::*;

/// A pair through three relays, plain and encrypted.
fn each(check: impl Fn(&mut Chain, TcpStream, TcpStream)) {
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(3, encrypt);
        let (client, server) = chain.pair();
        check(&mut chain, client, server);
    }
}

fn all_end_by(chain: &mut Chain, home: &str, others: &str) {
    assert_eq!(chain.home.closed()["end"], home);
    for relay in &mut chain.relays {
        assert_eq!(session_closed(relay)["end"], others);
    }
}

#[test]
fn a_client_that_has_said_all_still_hears_the_answer() {
    each(|chain, mut client, mut server| {
        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"question");
        let answer = send(&server, pattern(200_000));
        assert!(read_all(&mut client) == pattern(200_000));
        join(answer);
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn a_server_that_has_said_all_still_hears_the_client() {
    each(|chain, mut client, mut server| {
        server.write_all(b"greeting").unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut client), b"greeting");
        let reply = send(&client, pattern(200_000));
        assert!(read_all(&mut server) == pattern(200_000));
        join(reply);
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn an_end_without_a_byte_is_an_end() {
    each(|chain, mut client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear_out(&mut server), (vec![], Ending::Clean));
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear_out(&mut client), (vec![], Ending::Clean));
        all_end_by(chain, "finished", "finished");
    });
}

#[test]
fn a_reset_travels_up() {
    each(|chain, mut client, mut server| {
        talk(&mut client, &mut server);
        reset(client);
        assert!(is_reset(&mut server));
        all_end_by(chain, "reset_by_client", "reset_by_client");
    });
}

#[test]
fn a_reset_travels_down() {
    each(|chain, mut client, mut server| {
        talk(&mut client, &mut server);
        reset(server);
        assert!(is_reset(&mut client));
        all_end_by(chain, "reset_by_server", "reset_by_server");
    });
}

/// In the middle of a transfer, with bytes in flight everywhere: received data are a prefix of sent data.
#[test]
fn a_reset_in_the_middle_of_a_transfer_is_no_end() {
    each(|_, mut client, mut server| {
        let writer = pour(&server);
        assert!(read_exactly(&mut client, 1_000_000) == pattern_blocks(1_000_000));
        reset(client);
        assert!(is_reset_pouring(&mut server, writer));
    });
    each(|_, mut client, mut server| {
        let writer = pour(&client);
        assert!(read_exactly(&mut server, 1_000_000) == pattern_blocks(1_000_000));
        reset(server);
        assert!(is_reset_pouring(&mut client, writer));
    });
}

/// The bytes that [`pour`] sends.
fn pattern_blocks(count: usize) -> Vec<u8> {
    pattern(65_536).into_iter().cycle().take(count).collect()
}

/// After its own end a client may still be gone for good, and every relay on the way has to notice.
#[test]
fn a_reset_after_an_end_is_seen_by_all() {
    each(|chain, client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
        reset(client);
        // Reading goes on saying "end of stream"; the socket itself knows (EPIPE in CLOSE-WAIT, tcp(7)).
        eventually("the reset", || server.take_error().unwrap());
        all_end_by(chain, "reset_by_client", "reset_by_client");
    });
}

/// Sends the bytes, of which the one at `mark` is urgent.
fn send_urgent(stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    stream.write_all(&bytes[..mark]).unwrap();
    assert_eq!(SockRef::from(&*stream).send_out_of_band(&bytes[mark..=mark]).unwrap(), 1);
    stream.write_all(&bytes[mark + 1..]).unwrap();
}

/// The relay that the sender speaks to is stopped meanwhile, and finds all bytes at once when it goes on.
fn sent_together(relay: &Relay, stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    relay.stop();
    send_urgent(stream, bytes, mark);
    eventually("all bytes to arrive", || (unacknowledged(stream.as_fd()).unwrap() == 0).then_some(()));
    relay.signal("CONT");
}

#[test]
fn what_is_behind_an_urgent_byte_crosses_relays() {
    for encrypt in [false, true] {
        let mut chain = Chain::of_kind(2, encrypt);
        let (mut client, mut server) = chain.pair();
        for before in [0, 300_000] {
            let writers = [&client, &server].map(|stream| {
                let mut stream = stream.try_clone().unwrap();
                std::thread::spawn(move || stream.write_all(&pattern(before)).unwrap())
            });
            assert!(read_exactly(&mut server, before) == pattern(before));
            assert!(read_exactly(&mut client, before) == pattern(before));
            writers.into_iter().for_each(join);
            let bytes = pattern(1000);
            for mark in [0, 500, 999] {
                sent_together(&chain.home, &mut client, &bytes, mark);
                assert!(read_exactly(&mut server, 1000) == bytes, "up, encrypt = {encrypt}, mark at {mark}");
                sent_together(&chain.relays[1], &mut server, &bytes, mark);
                assert!(read_exactly(&mut client, 1000) == bytes, "down, encrypt = {encrypt}, mark at {mark}");
            }
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
        drop(server);
        assert_eq!(read_all(&mut client), b"");
        assert_eq!(chain.home.closed()["end"], "finished");
    }
}

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

/// A receiver that stops reading stops the sender, through all encryption; the bytes wait in the kernel.
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

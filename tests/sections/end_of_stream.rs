//! FIN, RST and urgent data across chains of relays, and records of the smallest and the largest size.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden_sys::outq::unacknowledged;
use socket2::SockRef;

use super::harness::*;
use super::interceptor::*;
use super::relays::*;
use super::streams::*;

/// Runs `check` on a session through three relays, plain and encrypted.
fn for_each_chain(check: impl Fn(&mut Chain, TcpStream, TcpStream)) {
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(3, encrypt);
        let (client, server) = chain.pair();
        check(&mut chain, client, server);
    }
}

fn check_ends(chain: &mut Chain, home: &str, others: &str) {
    assert_eq!(chain.home.closed()["end"], home);
    for relay in &mut chain.relays {
        assert_eq!(session_closed(relay)["end"], others);
    }
}

#[test]
fn half_closed_client_receives_the_answer() {
    for_each_chain(|chain, mut client, mut server| {
        exchange_half_closed(&mut client, &mut server);
        check_ends(chain, "finished", "finished");
    });
}

#[test]
fn half_closed_server_receives_the_client_data() {
    for_each_chain(|chain, mut client, mut server| {
        exchange_half_closed(&mut server, &mut client);
        check_ends(chain, "finished", "finished");
    });
}

#[test]
fn empty_streams_end_cleanly() {
    for_each_chain(|chain, mut client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_remaining(&mut server), (vec![], Ending::Clean));
        server.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_remaining(&mut client), (vec![], Ending::Clean));
        check_ends(chain, "finished", "finished");
    });
}

#[test]
fn client_reset_reaches_the_server() {
    for_each_chain(|chain, mut client, mut server| {
        exchange_messages(&mut client, &mut server);
        reset(client);
        assert!(is_reset(&mut server));
        check_ends(chain, "reset_by_client", "reset_by_client");
    });
}

#[test]
fn server_reset_reaches_the_client() {
    for_each_chain(|chain, mut client, mut server| {
        exchange_messages(&mut client, &mut server);
        reset(server);
        assert!(is_reset(&mut client));
        check_ends(chain, "reset_by_server", "reset_by_server");
    });
}

/// Bytes are in flight on every section; the data received before the reset must be a prefix of the sent data.
#[test]
fn reset_during_a_transfer_stays_a_reset() {
    for_each_chain(|_, mut client, mut server| {
        let writer = flood(&server);
        assert!(read_exactly(&mut client, 1_000_000) == pattern_blocks(1_000_000));
        reset(client);
        assert!(is_reset_while_flooding(&mut server, writer));
    });
    for_each_chain(|_, mut client, mut server| {
        let writer = flood(&client);
        assert!(read_exactly(&mut server, 1_000_000) == pattern_blocks(1_000_000));
        reset(server);
        assert!(is_reset_while_flooding(&mut client, writer));
    });
}

/// The first `count` bytes that [`flood`] sends.
fn pattern_blocks(count: usize) -> Vec<u8> {
    pattern(65_536).into_iter().cycle().take(count).collect()
}

/// A client may reset the connection after its FIN, and every relay on the path detects the reset.
#[test]
fn reset_after_fin_reaches_the_server_and_all_relays() {
    for_each_chain(|chain, client, mut server| {
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_all(&mut server), b"");
        reset(client);
        // In CLOSE-WAIT, reads still return the end of the stream; the reset is the socket's error (EPIPE, tcp(7)).
        eventually("the reset", || server.take_error().unwrap());
        check_ends(chain, "reset_by_client", "reset_by_client");
    });
}

/// Sends `bytes`, of which the byte at `mark` is urgent.
fn send_urgent(stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    stream.write_all(&bytes[..mark]).unwrap();
    assert_eq!(SockRef::from(&*stream).send_out_of_band(&bytes[mark..=mark]).unwrap(), 1);
    stream.write_all(&bytes[mark + 1..]).unwrap();
}

/// Sends while the relay next to the sender is stopped, so that all bytes are in its receive buffer when it continues.
fn send_while_stopped(relay: &Relay, stream: &mut TcpStream, bytes: &[u8], mark: usize) {
    relay.stop();
    send_urgent(stream, bytes, mark);
    eventually("all bytes in the receive buffer", || (unacknowledged(stream.as_fd()).unwrap() == 0).then_some(()));
    relay.signal("CONT");
}

#[test]
fn bytes_after_an_urgent_byte_cross_relays() {
    for encrypt in [false, true] {
        let mut chain = Chain::start_with(2, encrypt);
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
                send_while_stopped(&chain.home, &mut client, &bytes, mark);
                assert!(read_exactly(&mut server, 1000) == bytes, "up, encrypt = {encrypt}, mark at {mark}");
                send_while_stopped(&chain.relays[1], &mut server, &bytes, mark);
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

/// Length of the longest record in bytes: a length field of two bytes, and its maximum.
const LONGEST: usize = 2 + 65_535;

/// Length of the record that ends a stream, in bytes: a length field and a tag.
const END: usize = 2 + 16;

/// An interceptor reads the sizes of the records toward the client; the last record marks the end of the stream.
#[test]
fn longest_record_crosses_and_empty_record_is_the_end() {
    let (longest, last) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = (Arc::clone(&longest), Arc::clone(&last));
    let record = move |frame: Frame| {
        // Frames after the hello and the answer to OPEN, which ready connections do not have.
        if frame.direction == Direction::Down && frame.number > 1 {
            seen.0.fetch_max(frame.bytes.len(), Ordering::Relaxed);
            seen.1.store(frame.bytes.len(), Ordering::Relaxed);
        }
        forward_unchanged(frame)
    };
    let layout = Layout { encrypt: true, ..Layout::default() };
    let mut chain = layout.start_through(|address| start_interceptor(address, Framed::Encrypted, record));
    let (client, server) = chain.pair();
    transfer_both_ways(client, server, 1, 16_000_000);
    assert_eq!(session_closed(&mut chain.relays[0])["end"], "finished");
    assert_eq!((longest.load(Ordering::Relaxed), last.load(Ordering::Relaxed)), (LONGEST, END));
}

/// Back pressure crosses encrypted sections: unread bytes wait in kernel buffers, not in the memory of relays.
#[test]
fn stalled_receiver_stops_the_sender_without_memory_growth() {
    let chain = Chain::start_with(2, true);
    let (mut client, server) = chain.pair();
    let all: Vec<&Relay> = [&chain.home].into_iter().chain(&chain.relays).collect();
    let before: Vec<u64> = all.iter().map(|relay| relay.resident_kib()).collect();
    server.set_nonblocking(true).unwrap();
    let block = pattern(1 << 16);
    let (mut written, mut stuck_for) = (0, 0);
    // All buffers are full when the writer has been blocked for one second, 100 times 10 ms.
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
        assert!(written < 500 << 20, "no back pressure reaches the writer");
    }
    assert!(written > 1 << 20, "the writer was blocked after {written} bytes, less than all buffers hold");
    for (relay, before) in all.iter().zip(before) {
        let growth = relay.resident_kib().saturating_sub(before);
        assert!(growth < 2048, "{growth} KiB of relay memory for one peer that does not read");
    }
    drop(server);
    let received = read_all(&mut client);
    assert!(received.iter().eq(block.iter().cycle().take(written)), "{} bytes of {written}", received.len());
}

//! Bytes, ends of streams, resets and backpressure, observed at the client's and the server's end of a session.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod harness;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness::*;
use socket2::SockRef;

/// Waits until all bytes of `stream` have been sent.
fn wait_sent(stream: &TcpStream) {
    let unsent = || ekiden_sys::pacing::send_counters(stream.as_fd()).unwrap().unsent;
    eventually("the departure of all bytes", || (unsent() == 0).then_some(()));
}

#[test]
fn bytes_arrive_in_order_across_the_switch_to_splice() {
    for size in [0, 1, 65_535, 65_536, 65_537, 300_000, 20_000_000] {
        let (mut relay, mut client, mut server) = relay_with_connection();
        let sent = pattern(size);
        let expected = sent.clone();
        let writer = std::thread::spawn(move || server.write_all(&sent).unwrap());
        client.shutdown(Shutdown::Write).unwrap();
        assert!(read_all(&mut client) == expected, "{size} bytes were changed");
        join(writer);
        drop(client);
        let closed = relay.closed();
        assert_eq!((&closed["end"], &closed["bytes_down"]), (&"finished".into(), &size.into()));
        let spliced = closed["bytes_spliced"].as_u64().unwrap();
        // The relay switches to splice(2) after 64 KiB to 128 KiB, depending on the sizes of its reads.
        assert!(size > 65_536 || spliced == 0, "{spliced} of {size} bytes were spliced");
        assert!(size < 131_072 || spliced > 0, "none of {size} bytes was spliced");
    }
}

#[test]
fn simultaneous_transfers_in_both_directions_are_complete() {
    let (mut relay, mut client, mut server) = relay_with_connection();
    let (up, down) = (pattern(8_000_000), pattern(7_000_000));
    let (expected_up, expected_down) = (up.clone(), down.clone());
    let mut client_writes = client.try_clone().unwrap();
    let mut server_writes = server.try_clone().unwrap();
    let writers = [
        std::thread::spawn(move || {
            client_writes.write_all(&up).unwrap();
            client_writes.shutdown(Shutdown::Write).unwrap();
        }),
        std::thread::spawn(move || {
            server_writes.write_all(&down).unwrap();
            server_writes.shutdown(Shutdown::Write).unwrap();
        }),
    ];
    let reader = std::thread::spawn(move || read_all(&mut server));
    assert!(read_all(&mut client) == expected_down);
    assert!(join(reader) == expected_up);
    writers.into_iter().for_each(join);
    drop(client);
    let closed = relay.closed();
    assert_eq!((&closed["bytes_up"], &closed["bytes_down"]), (&8_000_000.into(), &7_000_000.into()));
}

#[test]
fn half_closed_client_receives_the_answer() {
    let (mut relay, mut client, mut server) = relay_with_connection();
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"question");
    server.write_all(b"answer").unwrap();
    drop(server);
    assert_eq!(read_all(&mut client), b"answer");
    drop(client);
    assert_eq!(relay.closed()["end"], "finished");
}

#[test]
fn half_closed_server_receives_the_client_bytes() {
    let (mut relay, mut client, mut server) = relay_with_connection();
    server.write_all(b"greeting").unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client), b"greeting");
    client.write_all(b"reply").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"reply");
    assert_eq!(relay.closed()["end"], "finished");
}

#[test]
fn reset_is_forwarded_as_a_reset_in_both_directions() {
    let (mut relay, client, mut server) = relay_with_connection();
    reset(client);
    assert!(is_reset(&mut server));
    assert_eq!(relay.closed()["end"], "reset_by_client");

    let (mut relay, mut client, mut server) = relay_with_connection();
    // When a byte has passed through the relay, its connect(2) has returned. An earlier reset is a failed connect.
    server.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut client, 1), b"x");
    reset(server);
    assert!(is_reset(&mut client));
    assert_eq!(relay.closed()["end"], "reset_by_server");
}

/// Regression: after the client's FIN the relay does not read from the client any more, and did not detect its reset.
#[test]
fn reset_after_half_close_is_forwarded() {
    let (mut relay, client, mut server) = relay_with_connection();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut server), b"");
    reset(client);
    // Reads still return the end of the stream; only SO_ERROR shows the reset (EPIPE in CLOSE-WAIT, tcp(7)).
    eventually("the reset", || server.take_error().unwrap());
    assert_eq!(relay.closed()["end"], "reset_by_client");
}

/// Regression: under load the kernel of a server answered a late acknowledgement with a reset, after all bytes and FIN.
/// The relay forwarded the reset at once, which discarded bytes that were queued for a slow client.
#[test]
fn reset_after_eof_does_not_discard_queued_bytes() {
    let (mut relay, mut client, mut server) = relay_with_connection();
    // The bytes exceed the receive buffer of the client, so some of them wait in the relay's send queue.
    socket2::SockRef::from(&client).set_recv_buffer_size(4096).unwrap();
    let sent = pattern(300_000);
    server.write_all(&sent).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    let everything = |view: &serde_json::Value| view["bytes_down"] == sent.len();
    eventually("all bytes at the relay", || relay.sessions().iter().any(everything).then_some(()));
    reset(server);
    assert!(read_all(&mut client) == sent);
    assert_eq!(relay.closed()["end"], "reset_by_server");
}

/// FIN and a later reset have both arrived before the relay reads: the stream is complete, because the reset came after
/// FIN. The rounds alternate between a new session and a session whose bytes are already spliced.
#[test]
fn eof_followed_by_a_reset_is_a_clean_end() {
    for round in 0..20 {
        let (relay, mut client, mut server) = relay_with_connection();
        // When a byte has passed through the relay, its connect(2) has returned. An earlier reset is a failed connect.
        let before = pattern(if round % 2 == 1 { 100_000 } else { 1 });
        server.write_all(&before).unwrap();
        assert!(read_exactly(&mut client, before.len()) == before);
        relay.stop();
        // 16 kB fit into the receive window while the relay is stopped. A reset discards unsent bytes.
        let sent = pattern(16_000);
        server.write_all(&sent).unwrap();
        server.shutdown(Shutdown::Write).unwrap();
        wait_sent(&server);
        reset(server);
        relay.signal("CONT");
        let (received, ending) = read_remaining(&mut client);
        assert_eq!((received.len(), ending), (sent.len(), Ending::Clean), "round {round}");
        assert!(received == sent, "round {round}");
    }
}

/// Regression: the answer of a server that closes while the client uploads, such as HTTP 413, was discarded if a write
/// of the relay failed before it had read the answer.
#[test]
fn answer_before_a_reset_arrives_during_an_upload() {
    let (mut relay, mut client, mut server) = relay_with_connection();
    server.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&mut client, 1), b"x");
    relay.stop();
    client.write_all(&pattern(16_000)).unwrap();
    server.write_all(b"413").unwrap();
    // A reset discards unsent bytes.
    wait_sent(&server);
    reset(server);
    relay.signal("CONT");
    assert_eq!(read_remaining(&mut client), (b"413".to_vec(), Ending::Reset));
    let closed = relay.closed();
    assert_eq!((&closed["end"], &closed["bytes_down"]), (&"reset_by_server".into(), &4.into()));
}

#[test]
fn reset_after_delivered_bytes_is_forwarded() {
    let (_relay, mut client, mut server) = relay_with_connection();
    server.write_all(b"last words").unwrap();
    assert_eq!(read_exactly(&mut client, 10), b"last words");
    reset(server);
    assert!(is_reset(&mut client));
}

/// Backpressure: bytes for a client that does not read wait in kernel buffers, and not in the memory of the relay.
#[test]
fn slow_reader_blocks_the_writer_without_memory_growth() {
    let (relay, client, mut server) = relay_with_connection();
    let before = relay.resident_kib();
    server.set_nonblocking(true).unwrap();
    let block = pattern(1 << 20);
    let mut written = 0_u64;
    let mut stuck_for = 0;
    // All buffers are full when no write has succeeded for one second.
    while stuck_for < 100 {
        match server.write(&block) {
            Ok(count) => (written, stuck_for) = (written + count as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stuck_for += 1;
                std::thread::park_timeout(std::time::Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
        assert!(written < 200 << 20, "the writer is never blocked");
    }
    assert!(written > 1 << 20, "the buffers of the kernel hold only {written} bytes");
    let growth = relay.resident_kib().saturating_sub(before);
    assert!(growth < 1024, "{growth} KiB of the relay's own memory for one slow reader");
    drop(server);
    let mut client = client;
    let mut received = 0;
    let mut bytes = vec![0; 1 << 20];
    loop {
        match client.read(&mut bytes).unwrap() {
            0 => break,
            count => received += count as u64,
        }
    }
    assert_eq!(received, written);
}

#[test]
fn bytes_in_flight_shrink_when_the_receiver_slows_down() {
    const BLOCK: usize = 1 << 16;
    let (_relay, mut client, mut server) = relay_with_connection();
    // Small buffers at both ends, so that most bytes in flight are in the relay's buffers.
    SockRef::from(&client).set_recv_buffer_size(BLOCK).unwrap();
    SockRef::from(&server).set_send_buffer_size(BLOCK).unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&written);
    let writer = std::thread::spawn(move || {
        while server.write_all(&[7; BLOCK]).is_ok() {
            counted.fetch_add(BLOCK as u64, Ordering::Relaxed);
        }
    });
    let waiting = |read: u64| written.load(Ordering::Relaxed).saturating_sub(read);
    let mut read = 0;
    let mut take = |most: u64, pace: Option<Duration>, enough: &dyn Fn(u64) -> bool| {
        let (until, mut buffer) = (read + most, vec![0; BLOCK]);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while read < until && !enough(waiting(read)) {
            // The deadline applies only to a paced reader. A fast reader has only the read timeout, because its total
            // time depends on the load of the machine.
            assert!(pace.is_none() || Instant::now() < deadline, "{} bytes wait", waiting(read));
            read += client.read(&mut buffer).unwrap() as u64;
            pace.into_iter().for_each(std::thread::sleep);
        }
    };
    let never = |_: u64| false;
    // A fast reader makes the buffers grow; for a slow reader fewer than 1.5 MB may be in flight; a fast reader again
    // has no limit.
    take(500_000_000, None, &never);
    take(4_000_000, Some(Duration::from_millis(5)), &never);
    take(u64::MAX / 2, Some(Duration::from_millis(5)), &|waits| waits < 1_500_000);
    take(500_000_000, None, &never);
    drop(client);
    join(writer);
}

#[test]
fn refused_target_resets_a_silent_client() {
    let mut relay = Relay::listen(&[&format!("tcp://127.0.0.1:0/{}", unused_address())]);
    assert!(is_reset(&mut relay.connect()));
    assert_eq!(relay.closed()["end"], "refused");
}

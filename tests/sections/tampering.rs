//! Encrypted sessions with an attacker on the wire that changes bytes: both ends receive a reset, and the received data
//! are a prefix of the sent data, without a clean end of stream.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;

use crate::harness::*;
use crate::interceptor::*;
use crate::relays::*;
use crate::streams::*;

/// Number of the record that is changed. Record 1 is OPEN or its answer, record 2 the first record of the session's
/// bytes.
const CHANGED_RECORD: usize = 3;

/// Bytes of a session: enough for records after the changed record.
const SIZE: usize = 1_000_000;

/// Changes the frames of one direction; may have state.
type FrameChange = Box<dyn FnMut(Frame) -> FrameAction + Send>;

/// Starts an encrypted session between a home relay and a relay, with the attacker between them. Returns the sockets of
/// the client and the server, and the relays.
fn session(direction: Direction, mut change: FrameChange) -> (TcpStream, TcpStream, Chain) {
    let attack =
        move |frame: Frame| if frame.direction == direction { change(frame) } else { forward_unchanged(frame) };
    let layout = Layout { encrypt: true, ..Layout::default() };
    let chain = layout.start_through(|address| start_interceptor(address, Framed::Encrypted, attack));
    let (client, server) = chain.pair();
    (client, server, chain)
}

/// Sends `SIZE` bytes and FIN in a thread, which returns whether all of them were sent.
fn send_until_error(stream: &TcpStream) -> JoinHandle<bool> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || stream.write_all(&pattern(SIZE)).and_then(|()| stream.shutdown(Shutdown::Write)).is_ok())
}

/// The log states the direction of the changed data, too.
#[test]
fn altered_record_is_logged_by_the_detecting_relay() {
    for direction in [Direction::Down, Direction::Up] {
        let (mut client, mut server, mut chain) = session(
            direction,
            change_one(|mut record| {
                record[2] ^= 1;
                FrameAction::Send(record)
            }),
        );
        let writer = send_until_error(if direction == Direction::Down { &server } else { &client });
        let (receiver, detector, other) = match direction {
            Direction::Down => (&mut client, &mut chain.home, &mut chain.relays[0]),
            Direction::Up => (&mut server, &mut chain.relays[0], &mut chain.home),
        };
        assert_eq!(read_remaining(receiver).1, Ending::Reset, "{direction:?}");
        join(writer);
        let closed = detector.closed();
        assert_eq!(closed["end"], "altered", "{direction:?}: {closed}");
        let side = if direction == Direction::Down { "server's" } else { "client's" };
        let detail = closed["detail"].as_str().unwrap();
        assert!(detail.contains(side) && detail.contains("altered in transit"), "{detail}");
        let other_end = if direction == Direction::Down { "reset_by_client" } else { "reset_by_server" };
        assert_eq!(other.closed()["end"], other_end);
    }
}

/// Checks that the receiver gets a prefix of the bytes and a reset, and that the sender detects the failure.
fn check_reset(case: &str, make: impl Fn() -> FrameChange) {
    for direction in [Direction::Down, Direction::Up] {
        let (client, server, _rest) = session(direction, make());
        let (mut sender, mut receiver) = if direction == Direction::Down { (server, client) } else { (client, server) };
        let writer = send_until_error(&sender);
        let (received, ending) = read_remaining(&mut receiver);
        assert_eq!(ending, Ending::Reset, "{case}, {direction:?}: after {} bytes", received.len());
        assert!(pattern(SIZE).starts_with(&received), "{case}, {direction:?}: bytes that were not sent");
        assert!(received.len() < SIZE, "{case}, {direction:?}: no byte is missing");
        assert!(
            !join(writer) || read_remaining(&mut sender).1 == Ending::Reset,
            "{case}, {direction:?}: the sender has succeeded"
        );
    }
}

/// Applies `change` to the record `CHANGED_RECORD`.
fn change_one(mut change: impl FnMut(Vec<u8>) -> FrameAction + Send + 'static) -> FrameChange {
    Box::new(move |frame| if frame.number == CHANGED_RECORD { change(frame.bytes) } else { forward_unchanged(frame) })
}

#[test]
fn unaltered_session_transfers_both_directions() {
    for direction in [Direction::Down, Direction::Up] {
        let (client, server, _rest) = session(direction, Box::new(forward_unchanged));
        transfer_both_ways(client, server, SIZE, SIZE);
    }
}

#[test]
fn flipped_bit_in_a_record_resets_the_session() {
    for at in [0, 1] {
        check_reset("a bit of the first or last byte", || {
            change_one(move |mut record| {
                let place = if at == 0 { 2 } else { record.len() - 1 };
                record[place] ^= 1;
                FrameAction::Send(record)
            })
        });
    }
}

#[test]
fn duplicated_record_resets_the_session() {
    check_reset("a record twice", || change_one(|record| FrameAction::Send(record.repeat(2))));
}

#[test]
fn dropped_record_resets_the_session() {
    check_reset("a record left out", || change_one(|_| FrameAction::Send(Vec::new())));
}

#[test]
fn reordered_records_reset_the_session() {
    check_reset("two records swapped", || {
        let mut held = Vec::new();
        Box::new(move |frame| match frame.number {
            CHANGED_RECORD => {
                held = frame.bytes;
                FrameAction::Send(Vec::new())
            }
            _ if !held.is_empty() => FrameAction::Send([frame.bytes, std::mem::take(&mut held)].concat()),
            _ => forward_unchanged(frame),
        })
    });
}

#[test]
fn injected_record_resets_the_session() {
    check_reset("a record put in", || {
        change_one(|record| FrameAction::Send([vec![0, 40], vec![7; 40], record].concat()))
    });
}

/// A FIN without an END record before it.
#[test]
fn fin_amid_data_resets_the_session() {
    check_reset("half a record and the end", || {
        change_one(|record| FrameAction::SendAndClose(record[..record.len() / 2].to_vec()))
    });
    check_reset("one byte of a length and the end", || {
        change_one(|record| FrameAction::SendAndClose(record[..1].to_vec()))
    });
    check_reset("the end between two records", || change_one(|_| FrameAction::SendAndClose(Vec::new())));
}

#[test]
fn wrong_record_lengths_reset_the_session() {
    check_reset("no room for a tag", || change_one(|_| FrameAction::Send(vec![0, 3, 1, 2, 3])));
    check_reset("nothing at all", || change_one(|_| FrameAction::Send(vec![0, 0])));
    check_reset("off by one", || {
        change_one(|mut record| {
            record[1] ^= 1;
            FrameAction::Send(record)
        })
    });
    check_reset("shorter than it is", || {
        change_one(|mut record| {
            record[..2].copy_from_slice(&[0, 20]);
            FrameAction::Send(record)
        })
    });
    check_reset("the longest, of nothing", || {
        change_one(|_| FrameAction::Send([vec![0xff, 0xff], vec![0; 65_535]].concat()))
    });
}

#[test]
fn reset_between_relays_resets_the_session() {
    check_reset("a reset", || change_one(|_| FrameAction::Reset));
}

/// The END record marks a complete stream. Without END the stream must not end cleanly, although all bytes arrive.
#[test]
fn fin_in_place_of_the_end_record_resets_the_session() {
    for direction in [Direction::Down, Direction::Up] {
        let (mut client, mut server, _rest) = session(
            direction,
            // END is an empty record: a length field of 2 bytes and a tag of 16 bytes.
            Box::new(|frame| {
                if frame.bytes.len() == 18 { FrameAction::SendAndClose(Vec::new()) } else { forward_unchanged(frame) }
            }),
        );
        let (sender, receiver) =
            if direction == Direction::Down { (&mut server, &mut client) } else { (&mut client, &mut server) };
        sender.write_all(b"all of it").unwrap();
        assert_eq!(read_exactly(receiver, 9), b"all of it");
        sender.shutdown(Shutdown::Write).unwrap();
        assert!(is_reset(receiver), "{direction:?}");
    }
}

/// Regression: bytes after END were ignored, and the session ended cleanly.
#[test]
fn bytes_after_the_end_record_reset_the_session() {
    let record = |length: u8| [vec![0, length], vec![7; length.into()]].concat();
    for direction in [Direction::Down, Direction::Up] {
        for behind in [vec![0], vec![0, 18], record(40), record(18), vec![0; 70_000]] {
            let count = behind.len();
            let put = move |frame: Frame| {
                let is_end = frame.number > 1 && frame.bytes.len() == 18;
                FrameAction::Send(if is_end { [&frame.bytes[..], &behind].concat() } else { frame.bytes })
            };
            let (mut client, mut server, mut chain) = session(direction, Box::new(put));
            let (sender, receiver, detector, other) = match direction {
                Direction::Down => (&mut server, &mut client, &mut chain.home, &mut chain.relays[0]),
                Direction::Up => (&mut client, &mut server, &mut chain.relays[0], &mut chain.home),
            };
            sender.write_all(b"all of it").unwrap();
            assert_eq!(read_exactly(receiver, 9), b"all of it");
            sender.shutdown(Shutdown::Write).unwrap();
            let (received, ending) = read_remaining(receiver);
            assert!(received.is_empty());
            // The relay may forward the end before the bytes after END arrive. It then resets the session after the
            // end, which only the socket's error shows (EPIPE in CLOSE-WAIT, tcp(7)).
            if ending == Ending::Clean {
                eventually("the reset after the end", || receiver.take_error().unwrap());
            }
            assert_eq!(detector.closed()["end"], "altered", "{direction:?}, {count} bytes");
            assert!(is_reset(sender), "{direction:?}, {count} bytes");
            let other_end = if direction == Direction::Down { "reset_by_client" } else { "reset_by_server" };
            assert_eq!(other.closed()["end"], other_end, "{direction:?}, {count} bytes");
        }
    }
}

/// The answer to OPEN confirms the path; after a change in the answer, the client must not receive a confirmation.
#[test]
fn altered_answer_fails_the_request() {
    for encrypt in [false, true] {
        let framed = if encrypt { Framed::Encrypted } else { Framed::Plain };
        let alter_answer = |mut frame: Frame| {
            if frame.direction == Direction::Down && frame.number == 1 {
                *frame.bytes.last_mut().unwrap() ^= 1;
            }
            forward_unchanged(frame)
        };
        let layout = Layout { encrypt, ..Layout::default() };
        let mut chain = layout.start_through(|address| start_interceptor(address, framed, alter_answer));
        assert_eq!(socks5(chain.home.address(), echo_server()).map(|_| ()), Err(1), "encrypt = {encrypt}");
        assert_eq!(chain.home.closed()["end"], "hop_protocol");
    }
}

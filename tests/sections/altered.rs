//! Encrypted sessions with an attacker on the wire that changes bytes: both ends see a reset, and received data are a
//! prefix of the sent data. Never a false end of stream, never a false byte.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::thread::JoinHandle;

use crate::between::*;
use crate::harness::*;
use crate::relays::*;
use crate::streams::*;

/// The record that is changed: 1 is OPEN or its answer, 2 the first of the session's bytes.
const CHANGED: usize = 3;

/// Enough for records behind the changed one.
const SIZE: usize = 1_000_000;

/// Changes frames of the direction it is for, with memory.
type Change = Box<dyn FnMut(Frame) -> Fate + Send>;

/// A home relay and a relay with the attacker in between, an encrypted session, both ends in hand.
fn session(way: Way, mut change: Change) -> (TcpStream, TcpStream, (Relay, Relay, Site, Site)) {
    let (site, home) = (Site::new(), Site::new());
    let peers = site.admit(&[(&home.key.public, "home")]);
    let relay = site.relay("", &format!("peers = {peers:?}\nencrypt = true\n"));
    let middle =
        between(
            site.address,
            Framed::Encrypted,
            move |frame| {
                if frame.way == way { change(frame) } else { untouched(frame) }
            },
        );
    let settings = site.table_at(middle, "far", "encrypt = true\n") + &everything_by("way", &["far".to_owned()]);
    let at_home = home.home(&settings, AUTO);
    let (client, server) = pair(&at_home);
    (client, server, (at_home, relay, site, home))
}

/// Sends as much as goes, and the end; says whether all went.
fn send_what_goes(stream: &TcpStream) -> JoinHandle<bool> {
    let mut stream = stream.try_clone().unwrap();
    std::thread::spawn(move || stream.write_all(&pattern(SIZE)).and_then(|()| stream.shutdown(Shutdown::Write)).is_ok())
}

/// A change ends the session, and the relay that detects it logs it.
#[test]
fn the_log_says_that_a_record_was_changed() {
    for way in [Way::Down, Way::Up] {
        let (mut client, mut server, (mut at_home, mut relay, ..)) = session(
            way,
            the_one(|mut record| {
                record[2] ^= 1;
                Fate::Said(record)
            }),
        );
        let writer = send_what_goes(if way == Way::Down { &server } else { &client });
        let (receiver, found, other) = match way {
            Way::Down => (&mut client, &mut at_home, &mut relay),
            Way::Up => (&mut server, &mut relay, &mut at_home),
        };
        assert_eq!(hear_out(receiver).1, Ending::Reset, "{way:?}");
        join(writer);
        let closed = found.closed();
        assert_eq!(closed["end"], "altered", "{way:?}: {closed}");
        let side = if way == Way::Down { "server's" } else { "client's" };
        let detail = closed["detail"].as_str().unwrap();
        assert!(detail.contains(side) && detail.contains("changed"), "{detail}");
        let told = if way == Way::Down { "reset_by_client" } else { "reset_by_server" };
        assert_eq!(other.closed()["end"], told);
    }
}

/// The receiver gets a beginning and a reset; the sender finds out, too.
fn breaks(what: &str, make: impl Fn() -> Change) {
    for way in [Way::Down, Way::Up] {
        let (client, server, _rest) = session(way, make());
        let (mut sender, mut receiver) = if way == Way::Down { (server, client) } else { (client, server) };
        let writer = send_what_goes(&sender);
        let (heard, ending) = hear_out(&mut receiver);
        assert_eq!(ending, Ending::Reset, "{what}, {way:?}: after {} bytes", heard.len());
        assert!(pattern(SIZE).starts_with(&heard), "{what}, {way:?}: bytes that were not said");
        assert!(heard.len() < SIZE, "{what}, {way:?}: nothing was changed");
        assert!(!join(writer) || hear_out(&mut sender).1 == Ending::Reset, "{what}, {way:?}: the sender does not know");
    }
}

/// The fate of the one record.
fn the_one(mut change: impl FnMut(Vec<u8>) -> Fate + Send + 'static) -> Change {
    Box::new(move |frame| if frame.number == CHANGED { change(frame.bytes) } else { untouched(frame) })
}

#[test]
fn untouched_it_works() {
    for way in [Way::Down, Way::Up] {
        let (client, server, _rest) = session(way, Box::new(untouched));
        exchange(client, server, SIZE, SIZE);
    }
}

#[test]
fn a_changed_bit_anywhere_in_a_record() {
    for at in [0, 1] {
        breaks("a bit of the first or last byte", || {
            the_one(move |mut record| {
                let place = if at == 0 { 2 } else { record.len() - 1 };
                record[place] ^= 1;
                Fate::Said(record)
            })
        });
    }
}

#[test]
fn a_record_said_twice() {
    breaks("a record twice", || the_one(|record| Fate::Said(record.repeat(2))));
}

#[test]
fn a_record_left_out() {
    breaks("a record left out", || the_one(|_| Fate::Said(Vec::new())));
}

#[test]
fn two_records_in_the_wrong_order() {
    breaks("two records swapped", || {
        let mut held = Vec::new();
        Box::new(move |frame| match frame.number {
            CHANGED => {
                held = frame.bytes;
                Fate::Said(Vec::new())
            }
            _ if !held.is_empty() => Fate::Said([frame.bytes, std::mem::take(&mut held)].concat()),
            _ => untouched(frame),
        })
    });
}

#[test]
fn a_record_of_somebody_else() {
    breaks("a record put in", || the_one(|record| Fate::Said([vec![0, 40], vec![7; 40], record].concat())));
}

/// The end of the stream, but no record said so.
#[test]
fn an_end_in_the_middle_is_no_end() {
    breaks("half a record and the end", || the_one(|record| Fate::Last(record[..record.len() / 2].to_vec())));
    breaks("one byte of a length and the end", || the_one(|record| Fate::Last(record[..1].to_vec())));
    breaks("the end between two records", || the_one(|_| Fate::Last(Vec::new())));
}

#[test]
fn lengths_that_lie() {
    breaks("no room for a tag", || the_one(|_| Fate::Said(vec![0, 3, 1, 2, 3])));
    breaks("nothing at all", || the_one(|_| Fate::Said(vec![0, 0])));
    breaks("off by one", || {
        the_one(|mut record| {
            record[1] ^= 1;
            Fate::Said(record)
        })
    });
    breaks("shorter than it is", || {
        the_one(|mut record| {
            record[..2].copy_from_slice(&[0, 20]);
            Fate::Said(record)
        })
    });
    breaks("the longest, of nothing", || the_one(|_| Fate::Said([vec![0xff, 0xff], vec![0; 65_535]].concat())));
}

#[test]
fn a_reset_on_the_wire_is_a_reset() {
    breaks("a reset", || the_one(|_| Fate::Reset));
}

/// The last record says that this was all. Without it the last bytes are there, and yet it is no end.
#[test]
fn an_end_that_nobody_said_is_none() {
    for way in [Way::Down, Way::Up] {
        let (mut client, mut server, _rest) = session(
            way,
            // An empty record is a length and a tag.
            Box::new(|frame| if frame.bytes.len() == 18 { Fate::Last(Vec::new()) } else { untouched(frame) }),
        );
        let (sender, receiver) = if way == Way::Down { (&mut server, &mut client) } else { (&mut client, &mut server) };
        sender.write_all(b"all of it").unwrap();
        assert_eq!(read_exactly(receiver, 9), b"all of it");
        sender.shutdown(Shutdown::Write).unwrap();
        assert!(is_reset(receiver), "{way:?}");
    }
}

/// Bytes behind END were ignored, and the session ended well.
#[test]
fn bytes_behind_the_end_are_a_reset() {
    let record = |length: u8| [vec![0, length], vec![7; length.into()]].concat();
    for way in [Way::Down, Way::Up] {
        for behind in [vec![0], vec![0, 18], record(40), record(18), vec![0; 70_000]] {
            let count = behind.len();
            let put = move |frame: Frame| {
                let is_end = frame.number > 1 && frame.bytes.len() == 18;
                Fate::Said(if is_end { [&frame.bytes[..], &behind].concat() } else { frame.bytes })
            };
            let (mut client, mut server, (mut at_home, mut relay, ..)) = session(way, Box::new(put));
            let (sender, receiver, found, other) = match way {
                Way::Down => (&mut server, &mut client, &mut at_home, &mut relay),
                Way::Up => (&mut client, &mut server, &mut relay, &mut at_home),
            };
            sender.write_all(b"all of it").unwrap();
            assert_eq!(read_exactly(receiver, 9), b"all of it");
            sender.shutdown(Shutdown::Write).unwrap();
            let (heard, ending) = hear_out(receiver);
            assert!(heard.is_empty());
            // The end may have been passed on before the bytes behind it arrived; then the session is reset behind it.
            println!("{way:?}, {count} bytes behind the end: {ending:?}");
            assert_eq!(found.closed()["end"], "altered", "{way:?}, {count} bytes");
            assert!(is_reset(sender), "{way:?}, {count} bytes");
            let told = if way == Way::Down { "reset_by_client" } else { "reset_by_server" };
            assert_eq!(other.closed()["end"], told, "{way:?}, {count} bytes");
        }
    }
}

/// The answer confirms the path; after a change no client gets a confirmation.
#[test]
fn an_answer_that_was_changed_is_no_success() {
    for encrypt in [false, true] {
        let (site, home) = (Site::new(), Site::new());
        let peers = site.admit(&[(&home.key.public, "home")]);
        let _relay = site.relay("", &format!("peers = {peers:?}\n"));
        let framed = if encrypt { Framed::Encrypted } else { Framed::Plain };
        let middle = between(site.address, framed, |mut frame| {
            if frame.way == Way::Down && frame.number == 1 {
                *frame.bytes.last_mut().unwrap() ^= 1;
            }
            untouched(frame)
        });
        let more = format!("encrypt = {encrypt}\n");
        let settings = site.table_at(middle, "far", &more) + &everything_by("way", &["far".to_owned()]);
        let mut relay = home.home(&settings, AUTO);
        assert_eq!(socks5(relay.address(), parrot()).map(|_| ()), Err(1), "encrypt = {encrypt}");
        assert_eq!(relay.closed()["end"], "hop_protocol");
    }
}

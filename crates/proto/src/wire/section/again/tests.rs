//! Tickets, and handshakes with them.

use super::*;
use crate::key::PrivateKey;
use crate::wire::section::record::{HEADER, TAG};
use crate::wire::section::{Hello, Initiator, Refusal, Responder, Versions};

const NOW: Duration = Duration::from_secs(7);

#[test]
fn a_ticket_is_good_for_its_maker_and_its_time() {
    let (tickets, peer, listener) = (Tickets::generate(), public(), public());
    let given = tickets.issue(&listener, &peer, NOW);
    let (secret, whose) = tickets.redeem(&listener, &given.ticket, NOW).unwrap();
    assert_eq!((secret, whose), (given.secret.clone(), peer));
    assert!(tickets.redeem(&listener, &given.ticket, NOW + GOOD_FOR - Duration::from_secs(1)).is_some());
    assert!(tickets.redeem(&listener, &given.ticket, NOW + GOOD_FOR).is_none(), "too old");
    assert!(Tickets::generate().redeem(&listener, &given.ticket, NOW).is_none(), "another process's");
    assert!(tickets.redeem(&public(), &given.ticket, NOW).is_none(), "another listener's");
    for at in 0..given.ticket.len() {
        let mut changed = given.ticket.clone();
        changed[at] ^= 1;
        assert!(tickets.redeem(&listener, &changed, NOW).is_none(), "byte {at} was changed");
        assert!(tickets.redeem(&listener, &given.ticket[..at], NOW).is_none(), "cut off at {at}");
    }
    assert_ne!(tickets.issue(&listener, &peer, NOW).ticket, given.ticket);
}

#[test]
fn what_is_kept_is_what_was_given() {
    let given = Tickets::generate().issue(&public(), &public(), NOW);
    let kept = Acquaintance::read(&given.write()).unwrap();
    assert_eq!((&kept.secret, &kept.ticket), (&given.secret, &given.ticket));
    let presented = kept.presented();
    assert_eq!(ticket(&presented), Ok((&given.ticket[..], presented.len())));
    for short in 0..presented.len() {
        assert_eq!(ticket(&presented[..short]), Err(WireError::Incomplete));
    }
    assert_eq!(ticket(&[0xff, 0xff]), Err(WireError::TooLarge));
    assert!(Acquaintance::read(&[1; LENGTH]).is_none() && Acquaintance::read(&[1; LENGTH + MOST + 1]).is_none());
    assert_eq!(format!("{given:?} {:?}", Tickets::generate()), "Acquaintance(...) Tickets(...)");
}

fn public() -> PublicKey {
    PrivateKey::generate().public()
}

fn parse(bytes: &[u8]) -> Hello {
    Hello::parse(bytes).unwrap().0
}

/// A listener, a dialler, and what the dialler keeps of their first handshake.
fn acquainted(tickets: &Tickets, now: Duration) -> (PrivateKey, PrivateKey, Acquaintance) {
    let (dialler, listener) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = Initiator::begin(&dialler, &listener.public(), Versions::OURS);
    let (responder, peer) = Responder::read(&listener, &parse(&hello), Versions::OURS).unwrap();
    let (_, answer) = responder.accept(Some(&tickets.issue(&listener.public(), &peer, now)));
    let known = initiator.finish(&parse(&answer)).unwrap().again.expect("a gift");
    (dialler, listener, known)
}

#[test]
fn acquaintances_shake_hands_the_short_way() {
    let (tickets, now) = (Tickets::generate(), Duration::from_secs(100));
    let (dialler, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public());
    let mut hellos = Vec::new();
    for _ in 0..2 {
        let (initiator, hello) = Initiator::begin_again(&known, Versions::OURS);
        assert!(parse(&hello).again);
        let (responder, peer) = Responder::read_again(by, &parse(&hello), Versions::OURS, now).unwrap();
        assert_eq!(peer, dialler.public());
        let (mut down, answer) = responder.accept(None);
        let mut up = initiator.finish(&parse(&answer)).unwrap();
        assert!(up.again.is_none());
        let mut record = [&[0; HEADER][..], b"OPEN", &[0; TAG]].concat();
        up.seal.seal(&mut record);
        let plain = down.open.open(&mut record).unwrap();
        assert_eq!(&record[plain], b"OPEN");
        hellos.push((hello, answer));
    }
    assert_ne!(hellos[0], hellos[1], "each has keys of its own");
}

#[test]
fn a_recorded_hello_of_an_acquaintance_opens_nothing() {
    let (tickets, now) = (Tickets::generate(), Duration::ZERO);
    let (_, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public());
    let (initiator, hello) = Initiator::begin_again(&known, Versions::OURS);
    let (responder, _) = Responder::read_again(by, &parse(&hello), Versions::OURS, now).unwrap();
    let (_, answer) = responder.accept(None);
    let mut open = [&[0; HEADER][..], b"OPEN", &[0; TAG]].concat();
    initiator.finish(&parse(&answer)).unwrap().seal.seal(&mut open);
    // The same bytes once more, to the same listener.
    let (responder, _) = Responder::read_again(by, &parse(&hello), Versions::OURS, now).unwrap();
    let (mut replayed, second) = responder.accept(None);
    assert_ne!(answer, second);
    assert!(replayed.open.open(&mut open).is_err());
}

#[test]
fn whoever_does_not_have_the_secret_is_no_acquaintance() {
    let (tickets, now) = (Tickets::generate(), Duration::ZERO);
    let (_, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public());
    let (_, _, other) = acquainted(&tickets, now);
    let read = |hello: &[u8]| Responder::read_again(by, &parse(hello), Versions::OURS, now).map(drop).err();
    let thief = Acquaintance { ticket: known.ticket.clone(), ..other };
    assert_eq!(read(&Initiator::begin_again(&thief, Versions::OURS).1), Some(Refusal::Stale), "a stolen ticket");
    let (initiator, hello) = Initiator::begin_again(&known, Versions::OURS);
    for at in Hello::HEADER..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        assert_eq!(read(&changed), Some(Refusal::Stale), "byte {at} was changed");
    }
    let later = now + GOOD_FOR;
    let late = Responder::read_again(by, &parse(&hello), Versions::OURS, later).map(drop).err();
    assert_eq!(late, Some(Refusal::Stale));
    let restarted =
        Responder::read_again((&Tickets::generate(), by.1), &parse(&hello), Versions::OURS, now).map(drop).err();
    assert_eq!(restarted, Some(Refusal::Stale));
    // Nor is a listener one that cannot read the ticket.
    let forged = Hello { versions: Versions::OURS, again: false, message: Ok(vec![7; 51]) };
    assert!(initiator.finish(&forged).is_err());
}

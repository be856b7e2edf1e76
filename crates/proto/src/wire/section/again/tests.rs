//! Tickets, and handshakes with them.

use super::*;
use crate::key::PrivateKey;
use crate::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use crate::wire::section::{Hello, NoiseInitiator, NoiseResponder, Refusal, Versions};

const NOW: Duration = Duration::from_secs(7);

#[test]
fn a_ticket_is_good_for_its_maker_and_its_time() {
    let (tickets, peer, listener) = (TicketIssuer::generate(), public(), public());
    let given = tickets.issue(&listener, &peer, NOW);
    let (secret, whose) = tickets.redeem(&listener, &given.ticket, NOW).unwrap();
    assert_eq!((secret, whose), (given.secret.clone(), peer));
    assert!(tickets.redeem(&listener, &given.ticket, NOW + TICKET_LIFETIME - Duration::from_secs(1)).is_some());
    assert!(tickets.redeem(&listener, &given.ticket, NOW + TICKET_LIFETIME).is_none(), "too old");
    assert!(TicketIssuer::generate().redeem(&listener, &given.ticket, NOW).is_none(), "another process's");
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
    let given = TicketIssuer::generate().issue(&public(), &public(), NOW);
    let kept = ResumptionTicket::parse(&given.write()).unwrap();
    assert_eq!((&kept.secret, &kept.ticket), (&given.secret, &given.ticket));
    let presented = kept.encode_prefix();
    assert_eq!(parse_ticket(&presented), Ok((&given.ticket[..], presented.len())));
    for short in 0..presented.len() {
        assert_eq!(parse_ticket(&presented[..short]), Err(WireError::Incomplete));
    }
    assert_eq!(parse_ticket(&[0xff, 0xff]), Err(WireError::TooLarge));
    assert!(
        ResumptionTicket::parse(&[1; KEY_LENGTH]).is_none()
            && ResumptionTicket::parse(&[1; KEY_LENGTH + MAX_TICKET + 1]).is_none()
    );
    assert_eq!(format!("{given:?} {:?}", TicketIssuer::generate()), "ResumptionTicket(...) Tickets(...)");
}

fn public() -> PublicKey {
    PrivateKey::generate().public_key()
}

fn parse(bytes: &[u8]) -> Hello {
    Hello::parse(bytes).unwrap().0
}

/// A listener, a dialler, and the dialler's ticket of their first handshake.
fn acquainted(tickets: &TicketIssuer, now: Duration) -> (PrivateKey, PrivateKey, ResumptionTicket) {
    let (dialler, listener) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = NoiseInitiator::begin(&dialler, &listener.public_key(), Versions::SUPPORTED);
    let (responder, peer) = NoiseResponder::read(&listener, &parse(&hello), Versions::SUPPORTED).unwrap();
    let (_, answer) = responder.accept(Some(&tickets.issue(&listener.public_key(), &peer, now)));
    let known = initiator.finish(&parse(&answer)).unwrap().resumption.expect("a gift");
    (dialler, listener, known)
}

#[test]
fn acquaintances_shake_hands_the_short_way() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::from_secs(100));
    let (dialler, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public_key());
    let mut hellos = Vec::new();
    for _ in 0..2 {
        let (initiator, hello) = NoiseInitiator::resume(&known, Versions::SUPPORTED);
        assert!(parse(&hello).is_resumption);
        let (responder, peer) =
            NoiseResponder::read_resumption(by.0, by.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
        assert_eq!(peer, dialler.public_key());
        let (mut down, answer) = responder.accept(None);
        let mut up = initiator.finish(&parse(&answer)).unwrap();
        assert!(up.resumption.is_none());
        let mut record = [&[0; HEADER_LENGTH][..], b"OPEN", &[0; TAG_LENGTH]].concat();
        up.send_key.seal(&mut record);
        let plain = down.open.open(&mut record).unwrap();
        assert_eq!(&record[plain], b"OPEN");
        hellos.push((hello, answer));
    }
    assert_ne!(hellos[0], hellos[1], "each has keys of its own");
}

#[test]
fn a_recorded_hello_of_an_acquaintance_opens_nothing() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::ZERO);
    let (_, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public_key());
    let (initiator, hello) = NoiseInitiator::resume(&known, Versions::SUPPORTED);
    let (responder, _) = NoiseResponder::read_resumption(by.0, by.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
    let (_, answer) = responder.accept(None);
    let mut open = [&[0; HEADER_LENGTH][..], b"OPEN", &[0; TAG_LENGTH]].concat();
    initiator.finish(&parse(&answer)).unwrap().send_key.seal(&mut open);
    // The same bytes once more, to the same listener.
    let (responder, _) = NoiseResponder::read_resumption(by.0, by.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
    let (mut replayed, second) = responder.accept(None);
    assert_ne!(answer, second);
    assert!(replayed.open.open(&mut open).is_err());
}

#[test]
fn whoever_does_not_have_the_secret_is_no_acquaintance() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::ZERO);
    let (_, listener, known) = acquainted(&tickets, now);
    let by = (&tickets, &listener.public_key());
    let (_, _, other) = acquainted(&tickets, now);
    let read = |hello: &[u8]| {
        NoiseResponder::read_resumption(by.0, by.1, &parse(hello), Versions::SUPPORTED, now).map(drop).err()
    };
    let thief = ResumptionTicket { ticket: known.ticket.clone(), ..other };
    assert_eq!(
        read(&NoiseInitiator::resume(&thief, Versions::SUPPORTED).1),
        Some(Refusal::UnknownTicket),
        "a stolen ticket"
    );
    let (initiator, hello) = NoiseInitiator::resume(&known, Versions::SUPPORTED);
    for at in Hello::HEADER_LENGTH..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        assert_eq!(read(&changed), Some(Refusal::UnknownTicket), "byte {at} was changed");
    }
    let later = now + TICKET_LIFETIME;
    let late = NoiseResponder::read_resumption(by.0, by.1, &parse(&hello), Versions::SUPPORTED, later).map(drop).err();
    assert_eq!(late, Some(Refusal::UnknownTicket));
    let restarted =
        NoiseResponder::read_resumption(&TicketIssuer::generate(), by.1, &parse(&hello), Versions::SUPPORTED, now)
            .map(drop)
            .err();
    assert_eq!(restarted, Some(Refusal::UnknownTicket));
    // Nor is a listener one that cannot read the ticket.
    let forged = Hello { versions: Versions::SUPPORTED, is_resumption: false, message: Ok(vec![7; 51]) };
    assert!(initiator.finish(&forged).is_err());
}

//! Tickets, and handshakes with them.

use super::*;
use crate::key::PrivateKey;
use crate::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use crate::wire::section::{Hello, NoiseInitiator, NoiseResponder, Refusal, Versions};

const NOW: Duration = Duration::from_secs(7);

#[test]
fn ticket_is_valid_for_its_issuer_listener_and_lifetime() {
    let (tickets, peer, listener) = (TicketIssuer::generate(), generate_public_key(), generate_public_key());
    let given = tickets.issue(&listener, &peer, NOW);
    let (secret, holder) = tickets.redeem(&listener, &given.ticket, NOW).unwrap();
    assert_eq!((secret, holder), (given.secret.clone(), peer));
    assert!(tickets.redeem(&listener, &given.ticket, NOW + TICKET_LIFETIME - Duration::from_secs(1)).is_some());
    assert!(tickets.redeem(&listener, &given.ticket, NOW + TICKET_LIFETIME).is_none(), "expired");
    assert!(TicketIssuer::generate().redeem(&listener, &given.ticket, NOW).is_none(), "ticket of another process");
    assert!(tickets.redeem(&generate_public_key(), &given.ticket, NOW).is_none(), "ticket of another listener");
    for at in 0..given.ticket.len() {
        let mut changed = given.ticket.clone();
        changed[at] ^= 1;
        assert!(tickets.redeem(&listener, &changed, NOW).is_none(), "byte {at} was changed");
        assert!(tickets.redeem(&listener, &given.ticket[..at], NOW).is_none(), "truncated to {at} bytes");
    }
    assert_ne!(tickets.issue(&listener, &peer, NOW).ticket, given.ticket);
}

#[test]
fn tickets_round_trip_through_their_stored_form() {
    let given = TicketIssuer::generate().issue(&generate_public_key(), &generate_public_key(), NOW);
    let stored = ResumptionTicket::parse(&given.write()).unwrap();
    assert_eq!((&stored.secret, &stored.ticket), (&given.secret, &given.ticket));
    let presented = stored.encode_prefix();
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

fn generate_public_key() -> PublicKey {
    PrivateKey::generate().public_key()
}

fn parse(bytes: &[u8]) -> Hello {
    Hello::parse(bytes).unwrap().0
}

/// Returns the keys of a dialler and a listener, and the ticket that the dialler got in their first handshake.
fn handshake_with_ticket(tickets: &TicketIssuer, now: Duration) -> (PrivateKey, PrivateKey, ResumptionTicket) {
    let (dialler, listener) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = NoiseInitiator::begin(&dialler, &listener.public_key(), Versions::SUPPORTED);
    let (responder, peer) = NoiseResponder::read(&listener, &parse(&hello), Versions::SUPPORTED).unwrap();
    let (_, answer) = responder.accept(Some(&tickets.issue(&listener.public_key(), &peer, now)));
    let resumption = initiator.finish(&parse(&answer)).unwrap().resumption.expect("a resumption ticket");
    (dialler, listener, resumption)
}

#[test]
fn resumption_with_a_ticket_derives_fresh_keys() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::from_secs(100));
    let (dialler, listener, resumption) = handshake_with_ticket(&tickets, now);
    let issuer = (&tickets, &listener.public_key());
    let mut hellos = Vec::new();
    for _ in 0..2 {
        let (initiator, hello) = NoiseInitiator::resume(&resumption, Versions::SUPPORTED);
        assert!(parse(&hello).is_resumption);
        let (responder, peer) =
            NoiseResponder::read_resumption(issuer.0, issuer.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
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
    assert_ne!(hellos[0], hellos[1], "each handshake has its own keys");
}

#[test]
fn records_do_not_open_after_a_replayed_resumption_hello() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::ZERO);
    let (_, listener, resumption) = handshake_with_ticket(&tickets, now);
    let issuer = (&tickets, &listener.public_key());
    let (initiator, hello) = NoiseInitiator::resume(&resumption, Versions::SUPPORTED);
    let (responder, _) =
        NoiseResponder::read_resumption(issuer.0, issuer.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
    let (_, answer) = responder.accept(None);
    let mut open = [&[0; HEADER_LENGTH][..], b"OPEN", &[0; TAG_LENGTH]].concat();
    initiator.finish(&parse(&answer)).unwrap().send_key.seal(&mut open);
    // A replay of the same bytes to the same listener.
    let (responder, _) =
        NoiseResponder::read_resumption(issuer.0, issuer.1, &parse(&hello), Versions::SUPPORTED, now).unwrap();
    let (mut replayed, second) = responder.accept(None);
    assert_ne!(answer, second);
    assert!(replayed.open.open(&mut open).is_err());
}

#[test]
fn resumption_without_secret_or_valid_ticket_fails() {
    let (tickets, now) = (TicketIssuer::generate(), Duration::ZERO);
    let (_, listener, resumption) = handshake_with_ticket(&tickets, now);
    let issuer = (&tickets, &listener.public_key());
    let (_, _, other) = handshake_with_ticket(&tickets, now);
    let read = |hello: &[u8]| {
        NoiseResponder::read_resumption(issuer.0, issuer.1, &parse(hello), Versions::SUPPORTED, now).map(drop).err()
    };
    let stolen = ResumptionTicket { ticket: resumption.ticket.clone(), ..other };
    assert_eq!(
        read(&NoiseInitiator::resume(&stolen, Versions::SUPPORTED).1),
        Some(Refusal::UnknownTicket),
        "a stolen ticket"
    );
    let (initiator, hello) = NoiseInitiator::resume(&resumption, Versions::SUPPORTED);
    for at in Hello::HEADER_LENGTH..hello.len() {
        let mut changed = hello.clone();
        changed[at] ^= 1;
        assert_eq!(read(&changed), Some(Refusal::UnknownTicket), "byte {at} was changed");
    }
    let later = now + TICKET_LIFETIME;
    let late =
        NoiseResponder::read_resumption(issuer.0, issuer.1, &parse(&hello), Versions::SUPPORTED, later).map(drop).err();
    assert_eq!(late, Some(Refusal::UnknownTicket));
    let restarted =
        NoiseResponder::read_resumption(&TicketIssuer::generate(), issuer.1, &parse(&hello), Versions::SUPPORTED, now)
            .map(drop)
            .err();
    assert_eq!(restarted, Some(Refusal::UnknownTicket));
    // A listener that cannot read the ticket cannot complete the handshake either.
    let forged = Hello { versions: Versions::SUPPORTED, is_resumption: false, message: Ok(vec![7; 51]) };
    assert!(initiator.finish(&forged).is_err());
}

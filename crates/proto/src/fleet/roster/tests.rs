//! Who is believed, and who is not.

use super::*;
use crate::fleet::{Certificate, Issued, MOST_NEIGHBOURS, Neighbour, Request, SigningKey, TOLERANCE};
use crate::key::PrivateKey;

const NOW: Duration = Duration::from_secs(1000);
const UNIX: u64 = 1_800_000_000;
const KEEP: Duration = Duration::from_secs(3600);

/// A relay with its keys, and the fleet that it belongs to.
struct Relay {
    key: PrivateKey,
    issued: Issued,
}

impl Relay {
    fn new(name: &str, fleet: &SigningKey) -> Self {
        Self::valid(name, fleet, (UNIX - 10, UNIX + 10))
    }

    fn valid(name: &str, fleet: &SigningKey, (not_before, not_after): (u64, u64)) -> Self {
        let key = PrivateKey::generate();
        let Request { key: public, signing } = Request::of(&key);
        let address = "relay.example:4000".parse().unwrap();
        let (fleet_key, name) = (fleet.public(), name.to_owned());
        let certificate = Certificate { fleet: fleet_key, name, address, key: public, signing, not_before, not_after };
        Self { issued: certificate.sign(fleet), key }
    }

    /// The same relay, somewhere else; signed by `fleet`.
    fn moved(&self, fleet: &SigningKey) -> Self {
        let certificate = &self.issued.certificate;
        let moved = Certificate { address: "elsewhere.example:4000".parse().unwrap(), ..certificate.clone() };
        Self { issued: moved.sign(fleet), key: PrivateKey::from_file(&self.key.text()).unwrap() }
    }

    fn place(&self) -> PublicKey {
        self.key.public()
    }

    fn entry(&self, number: u64) -> Entry {
        Entry { issued: self.issued.clone(), number, at: UNIX, state: State::Serving, neighbours: Vec::new() }
    }

    fn signed(&self, entry: &Entry) -> String {
        entry.sign(&SigningKey::of_relay(&self.key))
    }

    fn says(&self, number: u64) -> String {
        self.signed(&self.entry(number))
    }
}

fn roster(fleet: &SigningKey) -> Roster {
    Roster::new(fleet.public(), KEEP)
}

#[test]
fn a_relay_with_a_certificate_comes_in_and_what_it_says_reads_back() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let mut entry = osaka.entry(7);
    let neighbour = Neighbour {
        key: Relay::new("x", &fleet).place(),
        rtt: Duration::from_micros(12_345),
        loss_ppm: 17,
        rate: 9,
        age: 3,
    };
    entry.neighbours = vec![neighbour; 3];
    let text = osaka.signed(&entry);
    assert_eq!(roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX), Ok(Change::Members));
    assert_eq!(roster.member(&osaka.place()).unwrap().entry, entry);
    assert_eq!(roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX), Ok(Change::None));
    assert_eq!(roster.accept(&osaka.place(), osaka.says(8).as_bytes(), NOW, UNIX), Ok(Change::Measurements));
    let drains = Entry { state: State::Draining, ..osaka.entry(9) };
    assert_eq!(roster.accept(&osaka.place(), osaka.signed(&drains).as_bytes(), NOW, UNIX), Ok(Change::Members));
}

#[test]
fn who_can_only_write_adds_nobody() {
    let (fleet, other) = (SigningKey::generate(), SigningKey::generate());
    let (osaka, thief) = (Relay::new("osaka", &fleet), Relay::new("osaka", &other));
    let mut roster = roster(&fleet);
    // A certificate that somebody else has signed, in the name of this fleet.
    let claimed = thief.says(1).replace(&other.public().to_string(), &fleet.public().to_string());
    // A member's certificate with an entry that the thief has signed.
    let stolen = osaka.entry(1).sign(&SigningKey::of_relay(&thief.key));
    for (what, place, text, why) in [
        ("another fleet's", thief.place(), thief.says(1), Refused::Foreign),
        ("unsigned", thief.place(), claimed, Refused::Unsigned),
        ("not its own", osaka.place(), stolen, Refused::NotItsOwn),
        ("misplaced", thief.place(), osaka.says(1), Refused::Misplaced),
        ("changed", osaka.place(), osaka.says(1).replace("serving", "draining"), Refused::NotItsOwn),
        ("moved", osaka.place(), osaka.says(1).replace("relay.example", "thief.example"), Refused::Unsigned),
    ] {
        assert_eq!(roster.accept(&place, text.as_bytes(), NOW, UNIX), Err(why), "{what}");
    }
    assert_eq!(roster.members().count(), 0);
    assert_eq!(roster.numbers().count(), 0, "what is refused leaves no trace");
}

#[test]
fn a_member_moves_only_by_a_certificate_of_the_fleet() {
    let (fleet, other) = (SigningKey::generate(), SigningKey::generate());
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let mut accept = |text: &str| roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX);
    assert_eq!(accept(&osaka.says(1)), Ok(Change::Members));
    // It has made itself a certificate, in the name of the fleet.
    let made = osaka.moved(&other).says(2).replace(&other.public().to_string(), &fleet.public().to_string());
    assert_eq!(accept(&made), Err(Refused::Unsigned));
    assert_eq!(accept(&osaka.moved(&fleet).says(3)), Ok(Change::Members));
    assert_eq!(
        roster.member(&osaka.place()).unwrap().entry.issued.certificate.address.to_string(),
        "elsewhere.example:4000"
    );
}

#[test]
fn an_old_entry_does_not_come_back() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let (old, new) = (osaka.says(7), osaka.says(8));
    let mut accept = |text: &str| roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX);
    assert!(accept(&old).is_ok() && accept(&new).is_ok());
    assert_eq!(accept(&old), Err(Refused::Replayed { found: 7, known: 8 }));
    let same_number = Entry { at: 1, ..osaka.entry(8) };
    assert_eq!(accept(&osaka.signed(&same_number)), Err(Refused::Replayed { found: 8, known: 8 }));
    // Not after it has left, either.
    let drains = osaka.signed(&Entry { state: State::Draining, ..osaka.entry(9) });
    assert!(accept(&drains).is_ok());
    assert!(roster.unlisted(&osaka.place(), NOW));
    for text in [&new, &drains] {
        let known = roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX);
        assert!(matches!(known, Err(Refused::Replayed { known: 9, .. })), "{known:?}");
    }
}

#[test]
fn a_certificate_is_valid_for_its_time_and_some_minutes() {
    let fleet = SigningKey::generate();
    let osaka = Relay::valid("osaka", &fleet, (UNIX, UNIX + 100));
    let tolerance = TOLERANCE.as_secs();
    for (unix, expected, edge) in [
        (UNIX - tolerance - 1, Err(Refused::Early(tolerance + 1)), true),
        (UNIX - tolerance, Ok(Change::Members), true),
        (UNIX, Ok(Change::Members), false),
        (UNIX + 100, Ok(Change::Members), false),
        (UNIX + 100 + tolerance, Ok(Change::Members), true),
        (UNIX + 101 + tolerance, Err(Refused::Expired(tolerance + 1)), true),
    ] {
        let accepted = roster(&fleet).accept(&osaka.place(), osaka.says(1).as_bytes(), NOW, unix);
        assert_eq!((accepted, osaka.issued.certificate.is_at_the_edge(unix)), (expected, edge), "{unix}");
    }
}

#[test]
fn what_was_refused_for_its_time_is_taken_when_that_has_come() {
    let fleet = SigningKey::generate();
    let osaka = Relay::valid("osaka", &fleet, (UNIX, UNIX + 100));
    let (mut roster, text, days) = (roster(&fleet), osaka.says(1), 2 * 24 * 3600);
    // Our clock is two days behind, then two days ahead, and then it is set right.
    for (unix, expected) in [
        (UNIX - days, Err(Refused::Early(days))),
        (UNIX + days, Err(Refused::Expired(days - 100))),
        (UNIX, Ok(Change::Members)),
    ] {
        assert_eq!(roster.accept(&osaka.place(), text.as_bytes(), NOW, unix), expected);
    }
    // A jump of the clock while it is known: it is gone, and comes back.
    assert_eq!(roster.forget(NOW, UNIX + days).len(), 1);
    assert_eq!(roster.accept(&osaka.place(), osaka.says(2).as_bytes(), NOW, UNIX), Ok(Change::Members));
}

#[test]
fn who_is_no_longer_listed_stays_for_a_while() {
    let fleet = SigningKey::generate();
    let (osaka, tokyo) = (Relay::new("osaka", &fleet), Relay::new("tokyo", &fleet));
    let mut roster = roster(&fleet);
    for relay in [&osaka, &tokyo] {
        roster.accept(&relay.place(), relay.says(1).as_bytes(), NOW, UNIX).unwrap();
    }
    assert!(!roster.listed(&BTreeSet::from([tokyo.place()]), NOW));
    assert_eq!(roster.member(&osaka.place()).unwrap().missing, Some(NOW));
    assert!(roster.forget(NOW + KEEP - Duration::from_secs(1), UNIX).is_empty());
    // It comes back with what it had said before.
    roster.accept(&osaka.place(), osaka.says(1).as_bytes(), NOW, UNIX).unwrap();
    assert_eq!(roster.member(&osaka.place()).unwrap().missing, None);
    roster.unlisted(&osaka.place(), NOW);
    let gone = roster.forget(NOW + KEEP, UNIX);
    assert_eq!(gone.iter().map(|(member, _)| &*member.entry.issued.certificate.name).collect::<Vec<_>>(), ["osaka"]);
    assert_eq!(roster.number(&osaka.place()), Some(1), "its number is not forgotten");
    for (number, expected) in [(7, 7), (6, 7)] {
        roster.forbid(osaka.place(), number, UNIX);
        assert_eq!(roster.number(&osaka.place()), Some(expected), "numbers only grow");
    }
    // The other one's certificate ends.
    let after = UNIX + 11 + TOLERANCE.as_secs();
    assert_eq!(roster.forget(NOW, after)[0].1, Some(Refused::Expired(after - UNIX - 10)));
    roster.forget(NOW, after + 2 * TOLERANCE.as_secs());
    assert_eq!(roster.numbers().count(), 0, "what no certificate needs any more is forgotten");
}

#[test]
fn garbage_is_garbage() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let good = osaka.says(5);
    let mut cases = vec![
        Vec::new(),
        b"\0\xff\xfe".to_vec(),
        vec![b'a'; super::super::MOST_BYTES],
        good.replace("number: 5", "number: 05").into_bytes(),
        good.replace("number: 5", "number: +5").into_bytes(),
        good.replace("name: osaka", "name: o/../saka").into_bytes(),
        good.replace("not-before: ", "not-before: 0").into_bytes(),
        good.replace('\n', "\r\n").into_bytes(),
        format!("{good}\n").into_bytes(),
        good.trim_end().as_bytes().to_vec(),
    ];
    cases.extend(good.match_indices('\n').map(|(at, _)| good.as_bytes()[..at].to_vec()));
    for case in cases {
        let refused = roster.accept(&osaka.place(), &case, NOW, UNIX);
        assert!(
            matches!(refused, Err(Refused::Garbled(_) | Refused::NotItsOwn)),
            "{refused:?}: {}",
            String::from_utf8_lossy(&case)
        );
    }
    // More neighbours than there may be, and more lost than was sent.
    let neighbour = format!("neighbour: {} 1 2 3 4\n", osaka.place());
    for (lines, why) in [
        (neighbour.repeat(MOST_NEIGHBOURS + 1), "fewer neighbours"),
        (neighbour.replace(" 2 ", " 1000001 "), "neighbour"),
    ] {
        let text = good.replace("state: serving\n", &format!("state: serving\n{lines}"));
        let refused = roster.accept(&osaka.place(), text.as_bytes(), NOW, UNIX);
        assert_eq!(refused, Err(Refused::Garbled(why)));
    }
    let huge = vec![b'a'; super::super::MOST_BYTES + 1];
    assert_eq!(roster.accept(&osaka.place(), &huge, NOW, UNIX), Err(Refused::TooLarge));
    assert!(roster.accept(&osaka.place(), good.as_bytes(), NOW, UNIX).is_ok());
}

#[test]
fn small_changes_are_not_worth_telling() {
    let key = PrivateKey::generate().public();
    let told = Neighbour { key, rtt: Duration::from_millis(100), loss_ppm: 1000, rate: 1_000_000, age: 0 };
    for (now, differs) in [
        (told, false),
        (Neighbour { age: 60, ..told }, false),
        (Neighbour { rtt: Duration::from_millis(109), ..told }, false),
        (Neighbour { rtt: Duration::from_millis(111), ..told }, true),
        (Neighbour { loss_ppm: 1090, ..told }, false),
        (Neighbour { loss_ppm: 0, ..told }, true),
        (Neighbour { rate: 880_000, ..told }, true),
    ] {
        assert_eq!(now.differs(&told, 0.1), differs, "{now:?}");
    }
}

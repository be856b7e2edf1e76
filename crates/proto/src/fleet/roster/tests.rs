//! Accepted and rejected entries.

use super::*;
use crate::fleet::{
    Certificate, CertificateRequest, MAX_CLOCK_SKEW, MAX_NEIGHBOURS, Neighbour, SignedCertificate, SigningKey,
};
use crate::key::PrivateKey;

const NOW: Duration = Duration::from_secs(1000);
const UNIX: u64 = 1_800_000_000;
const KEEP: Duration = Duration::from_secs(3600);

/// A relay with its private key and its certificate of a fleet.
struct Relay {
    key: PrivateKey,
    issued: SignedCertificate,
}

impl Relay {
    fn new(name: &str, fleet: &SigningKey) -> Self {
        Self::valid(name, fleet, UNIX - 10, UNIX + 10)
    }

    fn valid(name: &str, fleet: &SigningKey, not_before: u64, not_after: u64) -> Self {
        let key = PrivateKey::generate();
        let CertificateRequest { key: public, verify_key: signing } = CertificateRequest::for_relay(&key);
        let address = "relay.example:4000".parse().unwrap();
        let (fleet_key, name) = (fleet.verify_key(), name.to_owned());
        let certificate =
            Certificate { fleet: fleet_key, name, address, key: public, verify_key: signing, not_before, not_after };
        Self { issued: certificate.sign(fleet), key }
    }

    /// The same relay at another address, with a certificate that `fleet` signs.
    fn moved(&self, fleet: &SigningKey) -> Self {
        let certificate = &self.issued.certificate;
        let moved = Certificate { address: "elsewhere.example:4000".parse().unwrap(), ..certificate.clone() };
        Self { issued: moved.sign(fleet), key: PrivateKey::from_file(&self.key.to_base64()).unwrap() }
    }

    fn public_key(&self) -> PublicKey {
        self.key.public_key()
    }

    fn entry(&self, number: u64) -> FleetEntry {
        FleetEntry {
            signed_certificate: self.issued.clone(),
            sequence: number,
            created_at: UNIX,
            state: RelayState::Serving,
            neighbours: Vec::new(),
        }
    }

    fn signed(&self, entry: &FleetEntry) -> String {
        entry.sign(&SigningKey::derive_for_relay(&self.key))
    }

    fn publish(&self, number: u64) -> String {
        self.signed(&self.entry(number))
    }
}

fn roster(fleet: &SigningKey) -> MemberList {
    MemberList::new(fleet.verify_key(), KEEP)
}

#[test]
fn certified_relay_is_added_and_its_entry_reads_back() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let mut entry = osaka.entry(7);
    let neighbour = Neighbour {
        key: Relay::new("x", &fleet).public_key(),
        rtt: Duration::from_micros(12_345),
        loss_ppm: 17,
        rate: 9,
        age: 3,
    };
    entry.neighbours = vec![neighbour; 3];
    let text = osaka.signed(&entry);
    assert_eq!(roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX), Ok(MembershipChange::Members));
    assert_eq!(roster.member(&osaka.public_key()).unwrap().entry, entry);
    assert_eq!(roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX), Ok(MembershipChange::Unchanged));
    assert_eq!(
        roster.apply_entry(&osaka.public_key(), osaka.publish(8).as_bytes(), NOW, UNIX),
        Ok(MembershipChange::Measurements)
    );
    let drains = FleetEntry { state: RelayState::Draining, ..osaka.entry(9) };
    assert_eq!(
        roster.apply_entry(&osaka.public_key(), osaka.signed(&drains).as_bytes(), NOW, UNIX),
        Ok(MembershipChange::Members)
    );
}

#[test]
fn entries_without_valid_signatures_are_rejected() {
    let (fleet, other) = (SigningKey::generate(), SigningKey::generate());
    let (osaka, attacker) = (Relay::new("osaka", &fleet), Relay::new("osaka", &other));
    let mut roster = roster(&fleet);
    // A certificate with the signature of another key, in the name of this fleet.
    let forged = attacker.publish(1).replace(&other.verify_key().to_string(), &fleet.verify_key().to_string());
    // A member's certificate with an entry that the attacker has signed.
    let stolen = osaka.entry(1).sign(&SigningKey::derive_for_relay(&attacker.key));
    for (case, key, text, error) in [
        ("another fleet's", attacker.public_key(), attacker.publish(1), EntryError::WrongFleet),
        ("unsigned", attacker.public_key(), forged, EntryError::BadCertificateSignature),
        ("not its own", osaka.public_key(), stolen, EntryError::BadEntrySignature),
        ("misplaced", attacker.public_key(), osaka.publish(1), EntryError::KeyMismatch),
        ("changed", osaka.public_key(), osaka.publish(1).replace("serving", "draining"), EntryError::BadEntrySignature),
        (
            "moved",
            osaka.public_key(),
            osaka.publish(1).replace("relay.example", "thief.example"),
            EntryError::BadCertificateSignature,
        ),
    ] {
        assert_eq!(roster.apply_entry(&key, text.as_bytes(), NOW, UNIX), Err(error), "{case}");
    }
    assert_eq!(roster.members().count(), 0);
    assert_eq!(roster.sequences().count(), 0, "rejected entries leave no trace");
}

#[test]
fn address_changes_only_by_a_certificate_of_the_fleet() {
    let (fleet, other) = (SigningKey::generate(), SigningKey::generate());
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let mut accept = |text: &str| roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX);
    assert_eq!(accept(&osaka.publish(1)), Ok(MembershipChange::Members));
    // A certificate in the name of the fleet, which the fleet has not signed.
    let made = osaka.moved(&other).publish(2).replace(&other.verify_key().to_string(), &fleet.verify_key().to_string());
    assert_eq!(accept(&made), Err(EntryError::BadCertificateSignature));
    assert_eq!(accept(&osaka.moved(&fleet).publish(3)), Ok(MembershipChange::Members));
    assert_eq!(
        roster.member(&osaka.public_key()).unwrap().entry.signed_certificate.certificate.address.to_string(),
        "elsewhere.example:4000"
    );
}

#[test]
fn replayed_entries_are_rejected() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let (old, new) = (osaka.publish(7), osaka.publish(8));
    let mut accept = |text: &str| roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX);
    assert!(accept(&old).is_ok() && accept(&new).is_ok());
    assert_eq!(accept(&old), Err(EntryError::Replayed { found: 7, known: 8 }));
    let same_number = FleetEntry { created_at: 1, ..osaka.entry(8) };
    assert_eq!(accept(&osaka.signed(&same_number)), Err(EntryError::Replayed { found: 8, known: 8 }));
    // Replays are rejected after the member has left, too.
    let drains = osaka.signed(&FleetEntry { state: RelayState::Draining, ..osaka.entry(9) });
    assert!(accept(&drains).is_ok());
    assert!(roster.mark_missing(&osaka.public_key(), NOW));
    for text in [&new, &drains] {
        let known = roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX);
        assert!(matches!(known, Err(EntryError::Replayed { known: 9, .. })), "{known:?}");
    }
}

#[test]
fn certificate_validity_includes_the_clock_skew() {
    let fleet = SigningKey::generate();
    let osaka = Relay::valid("osaka", &fleet, UNIX, UNIX + 100);
    let tolerance = MAX_CLOCK_SKEW.as_secs();
    for (unix, expected, edge) in [
        (UNIX - tolerance - 1, Err(EntryError::NotYetValid(tolerance + 1)), true),
        (UNIX - tolerance, Ok(MembershipChange::Members), true),
        (UNIX, Ok(MembershipChange::Members), false),
        (UNIX + 100, Ok(MembershipChange::Members), false),
        (UNIX + 100 + tolerance, Ok(MembershipChange::Members), true),
        (UNIX + 101 + tolerance, Err(EntryError::Expired(tolerance + 1)), true),
    ] {
        let accepted = roster(&fleet).apply_entry(&osaka.public_key(), osaka.publish(1).as_bytes(), NOW, unix);
        assert_eq!((accepted, osaka.issued.certificate.is_within_clock_skew(unix)), (expected, edge), "{unix}");
    }
}

#[test]
fn entry_rejected_for_its_time_is_accepted_at_a_valid_time() {
    let fleet = SigningKey::generate();
    let osaka = Relay::valid("osaka", &fleet, UNIX, UNIX + 100);
    let (mut roster, text, days) = (roster(&fleet), osaka.publish(1), 2 * 24 * 3600);
    // The local clock is two days behind, then two days ahead, then correct.
    for (unix, expected) in [
        (UNIX - days, Err(EntryError::NotYetValid(days))),
        (UNIX + days, Err(EntryError::Expired(days - 100))),
        (UNIX, Ok(MembershipChange::Members)),
    ] {
        assert_eq!(roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, unix), expected);
    }
    // A jump of the clock removes the known member; the next entry adds it again.
    assert_eq!(roster.remove_expired(NOW, UNIX + days).len(), 1);
    assert_eq!(
        roster.apply_entry(&osaka.public_key(), osaka.publish(2).as_bytes(), NOW, UNIX),
        Ok(MembershipChange::Members)
    );
}

#[test]
fn unlisted_member_is_kept_until_its_expiry() {
    let fleet = SigningKey::generate();
    let (osaka, tokyo) = (Relay::new("osaka", &fleet), Relay::new("tokyo", &fleet));
    let mut roster = roster(&fleet);
    for relay in [&osaka, &tokyo] {
        roster.apply_entry(&relay.public_key(), relay.publish(1).as_bytes(), NOW, UNIX).unwrap();
    }
    assert!(!roster.reconcile_listed(&BTreeSet::from([tokyo.public_key()]), NOW));
    assert_eq!(roster.member(&osaka.public_key()).unwrap().missing_since, Some(NOW));
    assert!(roster.remove_expired(NOW + KEEP - Duration::from_secs(1), UNIX).is_empty());
    // The member returns with its earlier entry.
    roster.apply_entry(&osaka.public_key(), osaka.publish(1).as_bytes(), NOW, UNIX).unwrap();
    assert_eq!(roster.member(&osaka.public_key()).unwrap().missing_since, None);
    roster.mark_missing(&osaka.public_key(), NOW);
    let removed = roster.remove_expired(NOW + KEEP, UNIX);
    assert_eq!(
        removed.iter().map(|(member, _)| &*member.entry.signed_certificate.certificate.name).collect::<Vec<_>>(),
        ["osaka"]
    );
    assert_eq!(roster.sequence(&osaka.public_key()), Some(1), "the sequence number is kept");
    for (number, expected) in [(7, 7), (6, 7)] {
        roster.record_sequence(osaka.public_key(), number, UNIX);
        assert_eq!(roster.sequence(&osaka.public_key()), Some(expected), "sequence numbers only grow");
    }
    // The certificate of the other relay expires.
    let after = UNIX + 11 + MAX_CLOCK_SKEW.as_secs();
    assert_eq!(roster.remove_expired(NOW, after)[0].1, Some(EntryError::Expired(after - UNIX - 10)));
    roster.remove_expired(NOW, after + 2 * MAX_CLOCK_SKEW.as_secs());
    assert_eq!(roster.sequences().count(), 0, "sequence numbers without a certificate are removed");
}

#[test]
fn malformed_entries_are_rejected() {
    let fleet = SigningKey::generate();
    let (osaka, mut roster) = (Relay::new("osaka", &fleet), roster(&fleet));
    let good = osaka.publish(5);
    let mut cases = vec![
        Vec::new(),
        b"\0\xff\xfe".to_vec(),
        vec![b'a'; super::super::MAX_ENTRY_BYTES],
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
        let refused = roster.apply_entry(&osaka.public_key(), &case, NOW, UNIX);
        assert!(
            matches!(refused, Err(EntryError::Malformed(_) | EntryError::BadEntrySignature)),
            "{refused:?}: {}",
            String::from_utf8_lossy(&case)
        );
    }
    // More neighbours than the limit, and a loss above 100 %.
    let neighbour = format!("neighbour: {} 1 2 3 4\n", osaka.public_key());
    for (lines, error) in [
        (neighbour.repeat(MAX_NEIGHBOURS + 1), "fewer neighbours"),
        (neighbour.replace(" 2 ", " 1000001 "), "neighbour"),
    ] {
        let text = good.replace("state: serving\n", &format!("state: serving\n{lines}"));
        let refused = roster.apply_entry(&osaka.public_key(), text.as_bytes(), NOW, UNIX);
        assert_eq!(refused, Err(EntryError::Malformed(error)));
    }
    let huge = vec![b'a'; super::super::MAX_ENTRY_BYTES + 1];
    assert_eq!(roster.apply_entry(&osaka.public_key(), &huge, NOW, UNIX), Err(EntryError::TooLarge));
    assert!(roster.apply_entry(&osaka.public_key(), good.as_bytes(), NOW, UNIX).is_ok());
}

#[test]
fn small_neighbour_changes_are_ignored() {
    let key = PrivateKey::generate().public_key();
    let published = Neighbour { key, rtt: Duration::from_millis(100), loss_ppm: 1000, rate: 1_000_000, age: 0 };
    for (now, differs) in [
        (published, false),
        (Neighbour { age: 60, ..published }, false),
        (Neighbour { rtt: Duration::from_millis(109), ..published }, false),
        (Neighbour { rtt: Duration::from_millis(111), ..published }, true),
        (Neighbour { loss_ppm: 1090, ..published }, false),
        (Neighbour { loss_ppm: 0, ..published }, true),
        (Neighbour { rate: 880_000, ..published }, true),
    ] {
        assert_eq!(now.differs_from(&published, 0.1), differs, "{now:?}");
    }
}

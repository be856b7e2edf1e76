//! Write access to etcd is not enough to add, move or revive a relay; and relays with wrong clocks.
//!
//! All processes share the clock of the system, so the tests shift the times in entries and certificates instead: for a
//! relay whose clock is two days ahead, the signatures of all others are two days old, and the reverse.

use std::fs;
use std::ops::Range;
use std::time::Duration;

use ekiden_proto::fleet::{FleetEntry, MAX_CLOCK_SKEW};

use super::etcd::Etcd;
use super::etcd_proxy::EtcdProxy;
use super::fixture::*;
use super::harness::*;

#[test]
fn entries_without_valid_signatures_are_ignored() {
    let (etcd, fleet, other, target) = (Etcd::start(), Fleet::new(), Fleet::new(), echo_server());
    let thief = other.site("thief");
    let (_home, mut at_home, osaka, _at_osaka) = pair(&etcd, &fleet);
    // Two fleets under one prefix: the relays reject the entries of the other fleet.
    let mut at_thief = thief.start(&etcd, "");
    wait_warning(&mut at_home, "of another fleet");
    wait_warning(&mut at_thief, "of another fleet");
    eventually("a fleet of one relay at the thief", || (members(&at_thief).len() == 1).then_some(()));

    // Keys that belong to no relay are ignored. etcd reports changes in order, so the warnings below show that home has seen them.
    etcd.put(&format!("{}../../etc", Fleet::SHARED), "x");
    etcd.put(Fleet::SHARED, "x");
    let entry_key = osaka.entry_key(&etcd);
    let genuine = etcd.value(&entry_key).unwrap();
    let foreign = etcd.value(&thief.entry_key(&etcd)).unwrap();
    let elsewhere = format!("{}{}", Fleet::SHARED, "ab".repeat(32));
    let claimed = foreign.replace(&other.public, &fleet.public);
    let moved = genuine.replace(&osaka.address.to_string(), &thief.address.to_string());
    for (at, value, words) in [
        (&entry_key, "garbage", "malformed"),
        (&elsewhere, genuine.as_str(), "under the key of another relay"),
        (&elsewhere, &claimed, "not signed by the fleet key"),
        (&entry_key, &moved, "not signed by the fleet key"),
        (&entry_key, &genuine.replace("state: serving", "state: draining"), "not signed by the key in its certificate"),
        (&entry_key, &"x".repeat(1_000_000), "larger than"),
    ] {
        etcd.put(at, value);
        wait_warning(&mut at_home, words);
        assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka", "{words}");
        assert_eq!(member(&at_home, "osaka").unwrap()["address"], osaka.address.to_string());
    }
    assert_eq!(members(&at_home).len(), 2, "{:?}", members(&at_home));
    // osaka writes its own entry again.
    eventually("osaka's own entry", || etcd.value(&entry_key).filter(|value| value.contains("name: osaka")));
}

#[test]
fn replayed_old_entries_are_rejected_and_overwritten() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    let mut at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    let entry_key = osaka.entry_key(&etcd);
    let first = etcd.value(&entry_key).unwrap();
    at_osaka.signal("TERM");
    wait_fleet_change(&mut at_home, "left", "osaka");
    assert_eq!(at_osaka.exit_code(), Some(0));
    // The signature is valid, but the entry is old, with the state `serving`.
    etcd.put(&entry_key, &first);
    wait_warning(&mut at_home, "older than an accepted entry");
    assert!(member(&at_home, "osaka").is_none());
    // A restarted relay rejects the entry as well, because its state file has the sequence number.
    let stored_number =
        |text: String| (!text.contains("name: osaka") && text.contains(&osaka.key.public)).then_some(());
    eventually("osaka's number in the state file", || {
        std::fs::read_to_string(&home.state).ok().and_then(stored_number)
    });
    drop(at_home);
    let mut at_home = home.start(&etcd, BY_OSAKA);
    wait_warning(&mut at_home, "older than an accepted entry");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    let at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    // The old entry again, while osaka runs.
    etcd.put(&entry_key, &first);
    eventually("a newer entry", || etcd.value(&entry_key).filter(|value| *value != first));
    assert!(member(&at_home, "osaka").is_some());
    drop(at_osaka);
}

#[test]
fn two_fleets_on_one_etcd_are_isolated() {
    let (etcd, one, other) = (Etcd::start(), Fleet::new(), Fleet::new());
    let sites = [one.site("osaka"), other.site("osaka")];
    let mut relays = sites.each_ref().map(|site| site.run(&site.config_without(&etcd, "prefix")));
    for relay in &relays {
        eventually("osaka as a member", || member(relay, "osaka"));
    }
    let entries = etcd.entries();
    assert!(entries.len() == 2 && entries.iter().all(|(key, _)| key.starts_with("/ekiden/")), "{entries:?}");
    for relay in &mut relays {
        assert_eq!(members(relay).len(), 1);
        relay.signal("TERM");
        assert_eq!(count_warnings(relay, "is rejected"), 0);
    }
}

#[test]
fn outdated_listed_entry_keeps_its_relay_present() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, nara) = (fleet.site("home"), fleet.site("nara"));
    let proxy = EtcdProxy::with_delay(etcd.port, Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", ""));
    let entry = nara.entry(&fleet, -60..60, 0);
    nara.publish(&etcd, &entry);
    wait_fleet_change(&mut at_home, "joined", "nara");
    proxy.cut();
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    // As after a restore of etcd from a snapshot.
    nara.publish(&etcd, &FleetEntry { sequence: entry.sequence - 1, ..entry });
    proxy.resume();
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_warning(&mut at_home, "older than an accepted entry");
    assert!(member(&at_home, "nara").unwrap()["missing_seconds"].is_null());
}

const DAY: i64 = 24 * 60 * 60;

/// From one hour ago until one year from now, in seconds.
const YEAR: Range<i64> = -3600..365 * DAY;

#[test]
fn wrong_clock_of_a_peer_is_accepted_with_one_warning() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, ahead, behind) = (fleet.site("home"), fleet.site("ahead"), fleet.site("behind"));
    let mut at_home = home.start(&etcd, "");
    for (site, shift, words) in
        [(&ahead, 2 * DAY + 30, "the clock of ahead is 1728"), (&behind, -2 * DAY - 30, "the clock of behind is 1728")]
    {
        site.publish(&etcd, &site.entry(&fleet, YEAR, shift));
        wait_fleet_change(&mut at_home, "joined", &site.name);
        wait_warning(&mut at_home, words);
        // A second entry with the same clock error must cause no second warning.
        site.publish(&etcd, &site.entry(&fleet, YEAR, shift + 10));
    }
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, "the clock of"), 0, "repeated warning");
}

#[test]
fn certificates_outside_their_validity_are_rejected() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, early, late) = (fleet.site("home"), fleet.site("early"), fleet.site("late"));
    let mut at_home = home.start(&etcd, "");
    // `early`: a certificate of today, seen by a relay whose clock is two days behind. `late`: a certificate that is
    // valid until tomorrow, seen by a relay whose clock is two days ahead.
    early.publish(&etcd, &early.entry(&fleet, 2 * DAY..365 * DAY, 2 * DAY));
    wait_warning(&mut at_home, "check the clocks of this host and of the signer");
    late.publish(&etcd, &late.entry(&fleet, -9 * DAY..-DAY, -2 * DAY));
    wait_warning(&mut at_home, "sign a new certificate with `ekiden fleet sign`");
    assert_eq!(members(&at_home).len(), 1);
}

#[test]
fn members_join_and_leave_at_the_bounds_of_certificate_validity() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let tolerance = i64::try_from(MAX_CLOCK_SKEW.as_secs()).unwrap();
    let mut at_home = home.start(&etcd, BY_OSAKA);
    // osaka and kobe do not run, so no relay renews these entries.
    osaka.publish(&etcd, &osaka.entry(&fleet, -DAY..12 - tolerance, 0));
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_warning(&mut at_home, "not valid by the clock of this host, but within the tolerance of 5 minutes");
    kobe.publish(&etcd, &kobe.entry(&fleet, 12 + tolerance..DAY, 0));
    wait_warning(&mut at_home, "check the clocks of this host");
    wait_fleet_change(&mut at_home, "joined", "kobe");
    wait_warning(&mut at_home, "osaka is no longer known: certificate expired");
    wait_fleet_change(&mut at_home, "left", "osaka");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
}

#[test]
fn relay_is_accepted_after_its_fast_clock_was_corrected() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    // The entry has a sequence number that the relay's clock reaches in two days.
    osaka.publish(&etcd, &osaka.entry(&fleet, YEAR, 2 * DAY));
    wait_fleet_change(&mut at_home, "joined", "osaka");
    let entry_key = osaka.entry_key(&etcd);
    let written_ahead = etcd.value(&entry_key);
    let mut at_osaka = osaka.start(&etcd, "");
    eventually("a new entry", || (etcd.value(&entry_key) != written_ahead).then_some(()));
    wait_path(&mut at_home, target, "by-osaka");
    // At its end the relay deletes its entry from etcd; the sequence number remains in its state file.
    osaka.wait_stored("osaka");
    at_osaka.signal("TERM");
    wait_fleet_change(&mut at_home, "left", "osaka");
    assert_eq!(at_osaka.exit_code(), Some(0));
    let _at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, "is rejected"), 0);
}

#[test]
fn relay_with_invalid_own_certificate_warns_and_keeps_running() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let home = fleet.site("home");
    for (window, words) in [
        (2 * DAY..365 * DAY, "certificate rejected by peers: certificate not valid for another"),
        (-365 * DAY..-2 * DAY, "sign the certificate again and reload"),
    ] {
        fs::write(&home.certificate, home.issue_certificate(&fleet, window).to_string()).unwrap();
        let mut at_home = home.start(&etcd, BY_OSAKA);
        wait_warning(&mut at_home, words);
        assert_eq!(path_of_a_session(&mut at_home, target), "direct");
        // A reload reads the new certificate.
        fs::write(&home.certificate, home.issue_certificate(&fleet, YEAR).to_string()).unwrap();
        at_home.signal("HUP");
        eventually("home as a member", || member(&at_home, "home"));
        at_home.signal("TERM");
        assert_eq!(count_warnings(&mut at_home, "certificate rejected by peers"), 0, "repeated warning");
    }
}

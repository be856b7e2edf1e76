//! Whoever writes to etcd adds nobody, moves nobody, and brings nothing old back.

use std::time::Duration;

use ekiden_proto::fleet::FleetEntry;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;
use crate::way::Way;

#[test]
fn what_is_not_signed_right_changes_nothing() {
    let (etcd, fleet, other, target) = (Etcd::start(), Fleet::new(), Fleet::new(), echo());
    let thief = other.site("thief");
    let (_home, mut at_home, osaka, _at_osaka) = pair(&etcd, &fleet);
    // Two fleets at one place: neither believes the other.
    let mut at_thief = thief.start(&etcd, "");
    warns(&mut at_home, "of another fleet");
    warns(&mut at_thief, "of another fleet");
    eventually("the thief alone", || (members(&at_thief).len() == 1).then_some(()));

    let place = osaka.place(&etcd);
    let genuine = etcd.value(&place).unwrap();
    let foreign = etcd.value(&thief.place(&etcd)).unwrap();
    let elsewhere = format!("{}{}", Fleet::SHARED, "ab".repeat(32));
    let claimed = foreign.replace(&other.public, &fleet.public);
    let moved = genuine.replace(&osaka.address.to_string(), &thief.address.to_string());
    for (at, value, words) in [
        (&place, "garbage", "garbled"),
        (&elsewhere, genuine.as_str(), "place of another relay"),
        (&elsewhere, &claimed, "not signed by the fleet key"),
        (&place, &moved, "not signed by the fleet key"),
        (&place, &genuine.replace("state: serving", "state: draining"), "not signed by the relay"),
        (&place, &"x".repeat(1_000_000), "larger than"),
    ] {
        etcd.put(at, value);
        warns(&mut at_home, words);
        assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka", "{words}");
        assert_eq!(member(&at_home, "osaka").unwrap()["address"], osaka.address.to_string());
    }
    assert_eq!(members(&at_home).len(), 2);
    // Keys that are nobody's are not looked at.
    etcd.put(&format!("{}../../etc", Fleet::SHARED), "x");
    etcd.put(Fleet::SHARED, "x");
    // Osaka takes its place again.
    eventually("osaka's own entry", || etcd.value(&place).filter(|value| value.contains("name: osaka")));
}

#[test]
fn an_old_entry_is_replaced_by_a_new_one() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    let mut at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    let place = osaka.place(&etcd);
    let first = etcd.value(&place).unwrap();
    at_osaka.signal("TERM");
    hears(&mut at_home, "left", "osaka");
    assert_eq!(at_osaka.exit_code(), Some(0));
    // Signed rightly, and old: it says that osaka serves.
    etcd.put(&place, &first);
    warns(&mut at_home, "older than one that was here before");
    assert!(member(&at_home, "osaka").is_none());
    // Nor does who has just started believe it, for it has kept the number.
    let numbered = |text: String| (!text.contains("name: osaka") && text.contains(&osaka.key.public)).then_some(());
    eventually("its number in the file", || std::fs::read_to_string(&home.state).ok().and_then(numbered));
    drop(at_home);
    let mut at_home = home.start(&etcd, BY_OSAKA);
    warns(&mut at_home, "older than one that was here before");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    let at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    // Again, while osaka is there.
    etcd.put(&place, &first);
    eventually("a newer entry", || etcd.value(&place).filter(|value| *value != first));
    assert!(member(&at_home, "osaka").is_some());
    drop(at_osaka);
}

#[test]
fn two_fleets_on_one_etcd_do_not_see_each_other() {
    let (etcd, one, other) = (Etcd::start(), Fleet::new(), Fleet::new());
    let sites = [one.site("osaka"), other.site("osaka")];
    let mut relays = sites.each_ref().map(|site| site.run(&site.config_without(&etcd, "prefix")));
    for relay in &relays {
        eventually("osaka", || member(relay, "osaka"));
    }
    let keys = etcd.keys();
    assert!(keys.len() == 2 && keys.iter().all(|key| key.starts_with("/ekiden/")), "{keys:?}");
    for relay in &mut relays {
        assert_eq!(members(relay).len(), 1);
        relay.signal("TERM");
        assert_eq!(warnings(relay, "is not believed"), 0);
    }
}

#[test]
fn an_old_entry_that_is_listed_still_says_that_its_relay_is_there() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, nara) = (fleet.site("home"), fleet.site("nara"));
    let way = Way::slow(etcd.port, Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&way.url(), "", ""));
    let entry = nara.entry(&fleet, (-60, 60), 0);
    nara.says(&etcd, &entry);
    hears(&mut at_home, "joined", "nara");
    way.cut();
    etcd_is(&mut at_home, "etcd_down");
    // As after etcd was restored from a copy.
    nara.says(&etcd, &FleetEntry { sequence: entry.sequence - 1, ..entry });
    way.mend();
    etcd_is(&mut at_home, "etcd_up");
    warns(&mut at_home, "older than one that was here before");
    assert!(member(&at_home, "nara").unwrap()["missing_seconds"].is_null());
}

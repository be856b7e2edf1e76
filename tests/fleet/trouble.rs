//! etcd is away, comes back, comes back as it was long ago, hangs, or is full: the last known fleet goes on.

use std::time::Duration;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;
use crate::way::Way;

#[test]
fn etcd_that_is_killed_takes_nobody_with_it() {
    let (mut etcd, target) = (Etcd::start(), echo());
    let (home, mut at_home, _osaka, mut at_osaka) = pair(&etcd, &Fleet::new());
    let keeps = |text: String| text.contains("name: osaka").then_some(());
    eventually("osaka in the file", || std::fs::read_to_string(&home.state).ok().and_then(keeps));
    let mut running = session(&at_home, target);
    etcd.kill();
    etcd_is(&mut at_home, "etcd_down");
    etcd_is(&mut at_osaka, "etcd_down");
    answers(&mut running);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    // A relay that starts now knows the fleet from its file.
    drop((running, at_home));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    etcd.run();
    etcd_is(&mut at_home, "etcd_up");
    etcd_is(&mut at_osaka, "etcd_up");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    let written = |relay: &Relay| {
        let answer: serde_json::Value = serde_json::from_str(&relay.ask("/api/fleet")).unwrap();
        answer["written"].as_u64().filter(|written| *written >= 1)
    };
    eventually("an entry in etcd again", || written(&at_home));
}

#[test]
fn etcd_that_was_emptied_loses_nobody() {
    let (etcd, target) = (Etcd::start(), echo());
    let (home, mut at_home, osaka, _at_osaka) = pair(&etcd, &Fleet::new());
    etcd.ask(&["del", "", "--prefix"]);
    // Both write again what is theirs.
    home.place(&etcd);
    osaka.place(&etcd);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    eventually("osaka listed again", || member(&at_home, "osaka")?["missing_seconds"].is_null().then_some(()));
}

#[test]
fn etcd_that_goes_back_to_an_old_copy_loses_nobody_and_brings_nothing_old_back() {
    let (mut etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    let backup = etcd.backup();
    let mut at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    let before = member(&at_home, "osaka").unwrap();
    // The copy knows of no osaka, and has an old entry of home.
    etcd.restore(&backup);
    etcd_is(&mut at_home, "etcd_up");
    etcd_is(&mut at_osaka, "etcd_up");
    osaka.place(&etcd);
    goes(&mut at_home, target, "by-osaka");
    eventually("osaka's new entry", || {
        let now = member(&at_home, "osaka")?;
        (now["age_seconds"].as_f64() < before["age_seconds"].as_f64().map(|age| age + 3600.0)
            && now["missing_seconds"].is_null())
        .then_some(())
    });
}

#[test]
fn etcd_that_hangs_holds_up_nobody() {
    let (etcd, target) = (Etcd::start(), echo());
    let (_home, mut at_home, _osaka, mut at_osaka) = pair(&etcd, &Fleet::new());
    etcd.signal("STOP");
    // It accepts connections, and says nothing.
    for _ in 0..20 {
        assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    }
    etcd_is(&mut at_home, "etcd_down");
    etcd_is(&mut at_osaka, "etcd_down");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    etcd.signal("CONT");
    etcd_is(&mut at_home, "etcd_up");
    etcd_is(&mut at_osaka, "etcd_up");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
}

#[test]
fn a_far_etcd_is_as_good_as_a_near_one() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let way = Way::slow(etcd.port, Duration::from_millis(150));
    let mut at_home = home.run(&home.config_at(&way.url(), "", BY_OSAKA));
    let at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    goes(&mut at_home, target, "by-osaka");
    assert!(way.carried() > 0);
    drop(at_osaka);
}

#[test]
fn a_full_etcd_still_tells_who_is_there() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes", "2000000"]);
    let (_home, mut at_home, _osaka, _at_osaka) = pair(&etcd, &Fleet::new());
    let much = "x".repeat(100_000);
    eventually("a full etcd", || (!etcd.ctl(&["put", "/much", &much]).status.success()).then_some(()));
    let (other, target) = (Fleet::new(), echo());
    let kobe = other.site("kobe");
    let mut at_kobe = kobe.start(&etcd, "");
    warns(&mut at_kobe, "etcd is full");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    drop(session(&at_kobe, target));
    assert_eq!(closed(&mut at_kobe)["end"], "finished");
}

#[test]
fn the_second_server_is_asked_where_the_first_is_away() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let home = fleet.site("home");
    let two = format!("http://{}\", \"{}", nobody(), etcd.url());
    let _at_home = home.run(&home.config_at(&two, "", ""));
    home.place(&etcd);
}

#[test]
fn who_goes_while_we_are_cut_off_is_missed_afterwards() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let way = Way::slow(etcd.port, Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&way.url(), "", BY_OSAKA));
    let at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    let place = osaka.place(&etcd);
    way.cut();
    etcd_is(&mut at_home, "etcd_down");
    drop(at_osaka);
    eventually("the end of its lease", || etcd.value(&place).is_none().then_some(()));
    way.mend();
    etcd_is(&mut at_home, "etcd_up");
    let missing = || member(&at_home, "osaka")?["missing_seconds"].is_number().then_some(());
    eventually("osaka, known and not listed", missing);
}

#[test]
fn a_reload_while_etcd_is_away_forgets_nobody() {
    let (mut etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let config = home.config_without(&etcd, "state");
    let text = std::fs::read_to_string(&config).unwrap() + BY_OSAKA;
    std::fs::write(&config, text).unwrap();
    let mut at_home = home.run(&config);
    home.place(&etcd);
    let _at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    goes(&mut at_home, target, "by-osaka");
    etcd.kill();
    etcd_is(&mut at_home, "etcd_down");
    at_home.signal("HUP");
    at_home.next(|event| event["event"] == "reloaded");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
}

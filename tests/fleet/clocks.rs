//! Clocks are apart, or wrong. A process cannot be given a clock of its own, so everything else is shifted instead: for a
//! relay whose clock is two days ahead, what all others sign is two days old, and the other way round.

use std::fs;

use ekiden_proto::fleet::MAX_CLOCK_SKEW;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;

const DAY: i64 = 24 * 60 * 60;

/// From an hour ago, in seconds from now.
const YEAR: (i64, i64) = (-3600, 365 * DAY);

#[test]
fn a_relay_whose_clock_is_days_off_is_believed_and_told() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, ahead, behind) = (fleet.site("home"), fleet.site("ahead"), fleet.site("behind"));
    let mut at_home = home.start(&etcd, "");
    for (site, shift, words) in
        [(&ahead, 2 * DAY + 30, "the clock of ahead is 1728"), (&behind, -2 * DAY - 30, "the clock of behind is 1728")]
    {
        site.says(&etcd, &site.entry(&fleet, YEAR, shift));
        hears(&mut at_home, "joined", &site.name);
        warns(&mut at_home, words);
        // Again, and nothing new to say.
        site.says(&etcd, &site.entry(&fleet, YEAR, shift + 10));
    }
    at_home.signal("TERM");
    assert_eq!(warnings(&mut at_home, "the clock of"), 0, "said again");
}

#[test]
fn what_is_not_valid_by_our_clock_is_not_believed() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, early, late) = (fleet.site("home"), fleet.site("early"), fleet.site("late"));
    let mut at_home = home.start(&etcd, "");
    // Signed today, where our clock is two days behind; valid until tomorrow, where it is two days ahead.
    early.says(&etcd, &early.entry(&fleet, (2 * DAY, 365 * DAY), 2 * DAY));
    warns(&mut at_home, "is this clock slow, or that of the signer fast?");
    late.says(&etcd, &late.entry(&fleet, (-9 * DAY, -DAY), -2 * DAY));
    warns(&mut at_home, "sign a new one with `ekiden fleet sign`");
    assert_eq!(members(&at_home).len(), 1);
}

#[test]
fn who_was_early_or_is_late_comes_and_goes_with_the_time_alone() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let tolerance = i64::try_from(MAX_CLOCK_SKEW.as_secs()).unwrap();
    let mut at_home = home.start(&etcd, BY_OSAKA);
    // Nobody writes these again.
    osaka.says(&etcd, &osaka.entry(&fleet, (-DAY, 8 - tolerance), 0));
    hears(&mut at_home, "joined", "osaka");
    warns(&mut at_home, "not valid by our clock; some minutes are let pass");
    kobe.says(&etcd, &kobe.entry(&fleet, (8 + tolerance, DAY), 0));
    warns(&mut at_home, "is this clock slow");
    hears(&mut at_home, "joined", "kobe");
    warns(&mut at_home, "osaka is no longer known: its certificate has ended");
    hears(&mut at_home, "left", "osaka");
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
}

#[test]
fn a_relay_whose_clock_was_ahead_is_believed_after_it_was_set_right() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    // What it wrote then has a number that its clock reaches in two days.
    osaka.says(&etcd, &osaka.entry(&fleet, YEAR, 2 * DAY));
    hears(&mut at_home, "joined", "osaka");
    let place = osaka.place(&etcd);
    let written_ahead = etcd.value(&place);
    let mut at_osaka = osaka.start(&etcd, "");
    eventually("a new entry", || (etcd.value(&place) != written_ahead).then_some(()));
    goes(&mut at_home, target, "by-osaka");
    // It leaves nothing in etcd, and remembers by its file.
    let keeps = |text: String| text.contains("name: osaka").then_some(());
    eventually("itself in its file", || fs::read_to_string(&osaka.state).ok().and_then(keeps));
    at_osaka.signal("TERM");
    hears(&mut at_home, "left", "osaka");
    assert_eq!(at_osaka.exit_code(), Some(0));
    let _at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    at_home.signal("TERM");
    assert_eq!(warnings(&mut at_home, "is not believed"), 0);
}

#[test]
fn a_relay_whose_own_certificate_is_not_valid_says_so_and_runs_on() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let home = fleet.site("home");
    for (window, words) in [
        ((2 * DAY, 365 * DAY), "certificate rejected by peers: its certificate begins in"),
        ((-365 * DAY, -2 * DAY), "have it signed again and reload"),
    ] {
        fs::write(&home.certificate, home.certified(&fleet, window).to_string()).unwrap();
        let mut at_home = home.start(&etcd, BY_OSAKA);
        warns(&mut at_home, words);
        assert_eq!(path_of_a_session(&mut at_home, target), "direct");
        // A new certificate is taken by a reload.
        fs::write(&home.certificate, home.certified(&fleet, YEAR).to_string()).unwrap();
        at_home.signal("HUP");
        eventually("home", || member(&at_home, "home"));
        at_home.signal("TERM");
        assert_eq!(warnings(&mut at_home, "certificate rejected by peers"), 0, "said again");
    }
}

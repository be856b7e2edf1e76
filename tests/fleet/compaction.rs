//! etcd forgets what was: who has missed something reads everything again, and goes on from there.

use crate::etcd::Etcd;
use crate::scene::*;
use crate::way::Way;

#[test]
fn who_watches_all_the_time_misses_nothing() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (_home, mut at_home, _osaka, _at_osaka) = pair(&etcd, &fleet);
    etcd.compact();
    let kobe = fleet.site("kobe");
    let _at_kobe = kobe.start(&etcd, "");
    hears(&mut at_home, "joined", "kobe");
    at_home.signal("TERM");
    assert!(at_home.rest().iter().all(|event| event["event"] != "etcd_down"));
}

#[test]
fn who_begins_to_watch_too_late_reads_everything_again() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let _at_osaka = osaka.start(&etcd, "");
    osaka.place(&etcd);
    let way = Way::held_after(etcd.port, "name: osaka");
    let mut at_home = home.run(&home.config_at(&way.url(), "", BY_OSAKA));
    // Home has read everything, and what happens now is forgotten before it watches.
    way.assert_held();
    etcd.put("/elsewhere", "one");
    etcd.put("/elsewhere", "two");
    etcd.compact();
    way.open();
    let down = etcd_is(&mut at_home, "etcd_down");
    assert!(down["detail"].as_str().unwrap().contains("since the last read: all entries are read again"), "{down}");
    etcd_is(&mut at_home, "etcd_up");
    let _at_kobe = kobe.start(&etcd, "");
    hears(&mut at_home, "joined", "kobe");
    goes(&mut at_home, target, "by-osaka");
}

#[test]
fn what_is_forgotten_between_two_pages_is_read_again() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    // More keys than a page has, and as many as etcd takes at once.
    for half in 0..2 {
        let puts: String =
            (0..100).map(|at| format!("put {}!{half}{at:02} \"one of many\"\n", Fleet::SHARED)).collect();
        etcd.puts(&puts);
    }
    let _at_osaka = osaka.start(&etcd, "");
    osaka.place(&etcd);
    let way = Way::held_after(etcd.port, "one of many");
    let mut at_home = home.run(&home.config_at(&way.url(), "", BY_OSAKA));
    way.assert_held();
    etcd.put("/elsewhere", "one");
    etcd.compact();
    way.open();
    let down = etcd_is(&mut at_home, "etcd_down");
    assert!(down["detail"].as_str().unwrap().contains("has been compacted; everything is read again"), "{down}");
    hears(&mut at_home, "joined", "osaka");
}

#[test]
fn who_was_cut_off_meanwhile_reads_everything_again() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let way = Way::slow(etcd.port, std::time::Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&way.url(), "", BY_OSAKA));
    home.place(&etcd);
    way.cut();
    etcd_is(&mut at_home, "etcd_down");
    let _at_osaka = osaka.start(&etcd, "");
    osaka.place(&etcd);
    etcd.put("/elsewhere", "one");
    etcd.compact();
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    way.mend();
    etcd_is(&mut at_home, "etcd_up");
    hears(&mut at_home, "joined", "osaka");
    goes(&mut at_home, target, "by-osaka");
}

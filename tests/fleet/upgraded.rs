//! A relay is upgraded: for the others it has never been away.

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;

#[test]
fn nobody_hears_that_it_drains_or_leaves() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    home.place(&etcd);
    // Long enough for a busy machine between the last word of one process and the first of the other.
    let config = osaka.config(&etcd, "[timeouts]\nupgrade_drain = \"2s\"\n");
    let text = std::fs::read_to_string(&config).unwrap().replace("lease = \"5s\"", "lease = \"15s\"");
    std::fs::write(&config, text).unwrap();
    let mut at_osaka = osaka.run(&config);
    hears(&mut at_home, "joined", "osaka");
    hears(&mut at_osaka, "joined", "home");
    let (place, number) = (osaka.place(&etcd), || number(&etcd, &osaka.place(&etcd)));
    let (leases, written, since) = (etcd.leases(), number(), etcd.stands_since(&place));
    assert_eq!(leases.len(), 2);

    let mut running = session(&at_home, target);
    at_osaka.signal("USR2");
    at_osaka.upgraded();
    eventually("its entry by the new process", || (number() > written).then_some(()));
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    answers(&mut running);
    drop(running);
    assert_eq!(closed(&mut at_home)["path"], "by-osaka");
    ended(at_osaka.id());
    // What the process before had written would go with its lease.
    eventually("the end of its lease", || {
        let now = etcd.leases();
        leases.iter().any(|lease| !now.contains(lease)).then_some(())
    });
    assert_eq!(etcd.stands_since(&place), since, "it was away for a moment");
    let entry = etcd.value(&place).expect("it is still there");
    assert!(entry.contains("state: serving"), "{entry}");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    at_home.signal("TERM");
    let told = at_home.rest();
    let gone = told.iter().filter(|event| event["event"] == "fleet_changed").find(|event| {
        let says = |word: &str| event[word].as_array().is_some_and(|names| names.iter().any(|name| name == "osaka"));
        says("draining") || says("left")
    });
    assert!(gone.is_none(), "{gone:?}");
}

/// Which of its entries it is.
fn number(etcd: &Etcd, place: &str) -> u64 {
    let entry = etcd.value(place).expect("an entry");
    let line = entry.lines().find_map(|line| line.strip_prefix("number: ")).expect("a number");
    line.parse().expect("a number")
}

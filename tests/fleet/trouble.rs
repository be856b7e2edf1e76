//! etcd is away, comes back, comes back as it was long ago, hangs, or is full: the last known fleet goes on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;

/// Two relays that know each other.
fn pair(etcd: &Etcd) -> (Site, Relay, Site, Relay) {
    let fleet = Fleet::new();
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(etcd, BY_OSAKA);
    let mut at_osaka = osaka.start(etcd, "");
    hears(&mut at_home, "joined", "osaka");
    hears(&mut at_osaka, "joined", "home");
    (home, at_home, osaka, at_osaka)
}

fn etcd_is(relay: &mut Relay, word: &str) {
    relay.next(|event| event["event"] == word);
}

#[test]
fn etcd_that_is_killed_takes_nobody_with_it() {
    let (mut etcd, target) = (Etcd::start(), echo());
    let (home, mut at_home, _osaka, mut at_osaka) = pair(&etcd);
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
    let (home, mut at_home, osaka, _at_osaka) = pair(&etcd);
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
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
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
    let (_home, mut at_home, _osaka, mut at_osaka) = pair(&etcd);
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

/// Carries bytes to `port` and back, each a little later.
fn slow_way_to(port: u16, delay: Duration) -> (u16, Arc<AtomicU64>) {
    let carried = Arc::new(AtomicU64::new(0));
    let (listener, address): (TcpListener, _) = server();
    let counted = Arc::clone(&carried);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(onward) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            for (from, to) in [(&stream, &onward), (&onward, &stream)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        // Not to wait for something: this is the delay that is tested.
                        std::thread::park_timeout(delay);
                        counted.fetch_add(count as u64, Ordering::Relaxed);
                        if to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address.port(), carried)
}

#[test]
fn a_far_etcd_is_as_good_as_a_near_one() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let (port, carried) = slow_way_to(etcd.port, Duration::from_millis(150));
    let mut at_home = home.run(&home.config_at(&format!("http://127.0.0.1:{port}"), "", BY_OSAKA));
    let at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    goes(&mut at_home, target, "by-osaka");
    assert!(carried.load(Ordering::Relaxed) > 0);
    drop(at_osaka);
}

#[test]
fn a_full_etcd_still_tells_who_is_there() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes", "2000000"]);
    let (_home, mut at_home, _osaka, _at_osaka) = pair(&etcd);
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

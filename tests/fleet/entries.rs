//! The entries that relays write, and their lifetime in etcd.

use std::time::Duration;

use ekiden_proto::fleet::{CertificateRequest, FleetEntry, Neighbour};
use serde_json::Value;

use crate::etcd::Etcd;
use crate::fixture::*;
use crate::harness::*;

/// Returns the key-value record of etcd for an entry; `None` if the entry does not exist.
fn stored_record(etcd: &Etcd, entry_key: &str) -> Option<Value> {
    let answer: Value = serde_json::from_str(&etcd.ask(&["get", entry_key, "--write-out", "json"])).unwrap();
    answer["kvs"].get(0).cloned()
}

#[test]
fn entry_is_deleted_with_its_relay_and_not_before() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let at_home = home.start(&etcd, "");
    let at_osaka = osaka.start(&etcd, "");
    let mut at_kobe = kobe.run(&kobe.config_with_times(&etcd, "1h", "1h", ""));
    let [home, osaka, kobe] = [&home, &osaka, &kobe].map(|site| site.entry_key(&etcd));
    let since = stored_record(&etcd, &home).unwrap()["create_revision"].clone();
    // The drop kills osaka, and its lease of 5 s expires. kobe gets SIGTERM, and deletes its entry, whose lease is 1 h.
    drop(at_osaka);
    at_kobe.signal("TERM");
    assert_eq!(at_kobe.exit_code(), Some(0));
    // etcd may carry the deletion out after the relay has stopped waiting for it.
    eventually("the deletion of kobe's entry", || stored_record(&etcd, &kobe).is_none().then_some(()));
    eventually("the end of a lease", || stored_record(&etcd, &osaka).is_none().then_some(()));
    assert_eq!(stored_record(&etcd, &home).unwrap()["create_revision"], since, "the entry was deleted in between");
    // A relay whose lease has expired may only be disconnected from etcd, so the relay stays a member.
    wait_missing(&at_home, "osaka");
}

#[test]
fn revoked_lease_is_replaced() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let home = fleet.site("home");
    // With `every` of 1 h the relay writes a deleted entry again after 30 s, later than this test waits. The
    // loss of the lease is detected at the next renewal, and the entry is then written at once.
    let mut at_home = home.run(&home.config_with_times(&etcd, "5s", "1h", ""));
    let entry_key = home.entry_key(&etcd);
    let lease = stored_record(&etcd, &entry_key).unwrap()["lease"].as_u64().unwrap();
    etcd.ask(&["lease", "revoke", &format!("{lease:x}")]);
    let again = eventually("another entry", || stored_record(&etcd, &entry_key));
    assert!(again["lease"].as_u64().is_some_and(|other| other != 0 && other != lease), "{again}");
    at_home.signal("TERM");
    assert!(at_home.remaining_events().iter().all(|event| event["event"] != "etcd_unreachable"));
}

#[test]
fn measured_neighbours_are_written_to_the_entry() {
    const AUTO: &str = "[[path]]\nname = \"by-osaka\"\nrelays = [\"osaka\"]\n\
        [[route]]\nto = [\"*.example\"]\npath = \"auto\"\n[[route]]\npath = [\"by-osaka\", \"direct\"]\n";
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, AUTO);
    let entry_key = home.entry_key(&etcd);
    let _at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_path(&mut at_home, target, "by-osaka");
    let line = format!("\nneighbour: {} ", osaka.key.public);
    eventually("a measurement", || etcd.value(&entry_key)?.contains(&line).then_some(()));
}

#[test]
fn measurements_in_entries_are_known_to_other_relays() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka, nara) = (fleet.site("home"), fleet.site("osaka"), fleet.site("nara"));
    let at_home = home.start(&etcd, "");
    // No relay listens at nara's address, so the entry in etcd is the only source of the measurement.
    let CertificateRequest { key, .. } = CertificateRequest::for_relay(&osaka.private());
    let neighbour = Neighbour { key, rtt: Duration::from_millis(9), loss_ppm: 0, rate: 1_000_000, age: 1 };
    nara.publish(&etcd, &FleetEntry { neighbours: vec![neighbour], ..nara.entry(&fleet, -60..60, 0) });
    let wait_measurement = |relay: &Relay| {
        eventually("nara's measurement of osaka", || {
            let known: Value = serde_json::from_str(&relay.ask("/api/paths")).unwrap();
            let is_reported = |entry: &&Value| entry["to"] == *osaka.key.public && entry["told_by"] == *nara.key.public;
            known.as_array()?.iter().find(is_reported).map(|_| ())
        });
    };
    wait_measurement(&at_home);
    // After a restart, the relay knows the entry from its state file when it reads the same entry from etcd.
    home.wait_stored("nara");
    drop(at_home);
    wait_measurement(&home.start(&etcd, ""));
}

//! The last known fleet stays in use while etcd is unavailable, hangs or is full, after etcd was restored from an old
//! backup or has compacted its history, and while the disk of the state file is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::etcd::Etcd;
use super::etcd_proxy::EtcdProxy;
use super::fixture::*;
use super::harness::*;

#[test]
fn fleet_survives_a_killed_etcd_and_a_relay_restart() {
    let (mut etcd, target) = (Etcd::start(), echo_server());
    let (home, mut at_home, _osaka, mut at_osaka) = pair(&etcd, &Fleet::new());
    home.wait_stored("osaka");
    let mut running = session(&at_home, target);
    etcd.kill();
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    wait_etcd_event(&mut at_osaka, "etcd_unreachable");
    assert_echo(&mut running);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    // A relay that starts without etcd reads the fleet from its state file.
    drop((running, at_home));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    etcd.run();
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_etcd_event(&mut at_osaka, "etcd_reachable");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    let written = |relay: &Relay| {
        let answer: Value = serde_json::from_str(&relay.ask("/api/fleet")).unwrap();
        answer["written"].as_u64().filter(|written| *written >= 1)
    };
    eventually("the new entry in etcd", || written(&at_home));
}

#[test]
fn relays_restore_their_entries_in_an_emptied_etcd() {
    let (etcd, target) = (Etcd::start(), echo_server());
    let (home, mut at_home, osaka, _at_osaka) = pair(&etcd, &Fleet::new());
    etcd.ask(&["del", "", "--prefix"]);
    // Both relays write their own entries again.
    home.entry_key(&etcd);
    osaka.entry_key(&etcd);
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    eventually("osaka listed again", || member(&at_home, "osaka")?["missing_seconds"].is_null().then_some(()));
}

#[test]
fn members_survive_the_restore_of_an_old_etcd_snapshot() {
    let (mut etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let mut at_home = home.start(&etcd, BY_OSAKA);
    home.entry_key(&etcd);
    let backup = etcd.backup();
    let mut at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    // The snapshot has no entry of osaka, and an old entry of home.
    let restored = Instant::now();
    etcd.restore(&backup);
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_etcd_event(&mut at_osaka, "etcd_reachable");
    osaka.entry_key(&etcd);
    wait_path(&mut at_home, target, "by-osaka");
    eventually("osaka's new entry", || {
        // Taken before the request: an entry from before the restore has a larger age in the response.
        let since = restored.elapsed().as_secs_f64();
        let now = member(&at_home, "osaka")?;
        (now["age_seconds"].as_f64()? < since && now["missing_seconds"].is_null()).then_some(())
    });
}

#[test]
fn hanging_etcd_does_not_block_sessions() {
    let (etcd, target) = (Etcd::start(), echo_server());
    let (_home, mut at_home, _osaka, mut at_osaka) = pair(&etcd, &Fleet::new());
    etcd.signal("STOP");
    // The kernel still accepts connections for the stopped etcd, which never answers.
    for _ in 0..20 {
        assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    }
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    wait_etcd_event(&mut at_osaka, "etcd_unreachable");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    etcd.signal("CONT");
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_etcd_event(&mut at_osaka, "etcd_reachable");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
}

#[test]
fn hanging_etcd_is_detected_before_the_next_lease_renewal() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let home = fleet.site("home");
    let mut at_home = home.run(&home.config_with_times(&etcd, "1h", "1s", ""));
    home.entry_key(&etcd);
    etcd.signal("STOP");
    // The next renewal of the lease is due in 20 minutes.
    let down = wait_etcd_event(&mut at_home, "etcd_unreachable");
    assert!(down["detail"].as_str().unwrap().contains("no answer within 5 s"), "{down}");
    etcd.signal("CONT");
    wait_etcd_event(&mut at_home, "etcd_reachable");
}

#[test]
fn huge_foreign_values_do_not_hide_members() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let _at_osaka = osaka.start(&etcd, "");
    osaka.entry_key(&etcd);
    // One page of all keys is 35 MB as JSON, which is more than the relay accepts; a page of eight keys is not.
    let huge = "x".repeat(1_000_000);
    (0..26).for_each(|at| etcd.put(&format!("{}!{at:02}", Fleet::SHARED), &huge));
    let mut at_home = home.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    at_home.signal("TERM");
    // On a busy machine the request for 26 MB may exceed the timeout of requests, and the relay then reports etcd as
    // unreachable. This event is accepted here.
    let is_too_large = |event: &Value| event["detail"].as_str().is_some_and(|detail| detail.contains("too large"));
    assert!(!at_home.remaining_events().iter().any(is_too_large));
}

#[test]
fn fleet_works_over_a_high_latency_etcd() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let proxy = EtcdProxy::with_delay(etcd.port, Duration::from_millis(150));
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", BY_OSAKA));
    let at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_path(&mut at_home, target, "by-osaka");
    // The watch also reports a later member, without a new connection.
    let kobe = fleet.site("kobe");
    let _at_kobe = kobe.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "kobe");
    at_home.signal("TERM");
    // On a busy machine a request may exceed its timeout; this event is accepted here.
    let is_lost = |event: &Value| {
        event["event"] == "etcd_unreachable" && !event["detail"].as_str().unwrap().contains("no answer within")
    };
    assert!(!at_home.remaining_events().iter().any(is_lost));
    drop(at_osaka);
}

#[test]
fn full_etcd_is_reported_and_members_stay_in_use() {
    let etcd = Etcd::start_with(&["--quota-backend-bytes", "2000000"]);
    let (_home, mut at_home, _osaka, _at_osaka) = pair(&etcd, &Fleet::new());
    let much = "x".repeat(100_000);
    eventually("a full etcd", || (!etcd.ctl(&["put", "/much", &much]).status.success()).then_some(()));
    let (other, target) = (Fleet::new(), echo_server());
    let kobe = other.site("kobe");
    let mut at_kobe = kobe.start(&etcd, "");
    wait_warning(&mut at_kobe, "etcd is full");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
    drop(session(&at_kobe, target));
    assert_eq!(closed(&mut at_kobe)["end"], "finished");
}

#[test]
fn second_etcd_server_is_used_when_the_first_is_unreachable() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let home = fleet.site("home");
    let two = format!("http://{}\", \"{}", unused_address(), etcd.url());
    let _at_home = home.run(&home.config_at(&two, "", ""));
    home.entry_key(&etcd);
}

#[test]
fn member_expired_during_a_disconnection_is_marked_missing() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let proxy = EtcdProxy::with_delay(etcd.port, Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", BY_OSAKA));
    let at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    let entry_key = osaka.entry_key(&etcd);
    proxy.cut();
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    drop(at_osaka);
    eventually("the end of osaka's lease", || etcd.value(&entry_key).is_none().then_some(()));
    proxy.resume();
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_missing(&at_home, "osaka");
}

#[test]
fn relay_that_drains_without_etcd_is_draining_after_the_reconnection() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let proxy = EtcdProxy::with_delay(etcd.port, Duration::ZERO);
    let (_home, mut at_home, _osaka, mut at_osaka) =
        pair_with(&etcd, &fleet, |osaka| osaka.config_at(&proxy.url(), "", ""));
    let mut running = session(&at_home, target);
    proxy.cut();
    wait_etcd_event(&mut at_osaka, "etcd_unreachable");
    at_osaka.signal("TERM");
    assert_eq!(at_osaka.next(|event| event["event"] == "draining")["open"], 1);
    proxy.resume();
    wait_fleet_change(&mut at_home, "draining", "osaka");
    assert_echo(&mut running);
}

#[test]
fn reload_changes_how_long_a_missing_member_is_kept() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, mut at_home, _osaka, at_osaka) = pair(&etcd, &fleet);
    drop(at_osaka);
    wait_missing(&at_home, "osaka");
    home.config_at(&etcd.url(), "keep = \"1s\"", BY_OSAKA);
    at_home.signal("HUP");
    wait_fleet_change(&mut at_home, "left", "osaka");
}

#[test]
fn reload_without_etcd_keeps_the_members() {
    let (mut etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let config = home.config_without(&etcd, "state");
    let text = std::fs::read_to_string(&config).unwrap() + BY_OSAKA;
    std::fs::write(&config, text).unwrap();
    let mut at_home = home.run(&config);
    home.entry_key(&etcd);
    let _at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_path(&mut at_home, target, "by-osaka");
    etcd.kill();
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    at_home.signal("HUP");
    at_home.next(|event| event["event"] == "reloaded");
    assert_eq!(path_of_a_session(&mut at_home, target), "by-osaka");
}

/// Returns a prefix for a command in its own mount namespace, with a tmpfs of `size` at `folder`, which is removed when
/// the process ends; `None`, with a message that the test is skipped, without the permission.
fn command_with_small_disk(folder: &Path, size: &str) -> Option<Command> {
    let mount = format!("mount -t tmpfs -o size={size} none {}", folder.display());
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command
    };
    let tried = unshared(&mount).output();
    if tried.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(unshared(&format!("{mount} && exec \"$@\"")));
    }
    skipped(format_args!("no mount namespace with a tmpfs in it: {tried:?}"));
    None
}

/// Writes to `path` until the file system is full.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[b'x'; 512]).is_ok() {}
}

#[test]
fn full_disk_is_reported_once_and_the_state_is_written_later() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (mut home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let small = home.folder("small");
    let Some(mut command) = command_with_small_disk(&small, "64k") else { return };
    home.state = small.join("state");
    command.arg(ekiden().get_program()).args(["run", "-c"]).arg(home.config(&etcd, BY_OSAKA));
    let mut at_home = Relay::start(&mut command, 2);
    // Maps a path in the relay's mount namespace to a path for the test.
    let inside = |path: &Path| PathBuf::from(format!("/proc/{}/root{}", at_home.id(), path.display()));
    let (state, beside, filler) =
        (inside(&home.state), inside(&small.join("state.new")), inside(&small.join("filler")));
    let stored = |name: &str| fs::read_to_string(&state).ok()?.contains(&format!("name: {name}")).then_some(());
    eventually("home in the state file", || stored("home"));
    fill(&filler);
    let _at_osaka = osaka.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    let warning = wait_warning(&mut at_home, "cannot write the last known state");
    assert!(warning["message"].as_str().unwrap().contains("No space left on device"), "{warning}");
    wait_path(&mut at_home, target, "by-osaka");
    // The complete file is still there, and no partial file replaces it.
    assert!(stored("home").is_some() && stored("osaka").is_none());
    eventually("the removal of the partial file", || (!beside.exists()).then_some(()));
    let _at_kobe = kobe.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "kobe");
    fs::remove_file(&filler).unwrap();
    eventually("osaka and kobe in the state file", || stored("osaka").and(stored("kobe")));
    at_home.signal("TERM");
    assert_eq!(count_warnings(&mut at_home, "cannot write the last known state"), 0, "repeated warning");
}

/// Compacts the history of etcd, and asserts that the revision in which `key` was created is no longer available.
fn compact_past(etcd: &Etcd, key: &str) {
    let created = etcd.create_revision(key).to_string();
    etcd.put("/elsewhere", "one");
    etcd.compact();
    let old = etcd.ctl(&["get", key, "--rev", &created]);
    let error = String::from_utf8_lossy(&old.stderr);
    assert!(!old.status.success() && error.contains("has been compacted"), "revision {created} is available: {error}");
}

#[test]
fn compaction_does_not_disturb_a_running_watch() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, mut at_home, _osaka, _at_osaka) = pair(&etcd, &fleet);
    compact_past(&etcd, &home.entry_key(&etcd));
    let kobe = fleet.site("kobe");
    let _at_kobe = kobe.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "kobe");
    at_home.signal("TERM");
    assert!(at_home.remaining_events().iter().all(|event| event["event"] != "etcd_unreachable"));
}

#[test]
fn compaction_before_the_watch_causes_a_full_read() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let _at_osaka = osaka.start(&etcd, "");
    osaka.entry_key(&etcd);
    let proxy = EtcdProxy::with_hold_after(etcd.port, "name: osaka");
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", BY_OSAKA));
    // Home has read all entries, and the next revisions are compacted before home watches.
    proxy.wait_held();
    etcd.put("/elsewhere", "one");
    etcd.put("/elsewhere", "two");
    etcd.compact();
    proxy.release();
    let down = wait_etcd_event(&mut at_home, "etcd_unreachable");
    assert!(down["detail"].as_str().unwrap().contains("since the last read: all entries are read again"), "{down}");
    wait_etcd_event(&mut at_home, "etcd_reachable");
    let _at_kobe = kobe.start(&etcd, "");
    wait_fleet_change(&mut at_home, "joined", "kobe");
    wait_path(&mut at_home, target, "by-osaka");
}

#[test]
fn compaction_between_pages_causes_a_full_read() {
    let (etcd, fleet) = (Etcd::start(), Fleet::new());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    // More keys than one page of a read, in two transactions: etcd limits the number of operations in a transaction.
    for half in 0..2 {
        let puts: String =
            (0..100).map(|at| format!("put {}!{half}{at:02} \"one of many\"\n", Fleet::SHARED)).collect();
        etcd.puts(&puts);
    }
    let _at_osaka = osaka.start(&etcd, "");
    osaka.entry_key(&etcd);
    let proxy = EtcdProxy::with_hold_after(etcd.port, "one of many");
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", BY_OSAKA));
    proxy.wait_held();
    etcd.put("/elsewhere", "one");
    etcd.compact();
    proxy.release();
    let down = wait_etcd_event(&mut at_home, "etcd_unreachable");
    assert!(down["detail"].as_str().unwrap().contains("has been compacted; all entries are read again"), "{down}");
    wait_fleet_change(&mut at_home, "joined", "osaka");
}

#[test]
fn compaction_during_a_disconnection_hides_no_new_member() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo_server());
    let (home, osaka) = (fleet.site("home"), fleet.site("osaka"));
    let proxy = EtcdProxy::with_delay(etcd.port, std::time::Duration::ZERO);
    let mut at_home = home.run(&home.config_at(&proxy.url(), "", BY_OSAKA));
    home.entry_key(&etcd);
    proxy.cut();
    wait_etcd_event(&mut at_home, "etcd_unreachable");
    let _at_osaka = osaka.start(&etcd, "");
    compact_past(&etcd, &osaka.entry_key(&etcd));
    assert_eq!(path_of_a_session(&mut at_home, target), "direct");
    proxy.resume();
    wait_etcd_event(&mut at_home, "etcd_reachable");
    wait_fleet_change(&mut at_home, "joined", "osaka");
    wait_path(&mut at_home, target, "by-osaka");
}

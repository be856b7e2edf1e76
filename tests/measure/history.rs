//! `[history]`: measurements in the file, and relays that cannot write the file.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::*;
use crate::relays::*;
use crate::reports::*;

/// Writes the configuration of a relay that measures sections and stores its measurements in `file`.
fn config_with_history(site: &Site, file: &Path) -> std::path::PathBuf {
    let far = Site::new();
    site.write_home(&format!("{}[history]\nfile = {file:?}\n", settings(&far, far.address, unused_address())), AUTO)
}

fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()
}

/// Stops the relay, and returns the warnings in the log that the test has not read yet.
fn warnings(relay: &mut Relay) -> Vec<String> {
    relay.signal("TERM");
    let events = relay.remaining_events();
    assert_eq!(relay.exit_code(), Some(0));
    let of = |event: &Value| event["message"].as_str().map(str::to_owned);
    events.iter().filter(|event| event["event"] == "warning").filter_map(of).collect()
}

/// The relay uses only measurements of earlier weeks from the file, so `/api/paths` does not show these measurements
/// after the restart, and the test reads the file.
#[test]
fn measurements_stay_in_the_file_across_restarts() {
    let (site, target) = (Site::new(), byte_server(500_000));
    let file = site.folder.0.join("history.db");
    let configuration = config_with_history(&site, &file);
    let mut relay = start(&configuration);
    download(&relay, target);
    wait_for_entry(&relay, LOOPBACK_NET, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&file).starts_with("SQLite format 3\0") && text_of(&file).contains(LOOPBACK_NET));

    let mut again = start(&configuration);
    assert_eq!(warnings(&mut again), Vec::<String>::new());
    assert!(text_of(&file).contains(LOOPBACK_NET), "the earlier measurements are missing");
}

/// Asserts that a relay that cannot write its history logs one warning with the text `wanted`, carries sessions and
/// measures sections.
fn assert_one_warning_and_service(mut relay: Relay, wanted: &str) {
    let target = byte_server(500_000);
    let warning = relay.next(|event| event["event"] == "warning");
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("cannot update the history in") && message.contains(wanted), "{message}");
    assert_eq!(download(&relay, target), 500_000);
    wait_for_entry(&relay, LOOPBACK_NET, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new(), "logged again");
}

#[test]
fn corrupt_file_is_logged_once_and_left_unchanged() {
    let site = Site::new();
    let file = site.folder.write_with_mode("history.db", pattern(10_000), 0o600);
    assert_one_warning_and_service(start(&config_with_history(&site, &file)), "not a database");
    assert!(std::fs::read(&file).unwrap() == pattern(10_000), "the file was changed");
}

#[test]
fn removed_corrupt_file_is_created_anew() {
    let (site, target) = (Site::new(), byte_server(500_000));
    let file = site.folder.write_with_mode("history.db", pattern(10_000), 0o600);
    let mut relay = start(&config_with_history(&site, &file));
    relay.next(|event| event["event"] == "warning");
    std::fs::remove_file(&file).unwrap();
    download(&relay, target);
    wait_for_entry(&relay, LOOPBACK_NET, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&file).contains(LOOPBACK_NET));
}

#[test]
fn reload_switches_the_history_file() {
    let (site, target) = (Site::new(), byte_server(500_000));
    let [before, after] = ["before.db", "after.db"].map(|name| site.folder.0.join(name));
    let mut relay = start(&config_with_history(&site, &before));
    config_with_history(&site, &after);
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    download(&relay, target);
    wait_for_entry(&relay, LOOPBACK_NET, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&after).contains(LOOPBACK_NET) && !text_of(&before).contains(LOOPBACK_NET));
}

/// Starts a relay whose history is on a tmpfs with these mount options, in a mount namespace that ends with the relay.
/// Returns `None` and prints a message if the mount is not permitted.
fn start_on_file_system(options: &str) -> Option<(Relay, Site)> {
    let site = Site::new();
    let folder = site.folder.0.join("small");
    std::fs::create_dir(&folder).unwrap();
    let configuration = config_with_history(&site, &folder.join("history.db"));
    let mount = format!("mount -t tmpfs -o {options} none {}", folder.display());
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]);
        command
    };
    match unshared(&mount).output() {
        Ok(output) if output.status.success() => {}
        tried => {
            skipped(format_args!("no mount namespace with a tmpfs in it: {tried:?}"));
            return None;
        }
    }
    let mut command = unshared(&format!("{mount} && exec \"$@\""));
    let ekiden = ekiden();
    command.arg(ekiden.get_program()).args(["run", "-c"]).arg(configuration);
    Some((Relay::start(&mut command, 1), site))
}

#[test]
fn full_disk_is_logged_once() {
    let Some((relay, _site)) = start_on_file_system("size=8k") else { return };
    assert_one_warning_and_service(relay, "full");
}

#[test]
fn read_only_disk_is_logged_once() {
    let Some((relay, _site)) = start_on_file_system("ro") else { return };
    assert_one_warning_and_service(relay, "unable to open");
}

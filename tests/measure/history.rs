//! `[history]`: the stored measurements, and relays that cannot store any.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::*;
use crate::known::*;
use crate::relays::*;

/// The configuration of a relay that chooses paths and stores its measurements in `file`.
fn kept_in(site: &Site, file: &Path) -> std::path::PathBuf {
    let far = Site::new();
    site.write_home(&format!("{}[history]\nfile = {file:?}\n", settings(&far, far.address, nobody())), AUTO)
}

fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned()
}

/// Ends the relay, and returns the warnings that it has logged until its end.
fn warnings(relay: &mut Relay) -> Vec<String> {
    relay.signal("TERM");
    let events = relay.rest();
    assert_eq!(relay.exit_code(), Some(0));
    let of = |event: &Value| event["message"].as_str().map(str::to_owned);
    events.iter().filter(|event| event["event"] == "warning").filter_map(of).collect()
}

#[test]
fn what_was_measured_is_kept_from_run_to_run() {
    let (site, target) = (Site::new(), generous(500_000));
    let file = site.folder.0.join("history.db");
    let configuration = kept_in(&site, &file);
    let mut relay = start(&configuration);
    take_all(&relay, target);
    learns(&relay, HERE, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&file).starts_with("SQLite format 3\0") && text_of(&file).contains(HERE));

    let mut again = start(&configuration);
    assert_eq!(warnings(&mut again), Vec::<String>::new());
    assert!(text_of(&file).contains(HERE), "it is there still");
}

/// A relay that cannot store its history warns once, and carries sessions.
fn says_so_once_and_runs_on(mut relay: Relay, wanted: &str) {
    let target = generous(500_000);
    let warning = relay.next(|event| event["event"] == "warning");
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("no history is kept in") && message.contains(wanted), "{message}");
    assert_eq!(take_all(&relay, target), 500_000);
    learns(&relay, HERE, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new(), "said again");
}

#[test]
fn a_broken_file_is_said_once_and_left_alone() {
    let site = Site::new();
    let file = site.folder.write_with_mode("history.db", pattern(10_000), 0o600);
    says_so_once_and_runs_on(start(&kept_in(&site, &file)), "not a database");
    assert!(std::fs::read(&file).unwrap() == pattern(10_000), "the file was changed");
}

#[test]
fn a_file_that_is_out_of_the_way_is_begun_anew() {
    let (site, target) = (Site::new(), generous(500_000));
    let file = site.folder.write_with_mode("history.db", pattern(10_000), 0o600);
    let mut relay = start(&kept_in(&site, &file));
    relay.next(|event| event["event"] == "warning");
    std::fs::remove_file(&file).unwrap();
    take_all(&relay, target);
    learns(&relay, HERE, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&file).contains(HERE));
}

#[test]
fn a_reload_moves_the_history() {
    let (site, target) = (Site::new(), generous(500_000));
    let [before, after] = ["before.db", "after.db"].map(|name| site.folder.0.join(name));
    let mut relay = start(&kept_in(&site, &before));
    kept_in(&site, &after);
    relay.signal("HUP");
    relay.next(|event| event["event"] == "reloaded");
    take_all(&relay, target);
    learns(&relay, HERE, None, |_| true);
    assert_eq!(warnings(&mut relay), Vec::<String>::new());
    assert!(text_of(&after).contains(HERE) && !text_of(&before).contains(HERE));
}

/// A relay whose history is on a separate file system, in a mount namespace that ends with the relay.
fn with_file_system(options: &str) -> Option<(Relay, Site)> {
    let site = Site::new();
    let folder = site.folder.0.join("small");
    std::fs::create_dir(&folder).unwrap();
    let configuration = kept_in(&site, &folder.join("history.db"));
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
fn a_full_disk_is_said_once() {
    let Some((relay, _site)) = with_file_system("size=8k") else { return };
    says_so_once_and_runs_on(relay, "full");
}

#[test]
fn a_disk_that_cannot_be_written_to_is_said_once() {
    let Some((relay, _site)) = with_file_system("ro") else { return };
    says_so_once_and_runs_on(relay, "unable to open");
}

//! The disk under the state file is full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::etcd::Etcd;
use crate::harness::*;
use crate::scene::*;

/// A command in a mount namespace of its own that goes with it, behind a file system of this size at `folder`.
fn behind_a_small_disk(folder: &Path, size: &str) -> Option<Command> {
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
    println!("skipped: no mount namespace with a tmpfs in it: {tried:?}");
    None
}

/// Writes to `path` until there is no room.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    while file.write_all(&[b'x'; 512]).is_ok() {}
}

#[test]
fn a_full_disk_is_said_once_and_written_to_when_there_is_room() {
    let (etcd, fleet, target) = (Etcd::start(), Fleet::new(), echo());
    let (mut home, osaka, kobe) = (fleet.site("home"), fleet.site("osaka"), fleet.site("kobe"));
    let small = home.folder("small");
    let Some(mut command) = behind_a_small_disk(&small, "64k") else { return };
    home.state = small.join("state");
    command.arg(ekiden().get_program()).args(["run", "-c"]).arg(home.config(&etcd, BY_OSAKA));
    let mut at_home = Relay::start(&mut command, 2);
    // The same file, seen from where we are.
    let inside = |path: &Path| PathBuf::from(format!("/proc/{}/root{}", at_home.id(), path.display()));
    let (state, beside, filler) =
        (inside(&home.state), inside(&small.join("state.new")), inside(&small.join("filler")));
    let keeps = |name: &str| fs::read_to_string(&state).ok()?.contains(&format!("name: {name}")).then_some(());
    eventually("home in the file", || keeps("home"));
    fill(&filler);
    let _at_osaka = osaka.start(&etcd, "");
    hears(&mut at_home, "joined", "osaka");
    let warning = warns(&mut at_home, "cannot keep the last known state");
    assert!(warning["message"].as_str().unwrap().contains("No space left on device"), "{warning}");
    goes(&mut at_home, target, "by-osaka");
    // What it could keep is still there, and half a file is not.
    assert!(keeps("home").is_some() && keeps("osaka").is_none());
    eventually("no half of a file", || (!beside.exists()).then_some(()));
    let _at_kobe = kobe.start(&etcd, "");
    hears(&mut at_home, "joined", "kobe");
    fs::remove_file(&filler).unwrap();
    eventually("everybody in the file", || keeps("osaka").and(keeps("kobe")));
    at_home.signal("TERM");
    assert_eq!(warnings(&mut at_home, "cannot keep the last known state"), 0, "said again");
}

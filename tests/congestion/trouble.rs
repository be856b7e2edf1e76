//! Missing permissions, features and files: the messages, and the replacement.

use crate::harness::{Folder, ekiden, eventually};
use crate::room::{NOBODY, Room};
use crate::turn::{RegistrationLock, wait_absent};

#[test]
fn without_the_kernel_s_types_it_says_so() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let room = Room::after("mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs none /sys/kernel/btf");
    let remedies = ["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"];
    room.ekiden(&format!("cc load {}", turn.name)).because(&remedies);
    let doctor = room.ekiden("doctor").out;
    assert!(doctor.contains("hint  BPF congestion controls") && doctor.contains(remedies[1]), "{doctor}");
}

#[test]
fn without_capabilities_it_names_those_that_are_missing() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let (room, load) = (Room::new(), format!("cc load {}", turn.name));
    let both = "CAP_BPF and CAP_PERFMON: ";
    room.as_nobody(&load).because(&[both, "setcap", "AmbientCapabilities=CAP_BPF CAP_PERFMON"]);
    let but_one = "setpriv --bounding-set -perfmon,-sys_admin --inh-caps -perfmon,-sys_admin";
    let said = room.run(but_one, &load);
    said.because(&["takes CAP_PERFMON: "]);
    let doctor = room.run(NOBODY, "doctor").out;
    assert!(doctor.contains("no CAP_BPF, CAP_PERFMON"), "{doctor}");
    wait_absent(turn.name);
}

#[test]
fn without_a_bpf_file_system_it_says_how_to_mount_it() {
    let Some(turn) = RegistrationLock::acquire_linked() else { return };
    let room = Room::after("umount /sys/fs/bpf 2>/dev/null; true");
    let mount = "mount -t bpf bpf /sys/fs/bpf";
    room.ekiden(&format!("cc load {}", turn.name)).because(&[mount]);
    wait_absent(turn.name);
    let doctor = room.ekiden("doctor").out;
    assert!(doctor.contains("hint  BPF file system") && doctor.contains(mount), "{doctor}");
}

#[test]
fn names_that_are_not_ours_stay_as_they_are() {
    let Some(turn) = RegistrationLock::acquire() else { return };
    let room = Room::new();
    room.ekiden("cc load vages").because(&["perhaps vegas?", "ekiden cc list"]);
    room.ekiden("cc load reno").because(&["no congestion control \"reno\""]);
    room.ekiden("cc unload reno").because(&["the kernel's own"]);
    room.ekiden(&format!("cc unload {}", turn.name)).because(&["not loaded"]);
    // One wrong name among several prevents the whole command.
    room.ekiden(&format!("cc load {} vages", turn.name)).because(&["vages"]);
    assert_eq!(room.listed(turn.name)["origin"], "not_loaded");
}

#[test]
fn a_name_that_a_process_has_is_left_to_it() {
    let Some(turn) = RegistrationLock::acquire_linked() else { return };
    let (room, name) = (Room::new(), turn.name);
    let folder = Folder::new();
    let profile = format!("version = 1\n[admin]\nbind = \"off\"\n[profile.p]\ncongestion = {name:?}\n");
    let file = folder.write("relay.toml", profile);
    let run = format!("run -L tcp://127.0.0.1:0/127.0.0.1:9?profile=p -c {}", file.display());
    let mut holder = room.command("", &run);
    let mut holder = Ended(holder.stdout(std::process::Stdio::null()).spawn().unwrap());
    eventually("the relay", || (room.listed(name)["origin"] == "held").then_some(()));
    let pid = format!("pid {}", holder.0.id());
    room.ekiden(&format!("cc load {name}")).because(&["is taken by ekiden", &pid]);
    room.ekiden(&format!("cc unload {name}")).because(&[&pid, "when that ends"]);
    // After SIGKILL only the kernel can release the registration.
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    wait_absent(name);
    room.ekiden(&format!("cc load {name}")).well();
}

/// A process that is killed when the value is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_name_that_nobody_knows_is_told_when_the_configuration_is_checked() {
    let folder = Folder::new();
    let check = |congestion: &str| {
        let profile = format!("[profile.p]\ncongestion = {congestion:?}\n");
        let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\nprofile = \"p\"\n";
        let file = folder.write("relay.toml", format!("version = 1\n{profile}{listener}"));
        let output = ekiden().arg("check").arg(file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = check("ctpc");
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("congestion = \"ctpc\"") && said.contains("\"ctcp\", perhaps"), "{said}");
    let nothing = (Some(0), String::new());
    assert_eq!((check("ctcp"), check("reno")), (nothing.clone(), nothing));
}

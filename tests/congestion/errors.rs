//! Missing permissions, features and files: the messages, and the replacement.

use crate::harness::{Folder, KillOnDrop, ekiden, eventually};
use crate::mount_namespace::{Namespace, UNPRIVILEGED};
use crate::name_lock::{RegistrationLock, wait_absent};

#[test]
fn missing_kernel_btf_is_reported() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let namespace = Namespace::with_script("mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs none /sys/kernel/btf");
    let remedies = ["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"];
    namespace.ekiden(&format!("cc load {}", lock.name)).expect_failure(&remedies);
    let doctor = namespace.ekiden("doctor").out;
    assert!(doctor.contains("hint  BPF congestion controls") && doctor.contains(remedies[1]), "{doctor}");
}

#[test]
fn missing_capabilities_are_named() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let (namespace, load) = (Namespace::new(), format!("cc load {}", lock.name));
    let both = "CAP_BPF and CAP_PERFMON: ";
    // The unit denies the system call to a process that has the capabilities.
    let unit = ["AmbientCapabilities=CAP_BPF CAP_PERFMON", "SystemCallFilter=bpf"];
    namespace.ekiden_unprivileged(&load).expect_failure(&[both, "setcap", unit[0], unit[1]]);
    let but_one = "setpriv --bounding-set -perfmon,-sys_admin --inh-caps -perfmon,-sys_admin";
    let output = namespace.run(but_one, &load);
    output.expect_failure(&["requires CAP_PERFMON: "]);
    let doctor = namespace.run(UNPRIVILEGED, "doctor").out;
    assert!(doctor.contains("no CAP_BPF, CAP_PERFMON") && doctor.contains(unit[1]), "{doctor}");
    wait_absent(lock.name);
}

#[test]
fn missing_bpf_file_system_error_names_the_mount_command() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    let namespace = Namespace::with_script("umount /sys/fs/bpf 2>/dev/null; true");
    let mount = "mount -t bpf bpf /sys/fs/bpf";
    namespace.ekiden(&format!("cc load {}", lock.name)).expect_failure(&[mount]);
    wait_absent(lock.name);
    let doctor = namespace.ekiden("doctor").out;
    assert!(doctor.contains("hint  BPF file system") && doctor.contains(mount), "{doctor}");
}

#[test]
fn foreign_and_unknown_names_are_rejected() {
    let Some(lock) = RegistrationLock::acquire() else { return };
    let namespace = Namespace::new();
    namespace.ekiden("cc load vages").expect_failure(&["perhaps vegas?", "ekiden cc list"]);
    namespace.ekiden("cc load reno").expect_failure(&["no congestion control \"reno\""]);
    namespace.ekiden("cc unload reno").expect_failure(&["a control of the kernel, which cannot be unloaded"]);
    namespace.ekiden(&format!("cc unload {}", lock.name)).expect_failure(&["not loaded"]);
    // With one unknown name the command loads no control.
    namespace.ekiden(&format!("cc load {} vages", lock.name)).expect_failure(&["vages"]);
    assert_eq!(namespace.listed(lock.name)["origin"], "not_loaded");
}

#[test]
fn name_held_by_a_process_cannot_be_loaded_or_unloaded() {
    let Some(lock) = RegistrationLock::acquire_linked() else { return };
    let (namespace, name) = (Namespace::new(), lock.name);
    let folder = Folder::new();
    let profile = format!("version = 1\n[admin]\nbind = \"off\"\n[profile.p]\ncongestion = {name:?}\n");
    let file = folder.write("relay.toml", profile);
    let run = format!("run -L tcp://127.0.0.1:0/127.0.0.1:9?profile=p -c {}", file.display());
    let mut holder = namespace.command("", &run);
    let mut holder = KillOnDrop(holder.stdout(std::process::Stdio::null()).spawn().unwrap());
    eventually("the congestion control held by the relay", || {
        (namespace.listed(name)["origin"] == "held").then_some(())
    });
    let pid = format!("pid {}", holder.0.id());
    namespace.ekiden(&format!("cc load {name}")).expect_failure(&["is taken by ekiden", &pid]);
    namespace.ekiden(&format!("cc unload {name}")).expect_failure(&[&pid, "when the process ends"]);
    // After SIGKILL only the kernel can release the registration.
    holder.0.kill().unwrap();
    holder.0.wait().unwrap();
    wait_absent(name);
    namespace.ekiden(&format!("cc load {name}")).expect_success();
}

#[test]
fn check_rejects_unknown_controls_with_a_suggestion() {
    let folder = Folder::new();
    let check = |congestion: &str| {
        let profile = format!("[profile.p]\ncongestion = {congestion:?}\n");
        let listener = "[[listener]]\nbind = \"127.0.0.1:0\"\nprofile = \"p\"\n";
        let file = folder.write("relay.toml", format!("version = 1\n{profile}{listener}"));
        let output = ekiden().arg("check").arg(file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, output) = check("ctpc");
    assert_eq!(status, Some(2), "{output}");
    assert!(output.contains("congestion = \"ctpc\"") && output.contains("\"ctcp\", perhaps"), "{output}");
    let nothing = (Some(0), String::new());
    assert_eq!((check("ctcp"), check("reno")), (nothing.clone(), nothing));
}

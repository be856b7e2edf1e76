//! Congestion controls that ekiden brings, on a host without a BPF file system.

use std::process::Command;

use crate::scene::{ExperimentFixture, ekiden, is_skipped, stderr_text};

/// The kernel's mounts of BPF file systems, as this process sees them.
fn bpf_mounts() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(" - bpf ")).map(str::to_owned).collect()
}

/// `mount -t bpf bpf /sys/fs/bpf` had to be said by hand before.
#[test]
fn the_laboratory_mounts_a_bpf_file_system_of_its_own() {
    let Some(ekiden) = ekiden() else {
        eprintln!("skipped: there is no ekiden beside the laboratory (cargo build)");
        return;
    };
    let (scene, before) = (ExperimentFixture::new(), bpf_mounts());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "umount /sys/fs/bpf 2>/dev/null; exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_ekiden-lab")).args(["run", "fit2013-pairs", "--only", "tail-drop", "--time", "1s"]);
    command.args(["--blocks", "1", "--no-check", "--out", "results", "--ekiden"]).arg(ekiden);
    let output = command.current_dir(&scene.0).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    let runs = std::fs::read_to_string(scene.0.join("results/runs.jsonl")).unwrap_or_default();
    assert!(runs.lines().count() >= 4, "{}", stderr_text(&output));
    assert_eq!(bpf_mounts(), before);
}

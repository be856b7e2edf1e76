//! The transfer of a file through SoftEther VPN between two routers.

use std::collections::BTreeMap;
use std::path::Path;

use ekiden_testing::skipped;

use crate::fixture::{ExperimentFixture, bytes_crossed, is_skipped, stderr_text, with_two_routers};

fn with_tunnel() -> String {
    with_two_routers("delay = \"5ms\"")
        .replace("program = \"RELAY\"", "program = \"softether\"")
        .replace("[experiment]", "[experiment]\nlateness_limit = \"1s\"")
}

/// Whether a SoftEther of the host runs, which changes the same files. The SoftEther of a lab has its own PID namespace.
fn runs_on_host() -> bool {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/pid")).ok();
    let own = namespace(Path::new("/proc/self"));
    let mut processes = Path::new("/proc").read_dir().unwrap().flatten().map(|process| process.path());
    processes.any(|process| {
        let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.trim() == "vpnserver" && namespace(&process).is_none_or(|other| Some(other) == own)
    })
}

/// The files that a SoftEther installation of the host would write, with their modification times.
fn host_files() -> BTreeMap<String, std::time::SystemTime> {
    let folders = ["/var/lib/softether", "/var/log/softether", "/run/softether", "/tmp"].map(Path::new);
    let files = folders.iter().filter_map(|folder| folder.read_dir().ok()).flatten().flatten();
    let own =
        files.filter(|file| !file.path().starts_with("/tmp") || with_hidden_name(&file.file_name().to_string_lossy()));
    own.filter_map(|file| Some((file.path().display().to_string(), file.metadata().ok()?.modified().ok()?))).collect()
}

fn with_hidden_name(name: &str) -> bool {
    name.starts_with(".unicode_cache") || name.starts_with(".VPN")
}

#[test]
fn softether_carries_a_file_encrypted_and_leaves_no_files() {
    let (before, is_comparable) = (host_files(), !runs_on_host());
    let fixture = ExperimentFixture::new();
    fixture.write(&with_tunnel());
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    let of = |treatment: &str| {
        let valid = |run: &&serde_json::Value| run["treatment"] == treatment;
        runs.iter().find(valid).unwrap_or_else(|| panic!("{treatment}: {}", stderr_text(&output)))
    };
    let (direct, tunnelled) = (of("direct"), of("relay"));
    assert_eq!(tunnelled["metrics"]["bytes"], 1e6);
    // The tunnel adds 14 bytes for Ethernet, 40 for IP and TCP, and some for TLS to each of 700 packets. Its connection
    // setup takes 36 kB.
    assert!(
        bytes_crossed(tunnelled) > bytes_crossed(direct) + 50_000,
        "{} {}",
        bytes_crossed(tunnelled),
        bytes_crossed(direct)
    );
    if is_comparable {
        assert_eq!(host_files(), before);
    } else {
        skipped("in part: a SoftEther of the host writes the same files");
    }
    let manifest = std::fs::read_to_string(fixture.path().join("results/small-quick/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let programs = manifest["programs"].as_array().unwrap();
    let version = programs.iter().find(|program| program[0] == "softether").unwrap()[1].as_str().unwrap();
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
}

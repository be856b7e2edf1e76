//! The transfer of a file through SoftEther VPN between two routers.

use std::collections::BTreeMap;
use std::path::Path;

use crate::fixture::{ExperimentFixture, SMALL, is_skipped, stderr_text};

fn with_tunnel() -> String {
    SMALL
        .replace("[host.server]", "[host.other]\nforward = true\n[host.server]")
        .replace(
            "ends = [\"relay\", \"server\"]",
            "ends = [\"relay\", \"other\"]\ndelay = \"5ms\"\n[link.last]\nends = [\"other\", \"server\"]",
        )
        .replace("chain = [\"relay\"]", "chain = [\"relay\", \"other\"]")
        .replace("program = \"RELAY\"", "program = \"softether\"")
        .replace("[experiment]", "[experiment]\nlateness_limit = \"1s\"")
}

/// The bytes that entered the link between the two routers at the router of the server in a run.
fn bytes_crossed(run: &serde_json::Value) -> u64 {
    let links = run["links"].as_array().unwrap();
    let direction = links.iter().find(|direction| direction["link"] == "far" && direction["from"] == "other").unwrap();
    direction["bytes_in"].as_u64().unwrap()
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
    let before = host_files();
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
    assert_eq!(host_files(), before);
    let manifest = std::fs::read_to_string(fixture.0.join("results/small-quick/manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let programs = manifest["programs"].as_array().unwrap();
    let version = programs.iter().find(|program| program[0] == "softether").unwrap()[1].as_str().unwrap();
    assert!(version.starts_with(|first: char| first.is_ascii_digit()), "{version}");
}

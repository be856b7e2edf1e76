//! Concurrent runs of groups of connections that share a bottleneck, with congestion controls of the kernel and ekiden.

use std::process::Command;
use std::time::{Duration, Instant};

use super::fixture::{ExperimentFixture, Receiver, ekiden_or_skip, interrupt, is_skipped, stderr_text};

/// CUBIC, Reno and short flows over a line of 20 Mbit/s, with four round-trip times.
const SHARED: &str = r#"
lab = 1
name = "small"
title = "Who gets how much"
[host.a]
[host.b]
[link.line]
ends = ["a", "b"]
rate = "20Mbit/s"
queue = { kind = "tail-drop", limit = "100pkt" }
[workload]
protocol = "share"
time = { quick = "2s", full = "2s" }
ratio = ["reno", "cubic"]
[[workload.group]]
name = "cubic"
from = "a"
to = "b"
congestion = "cubic"
connections = 2
[[workload.group]]
name = "reno"
from = "a"
to = "b"
congestion = "reno"
[[workload.group]]
name = "short"
from = "a"
to = "b"
congestion = "cubic"
short = { bytes = "16KiB", every = "100ms" }
[treatment.tail-drop]
program = "direct"
[experiment]
treatments = ["tail-drop"]
metric = "ratio"
also = ["mbit_s", "jain", "queueing_ms", "completion_ms"]
blocks = { quick = 1, full = 1 }
lateness_limit = "10s"
[[factor]]
name = "rtt"
levels = [
    { name = "2ms", set = { "link.line.delay" = "1ms" } },
    { name = "4ms", set = { "link.line.delay" = "2ms" } },
    { name = "6ms", set = { "link.line.delay" = "3ms" } },
    { name = "8ms", set = { "link.line.delay" = "4ms" } },
]
"#;

#[test]
fn groups_share_a_line_in_concurrent_runs() {
    let fixture = ExperimentFixture::new();
    fixture.write(SHARED);
    let output = fixture.run(&["--no-check", "--jobs", "2"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    assert_eq!(runs.len(), 4, "each run is recorded once: {}", stderr_text(&output));
    for run in &runs {
        let figure = |key: &str| run["metrics"][key].as_f64().unwrap_or(f64::NAN);
        let groups = run["groups"].as_array().unwrap();
        let had: Vec<_> = groups.iter().map(|group| group["congestion"].as_str().unwrap()).collect();
        assert_eq!(had, ["cubic", "reno", "cubic"]);
        assert_eq!(groups[0]["rates"].as_array().unwrap().len(), 2);
        assert!(!groups[2]["completions"].as_array().unwrap().is_empty());
        // The line carries 1448/1500 of 20 Mbit/s, less the losses of slow start and the bytes in flight at the end.
        // The sum of the groups can exceed that, because the time of each group starts at its first connection.
        assert!((10.0..25.0).contains(&figure("mbit_s")), "{run}");
        for group in groups {
            let last = group["timeline"].as_array().unwrap().last().unwrap();
            let (at, bytes) = (last[0].as_f64().unwrap(), last[1].as_f64().unwrap());
            assert!(bytes > 0.0 && bytes * 8.0 / at < 20e6, "{run}");
        }
        assert!(figure("ratio") > 0.0 && (1.0 / 3.0..=1.0).contains(&figure("jain")), "{run}");
        // A full queue of 100 packets of 1500 bytes takes 60 ms at 20 Mbit/s.
        assert!(figure("queueing_ms") > 1.0 && figure("queueing_p99_ms") < 63.0, "{run}");
    }
    assert!(runs.iter().all(|run| run["took"].as_f64() > Some(2.0)), "each run takes two seconds: {runs:?}");
    let page = std::fs::read_to_string(fixture.path().join("results/small-quick/report.html")).unwrap();
    assert!(page.contains("Goodput of each group by rtt") && page.contains("<h2>Groups</h2>"), "{}", page.len());
}

#[test]
fn missing_congestion_control_is_reported_before_any_run() {
    let fixture = ExperimentFixture::new();
    fixture.write(&SHARED.replace("congestion = \"reno\"", "congestion = \"frugal\""));
    let output = fixture.run(&["--no-check"]);
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr_text(&output).contains("congestion = \"frugal\", but this kernel has: "),
        "{}",
        stderr_text(&output)
    );
    assert!(!fixture.path().join("results").exists());
}

#[test]
fn sigterm_ends_all_workers_and_clients() {
    let fixture = ExperimentFixture::new();
    // Far longer than the command may take to end.
    fixture.write(&SHARED.replace("quick = \"2s\"", "quick = \"600s\""));
    let mut command = fixture.lab_command();
    command.args(["run", "small.toml", "--real", "--no-check", "--jobs", "3"]);
    // Each run has a client for each of its two groups of long flows, so more than four clients are those of three runs.
    // Unlike a terminal, which signals the whole process group, this signals only the outermost process.
    let mut interrupted = None;
    let output = interrupt(&mut command, "-TERM", Receiver::Process, |_| {
        interrupted = (clients(&fixture) > 4).then(Instant::now);
        interrupted.is_some()
    });
    if is_skipped(&output) {
        return;
    }
    let interrupted =
        interrupted.unwrap_or_else(|| panic!("three runs were never concurrent: {}", stderr_text(&output)));
    assert!(interrupted.elapsed() < Duration::from_secs(300), "the command waited for its runs");
    fixture.assert_interrupted(&output);
    assert_eq!(clients(&fixture), 0, "clients are left");
}

/// The number of iperf3 clients with the directory of the test as their working directory, in all namespaces.
fn clients(fixture: &ExperimentFixture) -> usize {
    let folder = std::fs::canonicalize(fixture.path()).unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let is_own_client = |process: &std::fs::DirEntry| {
        let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let is_client = String::from_utf8_lossy(&words).split('\0').any(|word| word == "--client");
        is_client && std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == folder)
    };
    processes.filter(is_own_client).count()
}

/// The BPF file systems in the mount namespace of this process.
fn bpf_mounts() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(" - bpf ")).map(str::to_owned).collect()
}

/// The laboratory starts in a mount namespace without /sys/fs/bpf, and its mount must not appear in that of the test.
/// Earlier versions required a manual `mount -t bpf bpf /sys/fs/bpf`.
#[test]
fn laboratory_mounts_its_own_bpf_file_system() {
    let Some(ekiden) = ekiden_or_skip() else { return };
    let (fixture, before) = (ExperimentFixture::new(), bpf_mounts());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", "umount /sys/fs/bpf 2>/dev/null; exec \"$@\"", "sh"]);
    command.arg(env!("CARGO_BIN_EXE_ekiden-lab")).args([
        "run",
        "fit2013-pairs",
        "--real",
        "--only",
        "tail-drop",
        "--time",
        "1s",
    ]);
    command.args(["--blocks", "1", "--no-check", "--out", "results", "--ekiden"]).arg(ekiden);
    let output = command.current_dir(fixture.path()).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    let runs = std::fs::read_to_string(fixture.path().join("results/runs.jsonl")).unwrap_or_default();
    let runs = runs.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert!(runs.filter(|run| run["invalid"].is_null()).count() >= 4, "{}", stderr_text(&output));
    assert_eq!(bpf_mounts(), before);
}

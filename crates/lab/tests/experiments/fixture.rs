//! A small experiment in a temporary directory, the commands that run it, and its results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ekiden_testing::skipped;

/// Timeout of [`wait_until`]. On a busy machine, a debug build needs half a minute to parse all experiments.
const TIME_LIMIT: Duration = Duration::from_secs(300);

/// Waits until `is_over` returns true, at most for [`TIME_LIMIT`].
pub fn wait_until(mut is_over: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !is_over() && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// An experiment over links without emulators, with two blocks and two treatments: direct, and through a relay. The
/// program `RELAY` is a placeholder.
pub const SMALL: &str = r#"
lab = 1
name = "small"
title = "A small one"
[host.client]
[host.relay]
forward = true
[host.server]
[link.near]
ends = ["client", "relay"]
[link.far]
ends = ["relay", "server"]
[workload]
protocol = "http"
program = "nginx"
file = "1MB"
chain = ["relay"]
[treatment.direct]
program = "direct"
[treatment.relay]
program = "RELAY"
[experiment]
treatments = ["direct", "relay"]
blocks = { quick = 2, full = 6 }
"#;

/// A temporary directory, removed on drop.
pub struct ExperimentFixture(pub PathBuf);

impl ExperimentFixture {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ekiden-lab-experiments-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub fn lab_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden-lab"));
        command.current_dir(&self.0).env_remove("EKIDEN");
        command
    }

    /// Writes the experiment file. The program `RELAY` becomes ekiden if it has been built, else HAProxy.
    pub fn write(&self, text: &str) {
        let program = if ekiden().is_some() { "ekiden" } else { "haproxy" };
        std::fs::write(self.0.join("small.toml"), text.replace("RELAY", program)).unwrap();
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.lab_command().args(["run", "small.toml", "--real"]).args(arguments).output().unwrap()
    }

    /// The valid runs. The lab repeats an invalid run, such as one that was late on a busy machine.
    pub fn runs(&self) -> Vec<serde_json::Value> {
        self.all_runs().into_iter().filter(|run| run["invalid"].is_null()).collect()
    }

    /// All runs, including the invalid ones.
    pub fn all_runs(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.0.join("results/small-quick/runs.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for ExperimentFixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The program `ekiden` in the directory of `ekiden-lab`, if it has been built.
pub fn ekiden() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_ekiden-lab")).with_file_name("ekiden");
    beside.exists().then_some(beside)
}

/// Returns the path of [`ekiden`]; if it has not been built, prints how to build it.
pub fn ekiden_or_skip() -> Option<PathBuf> {
    ekiden().or_else(|| {
        skipped("there is no ekiden beside the laboratory (cargo build)");
        None
    })
}

pub fn stderr_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether the command failed because the system denies namespaces or a program is missing; if so, prints the reason.
pub fn is_skipped(output: &Output) -> bool {
    let stderr = stderr_text(output);
    let reasons = ["cannot create namespaces", "cannot create a user namespace", "is not installed"];
    let impossible = reasons.iter().any(|reason| stderr.contains(reason));
    if impossible {
        skipped(stderr);
    }
    impossible
}

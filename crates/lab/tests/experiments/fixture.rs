//! A small experiment in a temporary directory, the commands that run it, and its results.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ekiden_lab::temp_dir::TempDir;
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

/// [`SMALL`] with a second router, `other`, between the relay and the server: two sites with programs at both ends.
/// `line` has the keys of the link `far` between the routers.
pub fn with_two_routers(line: &str) -> String {
    let far = format!("ends = [\"relay\", \"other\"]\n{line}\n[link.last]\nends = [\"other\", \"server\"]");
    SMALL
        .replace("[host.server]", "[host.other]\nforward = true\n[host.server]")
        .replace("ends = [\"relay\", \"server\"]", &far)
        .replace("chain = [\"relay\"]", "chain = [\"relay\", \"other\"]")
}

/// The bytes that entered the link `far` between two routers at the router of the server in a run.
pub fn bytes_crossed(run: &serde_json::Value) -> u64 {
    let links = run["links"].as_array().unwrap();
    let direction = links.iter().find(|direction| direction["link"] == "far" && direction["from"] == "other").unwrap();
    direction["bytes_in"].as_u64().unwrap()
}

/// A temporary directory for an experiment, removed on drop.
pub struct ExperimentFixture(TempDir);

impl ExperimentFixture {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("ekiden-lab-experiments-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(TempDir::create(&std::env::temp_dir(), &name).unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn lab_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden-lab"));
        command.current_dir(self.path()).env_remove("EKIDEN");
        command
    }

    /// Writes the experiment file. The program `RELAY` becomes ekiden if it has been built, else HAProxy.
    pub fn write(&self, text: &str) {
        let program = if ekiden().is_some() { "ekiden" } else { "haproxy" };
        std::fs::write(self.path().join("small.toml"), text.replace("RELAY", program)).unwrap();
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
        let text = std::fs::read_to_string(self.path().join("results/small-quick/runs.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts that an interrupted command has completed no run of four, and has printed how to resume.
    pub fn assert_interrupted(&self, output: &Output) {
        let stderr = stderr_text(output);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("interrupted after 0 of 4 runs: run the same command again to continue"), "{stderr}");
        assert_eq!(self.all_runs().len(), 0);
    }
}

/// The processes that receive a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// Only the outermost process.
    Process,
    /// The process group, as from a terminal.
    Group,
}

/// Starts a command in a process group of its own, which excludes this process. Sends `signal` when `is_running`, with
/// the id of the process, returns true, and waits for the end of the command.
pub fn interrupt(
    command: &mut Command,
    signal: &str,
    receiver: Receiver,
    mut is_running: impl FnMut(u32) -> bool,
) -> Output {
    let mut child = command.process_group(0).stderr(Stdio::piped()).spawn().unwrap();
    let outer = child.id();
    wait_until(|| is_running(outer) || child.try_wait().unwrap().is_some());
    // After the end of the command, its id may belong to another process.
    if child.try_wait().unwrap().is_none() {
        let prefix = if receiver == Receiver::Group { "-" } else { "" };
        Command::new("kill").args([signal, "--", &format!("{prefix}{outer}")]).status().unwrap();
    }
    child.wait_with_output().unwrap()
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

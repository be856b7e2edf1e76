//! Experiments in virtual time: equal results in every run, the end of machines on signals, and their isolation from
//! the host.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use ekiden_testing::skipped;

use crate::fixture::{ExperimentFixture, Receiver, SMALL, interrupt, is_skipped, stderr_text, wait_until};

const WIRE: &str = "lab = 1\nname = \"wire\"\n[host.client]\n[host.server]\n\
                    [link.wire]\nends = [\"client\", \"server\"]\ndelay = \"25ms\"\n";

/// The experiment with random losses on the second link, so that a run depends on random numbers.
fn with_losses(text: &str) -> String {
    text.replace(
        "ends = [\"relay\", \"server\"]",
        "ends = [\"relay\", \"server\"]\nrate = \"50Mbit/s\"\ndelay = \"10ms\"\nloss = { model = \"bernoulli\", p = 0.005 }",
    )
}

/// Whether no virtual kernel is installed; if so, prints the message of `kernel list`.
pub fn has_no_kernel(fixture: &ExperimentFixture) -> bool {
    let output = fixture.lab_command().args(["kernel", "list"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr_text(&output));
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_missing = list.starts_with("no virtual kernel");
    if is_missing {
        skipped(list.trim());
    }
    is_missing
}

/// Runs the experiment of the fixture in virtual time.
fn run_virtually(fixture: &ExperimentFixture, arguments: &[&str]) -> Output {
    fixture.lab_command().args(["run", "small.toml", "--virtual"]).args(arguments).output().unwrap()
}

fn runs_file(fixture: &ExperimentFixture) -> std::path::PathBuf {
    fixture.path().join("results/small-quick/runs.jsonl")
}

/// Processes that use all processor time until they are dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(count: usize) -> Self {
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..count).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.0 {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

#[test]
fn runs_are_byte_identical_under_load_and_after_interruption() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(&with_losses(SMALL));
    let first = run_virtually(&fixture, &["--no-check", "--jobs", "1"]);
    assert_eq!(first.status.code(), Some(0), "{}", stderr_text(&first));
    assert!(stderr_text(&first).contains(" s of virtual time in "), "{}", stderr_text(&first));
    let bytes = std::fs::read(runs_file(&fixture)).unwrap();
    assert_eq!(fixture.runs().len(), 4, "{}", stderr_text(&first));
    let runs = fixture.runs();
    for treatment in ["direct", "relay"] {
        let in_block =
            |block: u64| runs.iter().find(|run| run["treatment"] == treatment && run["block"] == block).unwrap();
        let [first, second] = [0, 1].map(|block| &in_block(block)["metrics"]["mb_s"]);
        assert_ne!(first, second, "{treatment}: blocks have seeds of their own");
    }

    // One run is left in the file. The others are repeated in parallel and under load.
    let _load = Load::start(4);
    let text = String::from_utf8(bytes.clone()).unwrap();
    std::fs::write(runs_file(&fixture), &text[..text.len() / 3]).unwrap();
    let again = run_virtually(&fixture, &["--no-check", "--jobs", "3"]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr_text(&again));
    assert!(stderr_text(&again).starts_with("1 of 4 runs already exist"), "{}", stderr_text(&again));
    assert!(std::fs::read(runs_file(&fixture)).unwrap() == bytes, "the bytes differ under load");
}

/// A run depends neither on other cells nor on its position in the order of runs.
#[test]
fn single_cell_can_be_rerun_with_equal_results() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    let levels = "[[factor]]\nname = \"file\"\nlevels = [\n\
                  { name = \"small\", set = { \"workload.file\" = \"1MB\" } },\n\
                  { name = \"large\", set = { \"workload.file\" = \"2MB\" } },\n]\n";
    fixture.write(&(with_losses(SMALL) + levels));
    let all = run_virtually(&fixture, &[]);
    assert_eq!(all.status.code(), Some(0), "{}", stderr_text(&all));
    let is_cell = |run: &serde_json::Value| run["treatment"] == "relay" && run["levels"]["file"] == "large";
    let expected: Vec<_> = fixture.runs().into_iter().filter(is_cell).collect();
    let cell = ["--fresh", "--only", "relay", "--at", "file=large"];
    let again = run_virtually(&fixture, &cell);
    assert_eq!(again.status.code(), Some(0), "{}", stderr_text(&again));
    assert_eq!(expected.len(), 2);
    assert_eq!(fixture.runs(), expected);
    let two_levels = ["--fresh", "--blocks", "1", "--only", "relay", "--at", "file=large", "--at", "file=small"];
    let both = run_virtually(&fixture, &two_levels);
    assert_eq!(both.status.code(), Some(0), "{}", stderr_text(&both));
    let files: BTreeSet<_> = fixture.runs().iter().map(|run| run["levels"]["file"].to_string()).collect();
    assert_eq!(files, ["\"large\"", "\"small\""].map(str::to_owned).into());
    let unknown = run_virtually(&fixture, &["--at", "file=huge"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr_text(&unknown).contains("there is no level \"huge\" of a factor \"file\""),
        "{}",
        stderr_text(&unknown)
    );
}

/// The machine writes the capture into a directory of the host, and changes nothing else on the host.
#[test]
fn a_capture_changes_no_byte_of_the_results() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(&with_losses(SMALL));
    let plain = run_virtually(&fixture, &["--blocks", "1"]);
    assert_eq!(plain.status.code(), Some(0), "{}", stderr_text(&plain));
    let bytes = std::fs::read(runs_file(&fixture)).unwrap();
    let captured = run_virtually(&fixture, &["--blocks", "1", "--fresh", "--pcap", "cap"]);
    assert_eq!(captured.status.code(), Some(0), "{}", stderr_text(&captured));
    assert!(std::fs::read(runs_file(&fixture)).unwrap() == bytes, "the bytes differ with a capture");
    for run in fixture.runs() {
        let folder = fixture.path().join("cap").join(run["treatment"].as_str().unwrap()).join("block-1");
        for link in run["links"].as_array().unwrap() {
            let text = |key: &str| link[key].as_str().unwrap().to_owned();
            let name = format!("{}-{}-{}.arrived.pcapng", text("link"), text("from"), text("to"));
            // Each packet has a block of more than 100 bytes, with at least its headers. The file can have more packets
            // than the counters, which are read before the end.
            let length = std::fs::metadata(folder.join(&name)).unwrap().len();
            assert!(length > link["packets_in"].as_u64().unwrap() * 100, "{name}: {length} bytes for {link}");
        }
    }
    let mut shell = fixture.lab_command();
    std::fs::write(fixture.path().join("wire.toml"), WIRE).unwrap();
    shell.args(["shell", "wire.toml", "client", "--virtual", "--pcap", "cap/shell"]).env("SHELL", "sh");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(b"ping -q -c 2 server; : > /tmp/not-on-the-host\n").unwrap();
    assert!(shell.wait_with_output().unwrap().status.success());
    let length = |name: &str| std::fs::metadata(fixture.path().join("cap/shell").join(name)).unwrap().len();
    assert!(length("wire-client-server.arrived.pcapng") > 2 * 98, "two echo requests");
    assert!(length("wire-server-client.delivered.pcapng") > 2 * 98, "two replies");
    assert!(!Path::new("/tmp/not-on-the-host").exists());
}

#[test]
fn results_of_another_clock_are_refused() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(SMALL);
    let first = run_virtually(&fixture, &["--no-check", "--blocks", "1", "--only", "direct"]);
    assert_eq!(first.status.code(), Some(0), "{}", stderr_text(&first));
    let other = fixture.run(&["--no-check", "--blocks", "1", "--only", "direct"]);
    assert_eq!(other.status.code(), Some(2), "{}", stderr_text(&other));
    assert!(stderr_text(&other).contains("the clock is now real"), "{}", stderr_text(&other));
    fixture.write(&SMALL.replace("blocks =", "clock = \"real\"\nblocks ="));
    let refused = run_virtually(&fixture, &[]);
    assert!(stderr_text(&refused).contains("depend on the time that processes take"), "{}", stderr_text(&refused));
}

/// Slow start into a queue of 300 packets, with four congestion controls.
const SLOW_START: &str = r#"
lab = 1
name = "small"
title = "How slow start ends"
[host.a]
[host.b]
[module.tcp_cubic]
hystart = true
[link.line]
ends = ["a", "b"]
rate = "20Mbit/s"
delay = "20ms"
queue = { kind = "tail-drop", limit = "300pkt" }
[workload]
protocol = "share"
time = { quick = "2s", full = "2s" }
[[workload.group]]
name = "one"
from = "a"
to = "b"
congestion = "cubic"
[treatment.plain]
program = "direct"
[experiment]
treatments = ["plain"]
metric = "mbit_s"
blocks = { quick = 1, full = 1 }
clock = "virtual"
[[factor]]
name = "control"
levels = [
    { name = "hystart" },
    { name = "cubic", set = { "module.tcp_cubic.hystart" = 0 } },
    { name = "ctcp", set = { "workload.group" = [{ name = "one", from = "a", to = "b", congestion = "ctcp" }] } },
    { name = "draft", set = { "workload.group" = [{ name = "one", from = "a", to = "b", congestion = "ctcp-draft" }] } },
]
"#;

/// Slow start of CUBIC without `HyStart` and of the CTCP of the draft fills the queue and ends with losses. `HyStart`
/// and `ctcp` detect the growth of the queue and end slow start without losses.
#[test]
fn module_parameters_and_control_set_the_end_of_slow_start() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(SLOW_START);
    let output = run_virtually(&fixture, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    let retransmits = |control: &str| {
        let runs = fixture.runs();
        let run = runs.iter().find(|run| run["levels"]["control"] == control).unwrap();
        run["metrics"]["retransmits"].as_f64().unwrap()
    };
    for (early, late) in [("hystart", "cubic"), ("ctcp", "draft")] {
        assert_eq!(retransmits(early), 0.0, "{early}");
        assert!(retransmits(late) > 10.0, "{late}: {}", retransmits(late));
    }

    fixture.write(&SLOW_START.replace("hystart = true", "hystarts = true"));
    let unknown = stderr_text(&run_virtually(&fixture, &["--fresh"]));
    assert!(unknown.contains("module \"tcp_cubic\": hystarts = \"1\": this kernel has no such parameter"), "{unknown}");
    let everywhere = SLOW_START.replace("ctcp-draft", "reno").replace("ctcp", "reno");
    fixture.write(&everywhere.replace("clock = \"virtual\"\n", ""));
    let real = fixture.run(&["--no-check", "--fresh"]);
    if !is_skipped(&real) {
        assert!(stderr_text(&real).contains("such a lab runs only in virtual time"), "{}", stderr_text(&real));
    }
}

/// With 25 ms in each direction, a round trip in virtual time takes 50 ms within 5 µs, and varies by less than 1 µs.
#[test]
fn a_round_trip_is_exact() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    std::fs::write(fixture.path().join("wire.toml"), WIRE).unwrap();
    let mut command = fixture.lab_command();
    command.args(["shell", "wire.toml", "client", "--virtual"]).env("SHELL", "sh").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"ping -q -c 20 -i 0.2 server; exit 7\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr_text(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures = text.lines().find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = ")).unwrap_or_default();
    let figures: Vec<f64> = figures.trim_end_matches(" ms").split('/').map(|one| one.parse().unwrap()).collect();
    assert!(figures.len() == 4 && figures[..3].iter().all(|rtt| (50.0..=50.005).contains(rtt)), "{text}");
    assert!(figures[3] < 0.001, "{text}");
}

#[test]
fn a_program_that_never_sleeps_is_named() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    let mut command = fixture.lab_command();
    let output = command.args(["kernel", "run", "--watchdog", "2s", "--", "sh", "-c", "while :; do :; done"]);
    let output = output.stdin(Stdio::null()).output().unwrap();
    let stderr = stderr_text(&output);
    assert!(stderr.contains("virtual time stood still for 2 s of real time: process"), "{stderr}");
    assert!(stderr.contains("(sh) runs without a pause"), "{stderr}");
    assert_eq!(output.status.code(), Some(98));
}

/// Regression test: the first process of a machine blocks signals to wait for its child, and the child inherited the
/// signal mask. A relay that a test started in the machine never received SIGTERM and SIGHUP.
#[test]
fn a_program_starts_with_no_signal_blocked() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    let mut command = fixture.lab_command();
    let output = command.args(["kernel", "run", "--", "grep", "SigBlk", "/proc/self/status"]);
    let output = output.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "SigBlk:\t0000000000000000\n", "{}", stderr_text(&output));
}

/// Regression test: the receive backlog of a machine had the kernel's limit of 1000 packets. The emulator can send more
/// at one instant, and each packet that the kernel refused at first counted as a drop that invalidated the run.
#[test]
fn the_receive_backlog_holds_a_burst_of_the_emulator() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    let mut command = fixture.lab_command();
    let output = command.args(["kernel", "run", "--", "cat", "/proc/sys/net/core/netdev_max_backlog"]);
    let output = output.stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1000000\n", "{}", stderr_text(&output));
}

/// The ids of all descendants of the process `parent`.
fn descendants(parent: u32) -> Vec<u32> {
    let children = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let children = children.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|text| text.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()).collect();
    children.iter().flat_map(|child| [vec![*child], descendants(*child)].concat()).collect()
}

fn is_alive(pid: u32) -> bool {
    ekiden_sys::process::start_time(pid).is_some()
}

/// Waits until the processes of a machine have ended; panics if one exists after the timeout.
fn wait_for_end(machine: &[u32]) {
    wait_until(|| !machine.iter().any(|pid| is_alive(*pid)));
    let left: Vec<&u32> = machine.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[test]
fn machine_is_killed_with_its_parent_process() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    // The guest prints a line and then waits for input, so the machine does not end by itself.
    let mut command = fixture.lab_command();
    command.args(["kernel", "run", "--", "sh", "-c", "echo runs; cat"]).env("TMPDIR", fixture.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answer = [0; 5];
    child.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"runs\n");
    let machine = descendants(child.id());
    assert!(machine.len() > 1, "the kernel and processes of the guest: {machine:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for_end(&machine);
    assert_eq!(std::fs::read_dir(fixture.path()).unwrap().count(), 0, "files left behind");
}

/// Copies a file, and permits every user to read and execute the copy.
fn copy_for_all(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::copy(from, to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn unprivileged_user_is_root_only_inside_the_machine() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    let list = fixture.lab_command().args(["kernel", "list"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let kernel = list.split_whitespace().find(|word| word.starts_with('/')).unwrap();
    let [lab, copy] = ["ekiden-lab", "linux"].map(|name| fixture.path().join(name));
    copy_for_all(Path::new(env!("CARGO_BIN_EXE_ekiden-lab")), &lab);
    copy_for_all(Path::new(kernel), &copy);
    let script = "id -u; echo changed > /etc/hostname && cat /etc/hostname; ip link add name a type veth peer name b && echo link";
    let mut command = Command::new("setpriv");
    if ekiden_sys::process::effective_uid() == 0 {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command.args(["--no-new-privs", "--bounding-set=-all"]).arg(&lab).args(["kernel", "run", "--kernel"]).arg(&copy);
    command
        .args(["--", "sh", "-c", script])
        .current_dir(fixture.path())
        .env("HOME", "/nonexistent")
        .stdin(Stdio::null());
    let before = std::fs::read("/etc/hostname").ok();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\nchanged\nlink\n");
    assert_eq!(std::fs::read("/etc/hostname").ok(), before);
}

/// Sends `signal` to a command when it has more than `others` descendants, which means that a machine runs. Then waits
/// until the command and these descendants have ended.
pub fn stop_while_machines_run(command: &mut Command, signal: &str, others: usize) -> Output {
    // The reading that meets the condition is kept. A later reading can be shorter, because a booting kernel has
    // children that end at once.
    let mut machines = Vec::new();
    let output = interrupt(command, signal, Receiver::Process, |outer| {
        machines = descendants(outer);
        machines.len() > others
    });
    assert!(machines.len() > others, "no machine runs: {machines:?}: {}", stderr_text(&output));
    wait_for_end(&machines);
    output
}

#[test]
fn interrupt_ends_machines_and_explains_how_to_resume() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(&with_losses(SMALL).replace("1MB", "200MB"));
    let mut command = fixture.lab_command();
    command.args(["run", "small.toml", "--virtual", "--no-check"]);
    fixture.assert_interrupted(&stop_while_machines_run(&mut command, "-INT", 2));
}

/// Reads until `is_complete` returns true for the output, and returns the output.
fn read_until(from: &mut impl Read, is_complete: impl Fn(&str) -> bool) -> String {
    let (mut output, mut buffer) = (String::new(), [0; 4096]);
    while !is_complete(&output) {
        let count = from.read(&mut buffer).unwrap();
        assert!(count > 0, "ended too early: {output:?}");
        output.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    output
}

/// Starts a command of the laboratory on a pseudoterminal of script(1). The line discipline of the terminal translates
/// the character of Ctrl-C into SIGINT for the process on the host.
fn start_on_terminal(fixture: &ExperimentFixture, arguments: &str) -> (Child, ChildStdin, ChildStdout) {
    // Without `exec`, the signal would also end the shell between script(1) and the command.
    let line = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_ekiden-lab"));
    let mut command = Command::new("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(fixture.path())
        .env("SHELL", "sh");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    (child, keys, screen)
}

/// The virtual times that a terminal has shown, in seconds.
fn virtual_times(shown: &str) -> Vec<u32> {
    let seconds = |text: &str| {
        let (minutes, seconds) = text.split_once(':')?;
        Some(minutes.parse::<u32>().ok()? * 60 + seconds.get(..2)?.parse::<u32>().ok()?)
    };
    shown.split(", virtual ").skip(1).filter_map(seconds).collect()
}

/// Each run lasts for minutes of virtual time.
#[test]
fn a_terminal_shows_the_time_of_running_machines() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(&with_losses(SMALL).replace("50Mbit/s", "5Mbit/s").replace("1MB", "200MB"));
    let (mut child, mut keys, mut screen) = start_on_terminal(&fixture, "run small.toml --virtual --no-check");
    let shown = read_until(&mut screen, |shown| virtual_times(shown).iter().any(|time| *time > 0));
    // A machine with a virtual time runs.
    let machines = descendants(child.id());
    let time = virtual_times(&shown).last().copied();
    let shown = shown + &read_until(&mut screen, |more| virtual_times(more).last().copied() > time);
    keys.write_all(b"\x03").unwrap();
    let mut rest = String::new();
    screen.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2), "{rest}");
    let times = virtual_times(&shown);
    assert!(times.is_sorted(), "{times:?}: {shown:?}");
    wait_for_end(&machines);
}

#[test]
fn ctrl_c_ends_the_machine_of_an_interactive_command() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    for arguments in ["kernel run -- sh", "shell lossy --virtual"] {
        let (mut child, mut keys, mut screen) = start_on_terminal(&fixture, arguments);
        // The terminal echoes the input; only the output of the shell has the sum.
        keys.write_all(b"echo $((40 + 2)) runs\n").unwrap();
        read_until(&mut screen, |shown| shown.contains("42 runs"));
        let machine = descendants(child.id());
        assert!(machine.len() > 2, "{machine:?}");
        keys.write_all(b"\x03").unwrap();
        let mut rest = String::new();
        screen.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments}: {rest:?}");
        assert_eq!(rest.replace("^C", "").trim_matches(['\r', '\n', '$', '#', ' ']), "", "{arguments}");
        wait_for_end(&machine);
    }
}

/// The outer command must end with an exit status instead of by the signal, and only after the kernel of the machine.
#[test]
fn an_interrupted_command_waits_for_the_end_of_its_machine() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut command = fixture.lab_command();
        command.args(["kernel", "run", "--", "sh", "-c", "echo runs; cat"]).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // `Child::wait` closes the standard input, which would end the guest.
        let input = child.stdin.take();
        read_until(child.stdout.as_mut().unwrap(), |output| output.contains("runs"));
        let machine = descendants(child.id());
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop(input);
        assert!(!is_alive(machine[0]), "the kernel still runs");
        wait_for_end(&machine);
    }
}

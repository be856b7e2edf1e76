//! The commands of `ekiden-lab` as a user runs them: errors in files, small experiments with real namespaces and
//! programs, their continuation, and the comparison of results.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

use ekiden_testing::skipped;

use fixture::{ExperimentFixture, Receiver, SMALL, ekiden, ekiden_or_skip, interrupt, is_skipped, stderr_text};
use virtual_time::has_no_kernel;

mod blocks;
mod figures;
mod fixture;
mod paths;
mod shared_bottleneck;
mod softether;
mod tunnels;
mod virtual_time;

#[test]
fn mistakes_are_reported_together_and_nothing_runs() {
    let fixture = ExperimentFixture::new();
    fixture.write(&SMALL.replace("file = \"1MB\"", "file = \"1\"").replace("title =", "colour = 1\ntitle ="));
    let output = fixture.run(&[]);
    let stderr = stderr_text(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("small: 2 mistakes\n") && stderr.contains("line 4: colour: unknown key"), "{stderr}");
    assert!(stderr.contains(r#"line 17: workload.file: "1" is not a size like"#), "{stderr}");
    assert!(!fixture.path().join("results").exists());
}

#[test]
fn run_is_captured_unless_no_link_is_emulated() {
    let fixture = ExperimentFixture::new();
    fixture.write(&SMALL.replace("[workload]", "delay = \"1ms\"\n[workload]"));
    let arguments = ["--no-check", "--blocks", "1", "--only", "direct", "--pcap", "cap"];
    let output = fixture.run(&arguments);
    if is_skipped(&output) {
        return;
    }
    assert_eq!(fixture.runs().len(), 1, "{}", stderr_text(&output));
    let folder = fixture.path().join("cap/direct/block-1");
    let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    let expected = ["relay-server", "server-relay"]
        .map(|direction| ["arrived.pcapng", "delivered.pcapng", "trace"].map(|what| format!("far-{direction}.{what}")));
    let logs = names.split_off(names.partition_point(|name| name.starts_with("far-")));
    assert_eq!((names, logs), (expected.concat(), vec!["nginx-server.log".to_owned()]));
    let delivered = std::fs::metadata(folder.join("far-server-relay.delivered.pcapng")).unwrap().len();
    assert!(delivered > 1_000_000 / 1448 * 128, "{delivered} bytes");

    fixture.write(SMALL);
    let output = fixture.run(&[&arguments[..], &["--fresh"]].concat());
    assert!(fixture.all_runs()[0]["invalid"].as_str().unwrap().contains("no link of the lab has an emulator"));
    assert_eq!(output.status.code(), Some(2));
}

/// Every program that IPv6 labs permit carries a file over IPv6, in virtual time. The addresses come from the packet
/// log of the link of the server.
#[test]
fn programs_use_ipv6_in_ipv6_labs() {
    let fixture = ExperimentFixture::new();
    if virtual_time::has_no_kernel(&fixture) || ekiden_or_skip().is_none() {
        return;
    }
    let treatments = "[treatment.http]\nprogram = \"ekiden\"\nmode = \"http\"\n\
                      [treatment.sections]\nprogram = \"ekiden\"\nsections = true\n\
                      [treatment.haproxy]\nprogram = \"haproxy\"\n[treatment.squid]\nprogram = \"squid\"\n\
                      [treatment.socat]\nprogram = \"command\"\nready = \"tcp:8000\"\n\
                      command = [\"socat\", \"TCP6-LISTEN:8000,fork,reuseaddr\", \"TCP6:{next}\"]\n";
    let text = SMALL
        .replace("lab = 1", "lab = 1\nfamily = \"ipv6\"")
        .replace("[workload]", &format!("delay = \"5ms\"\n{treatments}[workload]\npacket_log = [\"far\"]"))
        .replace("\"relay\"]\nblocks", "\"relay\", \"http\", \"sections\", \"haproxy\", \"squid\", \"socat\"]\nblocks");
    fixture.write(&text);
    let output = fixture.lab_command().args(["run", "small.toml", "--virtual", "--blocks", "1"]).output().unwrap();
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    assert_eq!(fixture.runs().len(), 7, "{:?}", fixture.all_runs());
    for run in fixture.runs() {
        let treatment = run["treatment"].as_str().unwrap();
        let log = fixture.path().join("results/small-quick/packets").join(treatment).join("far-server-relay.csv");
        let log = std::fs::read_to_string(log).unwrap();
        let data = log.lines().filter(|line| line.contains(",[fd00::2]:80,[fd00:")).count();
        assert!(data > 1_000_000 / 1428, "{treatment}: {data} packets: {log:.600}");
    }
    for (key, value, error) in [
        ("protocol = \"http\"", "protocol = \"ftp\"", "not supported with ftp"),
        ("\"haproxy\"\n[", "\"haproxy\"\ntransparent = true\n[", "not supported with transparent relays"),
        ("\"squid\"\n[", "\"dante\"\n[", "not supported with Dante"),
    ] {
        let wrong = text.replace(key, value);
        assert_ne!(wrong, text, "{key}");
        fixture.write(&wrong.replace("program = \"nginx\"\n", ""));
        let stderr = stderr_text(&fixture.run(&[]));
        assert!(stderr.contains(&format!("family = \"ipv6\": {error}")), "{stderr}");
    }
}

/// These workloads use the laboratory's own clients and servers, and iperf3.
#[test]
fn streams_blocks_and_flows_use_ipv6() {
    let fixture = ExperimentFixture::new();
    if virtual_time::has_no_kernel(&fixture) || ekiden_or_skip().is_none() {
        return;
    }
    let time = "time = { quick = \"1s\", full = \"1s\" }";
    for (workload, metric) in [
        (format!("protocol = \"stream\"\n{time}"), "mb_s"),
        ("protocol = \"blocks\"\namount = \"1MB\"\nblock = \"8KiB\"".to_owned(), "completion_s"),
        (format!("protocol = \"flows\"\nconnections = 2\n{time}"), "mbit_s"),
    ] {
        let text = SMALL
            .replace("lab = 1", "lab = 1\nfamily = \"ipv6\"")
            .replace("[workload]", "rate = \"20Mbit/s\"\ndelay = \"5ms\"\n[workload]\npacket_log = [\"far\"]")
            .replace("protocol = \"http\"\nprogram = \"nginx\"\nfile = \"1MB\"", &workload)
            .replace("program = \"RELAY\"", "program = \"ekiden\"\nmode = \"tcp\"\nsections = true")
            .replace("blocks =", &format!("metric = \"{metric}\"\nblocks ="));
        fixture.write(&text);
        let arguments = ["run", "small.toml", "--virtual", "--blocks", "1", "--fresh"];
        let output = fixture.lab_command().args(arguments).output().unwrap();
        if is_skipped(&output) {
            return;
        }
        assert_eq!(output.status.code(), Some(0), "{workload}: {}", stderr_text(&output));
        assert_eq!(fixture.runs().len(), 2, "{workload}");
        for treatment in ["direct", "relay"] {
            let log = fixture.path().join("results/small-quick/packets").join(treatment).join("far-relay-server.csv");
            let log = std::fs::read_to_string(log).unwrap();
            let data = log.lines().filter(|line| line.contains(",[fd00:") && line.contains(",[fd00::2]:")).count();
            assert!(data > 500, "{workload}, {treatment}: {data} packets");
        }
    }
}

/// The results are of the small experiment in virtual time, at 40 and at 20 Mbit/s.
#[test]
fn two_results_are_compared_cell_by_cell() {
    let fixture = ExperimentFixture::new();
    if virtual_time::has_no_kernel(&fixture) {
        return;
    }
    let line = |rate: &str| SMALL.replace("[workload]", &format!("rate = \"{rate}\"\ndelay = \"5ms\"\n[workload]"));
    let run = |text: &str, out: &str| {
        fixture.write(text);
        let arguments = ["run", "small.toml", "--virtual", "--only", "direct", "--blocks", "6", "--out", out];
        let output = fixture.lab_command().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    };
    run(&line("40Mbit/s"), "fast");
    run(&line("20Mbit/s"), "slow");
    let compare = |arguments: &[&str]| fixture.lab_command().arg("compare").args(arguments).output().unwrap();
    for (pair, status, verdict) in
        [(["fast", "slow"], 1, "slower"), (["slow", "fast"], 0, "faster"), (["fast", "fast"], 0, "same")]
    {
        let output = compare(&pair);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}{}", stderr_text(&output));
        let row = text.lines().find(|line| line.starts_with("direct")).unwrap();
        assert!(row.ends_with(verdict), "{text}");
        assert!(text.ends_with(&format!("1 cell of B against A: 1 {verdict}\n")), "{text}");
        assert_eq!(text.contains("warning: the experiment files differ"), pair[0] != pair[1], "{text}");
    }
    let output = compare(&["fast", "slow", "--json"]);
    let comparison: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let cell = &comparison["metrics"][0]["cells"][0];
    assert_eq!((cell["verdict"].as_str(), cell["ratio"]["n"].as_u64()), (Some("worse"), Some(6)), "{cell}");
    assert!(cell["ratio"]["median"].as_f64().is_some_and(|ratio| (0.45..0.7).contains(&ratio)), "{cell}");

    run(&SMALL.replace("blocks =", "metric = \"seconds\"\nblocks ="), "seconds");
    let output = compare(&["fast", "seconds"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("A is compared by mb_s, B by seconds"), "{}", stderr_text(&output));
    assert_eq!(compare(&["fast", "nowhere"]).status.code(), Some(2));
}

#[test]
fn unknown_experiment_error_lists_the_known_experiments() {
    let output = ExperimentFixture::new().lab_command().args(["run", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("masuya2014-position"), "{}", stderr_text(&output));
}

#[test]
fn missing_program_error_names_the_package() {
    let fixture = ExperimentFixture::new();
    fixture.write(SMALL);
    let output = fixture.lab_command().args(["run", "small.toml"]).env("PATH", "/nowhere").output().unwrap();
    let stderr = stderr_text(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("curl is not installed: run scripts/setup lab, or apt-get install curl"), "{stderr}");
}

#[test]
fn missing_ekiden_is_reported() {
    let fixture = ExperimentFixture::new();
    fixture.write(&SMALL.replace("RELAY", "ekiden"));
    let output = fixture.run(&["--ekiden", "/nowhere/ekiden"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("there is no ekiden at /nowhere/ekiden"), "{}", stderr_text(&output));
}

#[test]
fn report_fails_without_results() {
    let fixture = ExperimentFixture::new();
    let output = fixture.lab_command().args(["report", "."]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr_text(&output).contains("holds no results"), "{}", stderr_text(&output));
}

#[test]
fn list_shows_experiments_with_their_duration() {
    let output = ExperimentFixture::new().lab_command().arg("list").output().unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    assert!(list.lines().any(|line| line.starts_with("masuya2014-sections") && line.contains(" h ")), "{list}");
}

#[test]
fn a_closed_standard_output_ends_a_command_without_a_message() {
    let fixture = ExperimentFixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = fixture.lab_command().arg("list").stdout(writer).output().unwrap();
    assert_eq!((output.status.signal(), stderr_text(&output).as_str()), (Some(libc::SIGPIPE), ""));
}

#[test]
fn small_experiment_runs_resumes_and_reports() {
    let fixture = ExperimentFixture::new();
    fixture.write(SMALL);
    let first = fixture.run(&[]);
    if is_skipped(&first) {
        return;
    }
    let results = fixture.path().join("results/small-quick");
    assert_eq!(first.status.code(), Some(0), "{}", stderr_text(&first));
    let runs = fixture.runs();
    assert_eq!(runs.len(), 4, "{}", stderr_text(&first));
    assert!(runs.iter().all(|run| run["metrics"]["bytes"] == 1e6), "{runs:?}");
    assert!(runs.iter().all(|run| run["metrics"]["mb_s"].as_f64().unwrap() > 0.0));
    assert!(results.join("report.html").exists() && results.join("report.json").exists());

    // The second command repeats no run. An incomplete line in the file counts as a missing run.
    assert!(stderr_text(&fixture.run(&[])).starts_with("4 of 4 runs already exist"));
    let file = results.join("runs.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &text[..text.len() - 9]).unwrap();
    let again = fixture.run(&[]);
    assert!(stderr_text(&again).starts_with("3 of 4 runs already exist"), "{}", stderr_text(&again));
    assert_eq!(fixture.runs()[..3], runs[..3]);
    assert_eq!(fixture.runs().len(), 4);

    let report = fixture.lab_command().args(["report", "results/small-quick"]).output().unwrap();
    assert_eq!(report.status.code(), Some(0), "{}", stderr_text(&report));

    // Results of another experiment file are neither mixed with the new ones nor deleted.
    fixture.write(&SMALL.replace("1MB", "2MB"));
    let other = fixture.run(&[]);
    assert_eq!(other.status.code(), Some(2));
    assert!(
        stderr_text(&other).contains("the experiment file has changed. --fresh removes them"),
        "{}",
        stderr_text(&other)
    );
    assert_eq!(fixture.runs().len(), 4);
}

#[test]
fn missed_expectation_is_exit_status_1() {
    let fixture = ExperimentFixture::new();
    fixture.write(&format!("{SMALL}\n[[expect]]\ntreatment = \"direct\"\nat_least = 1e9\n"));
    let output = fixture.run(&["--blocks", "1", "--only", "direct"]);
    if is_skipped(&output) {
        return;
    }
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stdout}{}", stderr_text(&output));
    assert!(stdout.ends_with("0 expectations met, 1 missed, 0 unknown; 0 runs invalid\n"), "{stdout}");
    assert_eq!(fixture.runs().len(), 1);
}

/// The experiment with a file of 4 MB over a link of 1 Mbit/s. The transfer takes 32 s, so a test can act during it.
fn with_slow_link(text: &str) -> String {
    text.replace("ends = [\"relay\", \"server\"]", "ends = [\"relay\", \"server\"]\nrate = \"1Mbit/s\"")
        .replace("1MB", "4MB")
}

#[test]
fn killed_relay_invalidates_the_run_and_is_named() {
    let Some(ekiden) = ekiden_or_skip() else { return };
    let fixture = ExperimentFixture::new();
    // The relay and its shell are killed during the transfer, after 100 of 4000 kB have arrived from the server.
    let command = format!(
        r#"command = ["sh", "-c", '''
"$@" &
until [ "$(sed -n "s/^ *far: *\([0-9]*\).*/\1/p" /proc/net/dev)" -gt 100000 ]; do sleep 0.01; done
kill -KILL 0
''', "sh", "{}", "run", "--admin", "off", "-L", "tcp://0.0.0.0:8000/{{next}}?allow_open=true&allow_private=true"]
ready = "tcp:8000""#,
        ekiden.display()
    );
    fixture.write(&with_slow_link(&SMALL.replace("program = \"RELAY\"", &format!("program = \"command\"\n{command}"))));
    let output = fixture.run(&["--blocks", "1", "--only", "relay", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
    let runs = fixture.all_runs();
    assert_eq!(runs.len(), 3, "the run is tried three times: {}", stderr_text(&output));
    let reason = runs[0]["invalid"].as_str().unwrap();
    assert!(reason.starts_with("sh on relay was killed by signal 9"), "{reason}");
}

/// In virtual time, a run that was invalid because the host ended its machine was never made again.
#[test]
fn invalid_run_in_virtual_time_is_repeated_by_the_next_command() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    fixture.write(SMALL);
    let run = || {
        let output = fixture.lab_command().args(["run", "small.toml", "--virtual", "--blocks", "1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
        stderr_text(&output)
    };
    run();
    let mut runs = fixture.all_runs();
    runs[0]["invalid"] = "virtual machine: signal: 9 (SIGKILL)".into();
    let lines: String = runs.iter().map(|run| format!("{run}\n")).collect();
    std::fs::write(fixture.path().join("results/small-quick/runs.jsonl"), lines).unwrap();
    let again = run();
    assert!(again.starts_with("1 of 2 runs already exist"), "{again}");
    assert_eq!((fixture.all_runs().len(), fixture.runs().len()), (3, 2));
}

/// The experiment with a second relay on the host of the server, and a treatment for each kind of chain of sections.
fn with_chain(text: &str) -> String {
    let treatment = |name: &str, more: &str| {
        format!("[treatment.{name}]\nprogram = \"ekiden\"\nsections = true\nmode = \"http\"\n{more}\n")
    };
    let treatments = [
        treatment("http", ""),
        treatment("strict", "tunnel = true"),
        treatment("early", "tunnel = true\nearly = true"),
        treatment("encrypted", "tunnel = true\nencrypt = true"),
    ];
    text.replace("chain = [\"relay\"]", "chain = [\"relay\", \"server\"]\ntransfers = 3\nwarm_up_transfers = 2")
        .replace("[treatment.relay]\nprogram = \"RELAY\"\n", &treatments.concat())
        .replace("\"direct\", \"relay\"", "\"direct\", \"http\", \"strict\", \"early\", \"encrypted\"")
}

#[test]
fn section_relays_carry_a_file_in_every_mode() {
    let makes_keys = |ekiden: &PathBuf| {
        let keygen = Command::new(ekiden).arg("keygen").output();
        keygen.is_ok_and(|output| output.status.success())
    };
    if !ekiden().is_some_and(|ekiden| makes_keys(&ekiden)) {
        skipped("there is no ekiden beside the laboratory that makes keys (cargo build)");
        return;
    }
    let fixture = ExperimentFixture::new();
    fixture.write(&with_chain(SMALL));
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 5, "{}", stderr_text(&output));
    assert!(runs.iter().all(|run| run["metrics"]["bytes"] == 3e6), "warm-up does not count: {runs:?}");
}

#[test]
fn interrupt_ends_a_run_and_explains_how_to_resume() {
    let fixture = ExperimentFixture::new();
    fixture.write(&with_slow_link(SMALL));
    let mut command = fixture.lab_command();
    command.args(["run", "small.toml", "--real", "--no-check"]);
    let runs = fixture.path().join("results/small-quick/runs.jsonl");
    let output = interrupt(&mut command, "-INT", Receiver::Group, |_| runs.exists());
    if is_skipped(&output) {
        return;
    }
    fixture.assert_interrupted(&output);
}

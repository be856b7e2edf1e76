//! `ekiden-lab figures`: runs for new figures, the comparison with stored figures, and interruption.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fixture::{ExperimentFixture, ekiden_or_skip, stderr_text};
use crate::virtual_time::{has_no_kernel, stop_while_machines_run};

/// Creates a directory of documentation that has the index of results, but no figures.
fn make_docs(fixture: &ExperimentFixture) -> PathBuf {
    let docs = fixture.path().join("docs");
    fs::create_dir(&docs).unwrap();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/README.md");
    fs::copy(page, docs.join("README.md")).unwrap();
    docs
}

fn figures_command(fixture: &ExperimentFixture, experiment: &str) -> Command {
    let mut command = fixture.lab_command();
    command.args(["figures", "--only", experiment, "--docs", "docs", "--runs", "runs"]);
    command
}

/// The check uses the existing runs of the stored figures and makes no run.
#[test]
fn check_compares_figures_with_the_stored_figures() {
    let fixture = ExperimentFixture::new();
    if ekiden_or_skip().is_none() || has_no_kernel(&fixture) {
        return;
    }
    let docs = make_docs(&fixture);
    let none = figures_command(&fixture, "demo").arg("--check").output().unwrap();
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr_text(&none).contains("demo: no figures in docs"), "{}", stderr_text(&none));

    let made = figures_command(&fixture, "demo").output().unwrap();
    assert!(made.status.success(), "{}", stderr_text(&made));
    let check = || figures_command(&fixture, "demo").arg("--check").output().unwrap();
    let same = check();
    assert_eq!(
        String::from_utf8_lossy(&same.stdout).lines().last(),
        Some("demo: 3 figures: 3 same, 0 agree, 0 differ, 0 missing")
    );
    assert!(same.status.success());

    let path = docs.join("demo.json");
    let stored = fs::read_to_string(&path).unwrap();
    let mut figures: serde_json::Value = serde_json::from_str(&stored).unwrap();
    for name in ["low", "median", "high"] {
        figures["cells"][0]["summary"][name] = 1.0.into();
    }
    fs::write(&path, figures.to_string()).unwrap();
    let changed = check();
    let text = String::from_utf8_lossy(&changed.stdout).into_owned();
    assert!(
        text.contains("3 figures: 2 same, 0 agree, 1 differ, 0 missing") && text.contains("DIFFER  direct"),
        "{text}"
    );
    assert_eq!(changed.status.code(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), figures.to_string(), "a check changes nothing");
}

/// SIGTERM is sent only to the outer command, not to the command that it starts for the runs.
#[test]
fn terminated_figures_command_leaves_no_process() {
    let fixture = ExperimentFixture::new();
    if has_no_kernel(&fixture) {
        return;
    }
    make_docs(&fixture);
    // One more descendant than of `ekiden-lab run`: the command that makes the runs.
    let output = stop_while_machines_run(figures_command(&fixture, "ctcp-oracles").stdout(Stdio::null()), "-TERM", 3);
    assert_eq!(output.status.code(), Some(143), "{}", stderr_text(&output));
    assert!(stderr_text(&output).contains("run the same command again to continue"), "{}", stderr_text(&output));
}

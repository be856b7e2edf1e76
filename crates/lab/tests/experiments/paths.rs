//! Fixed paths through relays, and continuous downloads while a relay is killed.

use serde_json::Value;

use crate::fixture::{ExperimentFixture, SMALL, ekiden_or_skip, is_skipped, stderr_text};

/// The experiment with a treatment for each of three paths from client to server: direct, through the relay on the
/// router, and through the relay on the router and that on the host of the server.
fn candidates() -> String {
    let treatment = |name: &str, path: &str| {
        format!(
            "[treatment.{name}]\nprogram = \"ekiden\"\nmode = \"http\"\nchain = [\"client\"]\n\
             relays = [\"relay\", \"server\"]\npath = {path}\n"
        )
    };
    let three = [("none", "[\"direct\"]"), ("one", "[\"relay\"]"), ("two", "[\"relay\", \"server\"]")];
    SMALL
        .replace("[treatment.relay]\nprogram = \"RELAY\"\n", &three.map(|(name, path)| treatment(name, path)).concat())
        .replace("\"direct\", \"relay\"", "\"none\", \"one\", \"two\"")
        .replace("[treatment.direct]\nprogram = \"direct\"\n", "")
        .replace("chain = [\"relay\"]\n", "transfers = 2\nprime = { files = [\"10kB\", \"20kB\"], time = \"300ms\" }\n")
}

fn paths(run: &Value) -> Vec<&str> {
    let sessions = run["sessions"].as_array().unwrap();
    sessions.iter().filter_map(|session| session["path"].as_str()).collect()
}

#[test]
fn each_candidate_uses_and_logs_its_path() {
    if ekiden_or_skip().is_none() {
        return;
    }
    let fixture = ExperimentFixture::new();
    fixture.write(&candidates());
    let output = fixture.run(&["--blocks", "1", "--no-check"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_text(&output));
    let of = |treatment: &str| runs.iter().find(|run| run["treatment"] == treatment).unwrap();
    assert_eq!(paths(of("none")), ["direct", "direct"]);
    assert_eq!(paths(of("one")), ["relay", "relay"]);
    assert_eq!(paths(of("two")), ["relay-server", "relay-server"]);
    assert!(runs.iter().all(|run| run["metrics"]["bytes"] == 2e6), "priming transfers do not count: {runs:?}");
}

#[test]
fn continuous_downloads_fail_after_their_relay_is_killed() {
    if ekiden_or_skip().is_none() {
        return;
    }
    let fixture = ExperimentFixture::new();
    let arrivals = "time = { quick = \"4s\", full = \"4s\" }\nbegins = \"10s\"\n\
                    arrivals = [{ file = \"10kB\", every = \"200ms\" }]\nkill = [{ relay = \"relay\", at = \"12s\" }]\n";
    let text = candidates().replace("file = \"1MB\"\n", "").replace("transfers = 2\n", arrivals);
    fixture.write(&text);
    let output = fixture.run(&["--blocks", "1", "--no-check", "--only", "one"]);
    if is_skipped(&output) {
        return;
    }
    let runs = fixture.runs();
    assert_eq!(runs.len(), 1, "{}", stderr_text(&output));
    let sessions = runs[0]["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 20);
    let at = |session: &Value| session["at"].as_f64().unwrap();
    assert!(sessions.iter().all(|session| (10.0..30.0).contains(&at(session))), "{sessions:?}");
    let failed = |from: f64, to: f64| {
        let those = sessions.iter().filter(|session| (from..to).contains(&at(session)));
        those.map(|session| session["failed"].is_string()).collect::<Vec<_>>()
    };
    // A session that begins just before the relay is killed may not complete on a busy machine.
    let (before, after) = (failed(10.0, 10.8), failed(13.2, 30.0));
    assert!(!before.is_empty() && !before.contains(&true), "the relay runs: {sessions:?}");
    assert!(!after.is_empty() && !after.contains(&false), "there is no other path: {sessions:?}");
    let page = std::fs::read_to_string(fixture.path().join("results/small-quick/report.html")).unwrap();
    assert!(page.contains("Paths over time") && page.contains("<h2>Paths</h2>"), "{}", page.len());
}

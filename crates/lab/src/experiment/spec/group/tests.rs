use crate::experiment::spec::read::{Experiment, ExperimentCell};

/// Two groups over one bottleneck, with four levels of the factor `senders`.
const TEXT: &str = r#"
lab = 1
name = "shared"
title = "Two share"
[host.a]
[host.b]
[link.line]
ends = ["a", "b"]
rate = "10Mbit/s"
[workload]
protocol = "share"
time = { quick = "2s", full = "9s" }
warm_up = "1s"
ratio = ["reno", "cubic"]
[[workload.group]]
name = "cubic"
from = "a"
to = "b"
congestion = "cubic"
[[workload.group]]
name = "reno"
from = "a"
to = "b"
congestion = "reno"
connections = 3
[treatment.tail-drop]
program = "direct"
[treatment.red]
program = "direct"
[[treatment.red.at]]
where = { senders = "both" }
set = { "link.line.rate" = "7Mbit/s" }
[[treatment.red.at]]
where = { senders = ["many", "all"] }
[experiment]
treatments = ["tail-drop", "red"]
metric = "ratio"
also = ["mbit_s.reno", "jain"]
blocks = { quick = 1, full = 1 }
jobs = 2
[[factor]]
name = "senders"
levels = [
    { name = "both" },
    { name = "many", set = { "workload.group" = [{ name = "cubic", from = "a", to = "b", congestion = "cubic", connections = 128 }] } },
    { name = "all" },
    { name = "alone", set = { "workload.group" = [{ name = "short", from = "a", to = "b", congestion = "reno", short = { bytes = "1KiB", every = "9ms" } }] } },
]
[[expect]]
treatment = "red"
where = { senders = ["both", "all"] }
at_least = 0.5
"#;

fn errors_of(from: &str, to: &str) -> Vec<String> {
    let text = TEXT.replace(from, to);
    assert_ne!(text, TEXT, "{from} is not in the text");
    Experiment::parse("x", &text).unwrap_err()
}

#[test]
fn conditional_treatment_runs_only_at_matching_levels() {
    let experiment = Experiment::parse("x", TEXT).unwrap();
    let rate = |treatment: &str, senders: &str| {
        let is_requested =
            |cell: &&ExperimentCell| cell.key.treatment == treatment && cell.key.levels["senders"] == senders;
        let cell = experiment.cells.iter().find(is_requested)?;
        cell.spec.lab.links["line"].forward.rate.map(|rate| rate.to_string())
    };
    let red = ["both", "many", "all", "alone"].map(|senders| rate("red", senders));
    assert_eq!(red.each_ref().map(Option::as_deref), [Some("7Mbit/s"), Some("10Mbit/s"), Some("10Mbit/s"), None]);
    assert_eq!(rate("tail-drop", "alone").as_deref(), Some("10Mbit/s"));
    assert!(experiment.skipped.is_empty(), "the file excludes the combination, so there is no warning");
    assert_eq!(experiment.settings.jobs, 2);
}

#[test]
fn invalid_groups_are_rejected() {
    let wrong = [
        ("connections = 3", "connections = 0", "group \"reno\": connections: expected 1 to 128"),
        ("connections = 3", "connections = 129", "group \"reno\": connections: expected 1 to 128"),
        ("name = \"reno\"", "name = \"cubic\"", "group \"cubic\" is defined twice"),
        ("name = \"reno\"", "name = \"re/no\"", "expected a name of letters, digits and '-'"),
        (
            "from = \"a\"\nto = \"b\"\ncongestion = \"reno\"",
            "from = \"x\"\nto = \"b\"\ncongestion = \"reno\"",
            "there is no host \"x\"",
        ),
        ("congestion = \"reno\"\nconnections", "connections", "congestion is missing"),
        ("1KiB", "0B", "group \"short\": short: expected bytes and every above 0"),
        ("warm_up = \"1s\"", "warm_up = \"2s\"", "warm_up: expected whole seconds, less than time"),
        ("warm_up = \"1s\"", "warm_up = \"500ms\"", "warm_up: expected whole seconds, less than time"),
        ("time = { quick = \"2s\", full = \"9s\" }", "", "a stream has time"),
        (
            "[\"reno\", \"cubic\"]",
            "[\"reno\", \"reno\"]",
            "ratio: expected two different groups, not \"reno\" and \"reno\"",
        ),
        (
            "protocol = \"share\"",
            "protocol = \"stream\"",
            "[[workload.group]]: expected at least one with protocol = \"share\"",
        ),
    ];
    for (from, to, wanted) in wrong {
        let mistakes = errors_of(from, to);
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

#[test]
fn unknown_levels_factors_and_metrics_are_rejected() {
    let wrong = [
        (
            "where = { senders = \"both\" }",
            "where = { senders = \"none\" }",
            "treatment.red.at: there is no level \"none\"",
        ),
        ("[\"both\", \"all\"]", "[\"both\", \"none\"]", "expect 1: there is no level \"none\" of a factor \"senders\""),
        ("jobs = 2", "jobs = 0", "experiment.jobs: expected at least 1"),
        ("jobs = 2", "map = [\"senders\", \"rtt\"]", "experiment.map: there is no factor \"rtt\""),
        ("jobs = 2", "map = [\"senders\", \"senders\"]", "experiment.map: expected two different factors"),
        ("\"mbit_s.reno\"", "\"mbit_s.\"", "there is no metric \"mbit_s.\""),
    ];
    for (from, to, wanted) in wrong {
        let mistakes = errors_of(from, to);
        assert!(mistakes.iter().any(|mistake| mistake.contains(wanted)), "{wanted}: {mistakes:#?}");
    }
}

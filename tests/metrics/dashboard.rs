//! The bundled dashboard and alert rules query only existing metrics, and docs/metrics.md lists all metrics.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::fixture::*;
use crate::harness::*;

const DASHBOARD: &str = include_str!("../../docs/grafana/ekiden.json");
const ALERTS: &str = include_str!("../../docs/grafana/alerts.yaml");
const PAGE: &str = include_str!("../../docs/metrics.md");

/// Metrics that need a tunnel, a `tproxy` or TLS listener, or measured paths; tests/transparent, tests/tunnel,
/// tests/tls and tests/paths produce these metrics.
const TESTED_ELSEWHERE: [&str; 6] = [
    "ekiden_connections_passed",
    "ekiden_rules_packets",
    "ekiden_tunnel_packets",
    "ekiden_path_predicted_seconds",
    "ekiden_path_took_seconds",
    "ekiden_tls_certificate_expiry",
];

fn dashboard() -> Value {
    serde_json::from_str(DASHBOARD).expect("JSON")
}

/// Returns all panels, including those in rows.
fn panels() -> Vec<Value> {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let inner = panels.iter().filter_map(|panel| panel["panels"].as_array()).flatten();
    panels.iter().chain(inner).cloned().collect()
}

/// Returns the queries of all panels and variables, without replacing the variables in them.
fn queries() -> Vec<String> {
    let panels = panels();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions = targets.map(|target| target["expr"].as_str().expect("a query").to_owned());
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let asked = variables.iter().filter_map(|variable| variable["query"]["query"].as_str()).map(str::to_owned);
    expressions.chain(asked).collect()
}

/// Returns the expressions of the alert rules, if each is on one line.
fn alert_expressions() -> Vec<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim_start().strip_prefix("expr: ")).collect()
}

/// Returns the metric names in a text.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ekiden_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[test]
fn queried_metrics_exist_and_are_documented() {
    let fixture = Fixture::busy();
    wait_metric(&fixture.home, "ekiden_traced_sessions_total", &[], |count| count >= 1.0);
    let scrapes = [&fixture.home, &fixture.far, &fixture.proxy].map(Scrape::of);
    let known: BTreeSet<&str> = scrapes.iter().flat_map(Scrape::names).collect();
    let asked: BTreeSet<String> = {
        let alerts = alert_expressions().into_iter().map(str::to_owned);
        queries().into_iter().chain(alerts).flat_map(|query| names(&query)).collect()
    };
    assert!(asked.len() > 40, "{asked:?}");
    let elsewhere = |name: &String| TESTED_ELSEWHERE.iter().any(|begin| name.starts_with(begin));
    let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(name.as_str()) && !elsewhere(name)).collect();
    assert!(unknown.is_empty(), "in no scrape: {unknown:?}");

    let written = names(PAGE);
    let base = |name: &str| {
        let stems = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
        stems.chain([name]).any(|stem| written.contains(stem))
    };
    let unwritten: Vec<_> =
        known.iter().copied().chain(asked.iter().map(String::as_str)).filter(|n| !base(n)).collect();
    assert!(unwritten.is_empty(), "not in docs/metrics.md: {unwritten:?}");
}

/// Every alert has an expression, a duration, a severity and a summary.
#[test]
fn alert_rules_are_complete() {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.argv[1]), sys.stdout)";
    let output = Command::new("/usr/bin/python3").args(["-c", script, ALERTS]).output();
    let Some(output) =
        output.ok().filter(|output| !String::from_utf8_lossy(&output.stderr).contains("No module named"))
    else {
        skipped("no YAML in python (Debian: python3-yaml)");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let alerts: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let expressions: Vec<_> = rules.iter().map(|rule| rule["expr"].as_str().unwrap()).collect();
    assert_eq!(expressions, alert_expressions(), "an expression is not on one line");
    let named: BTreeSet<_> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(named.len(), rules.len(), "{named:?}");
    for rule in rules {
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{rule}");
        assert!(rule["for"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
    }
}

#[test]
fn the_dashboard_can_be_imported() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 39));
    assert!(dashboard["id"].is_null() && dashboard["uid"].as_str().is_some_and(|uid| uid.len() <= 40));
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let named: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(named, ["DS_PROMETHEUS", "instance", "listener"]);

    let panels = panels();
    let ids: Vec<u64> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        assert_eq!(panel["datasource"]["uid"], "${DS_PROMETHEUS}", "{title}");
        assert!(
            panel["description"].as_str().is_some_and(|text| text.len() > 10),
            "{title} has no description or a short one"
        );
        let targets = panel["targets"].as_array().unwrap();
        let refs: BTreeSet<&str> = targets.iter().map(|target| target["refId"].as_str().unwrap()).collect();
        assert_eq!(refs.len(), targets.len(), "{title}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{title}");
    }
    for (at, panel) in panels.iter().enumerate() {
        let covered = |other: &&Value| {
            let [one, two] = [&panel["gridPos"], &other["gridPos"]];
            let overlaps = |from: &str, length: &str| {
                let span = |place: &Value| (place[from].as_u64().unwrap(), place[length].as_u64().unwrap());
                let ((a, long), (b, wide)) = (span(one), span(two));
                a < b + wide && b < a + long
            };
            overlaps("x", "w") && overlaps("y", "h")
        };
        let other = panels[..at].iter().find(covered);
        assert!(other.is_none(), "{} overlaps {}", panel["title"], other.unwrap()["title"]);
    }
}

/// Ignored by default: the test needs promtool, and the dashboard changes seldom.
#[test]
#[ignore = "takes promtool of Debian's package prometheus: make check-dashboard"]
fn promtool_accepts_every_query() {
    let rule = |(number, query): (usize, &String)| {
        let query = query.replace("$__rate_interval", "5m").replace("$__range", "1h");
        let query = query.replace("$instance", ".*").replace("$listener", ".*");
        format!("  - record: \"check:{number}\"\n    expr: {query:?}\n")
    };
    let queries: Vec<String> = queries().into_iter().filter(|query| !query.starts_with("label_values")).collect();
    let rules: String = queries.iter().enumerate().map(rule).collect();
    let folder = Folder::new();
    let alerts = folder.write("alerts.yaml", ALERTS);
    let output =
        Command::new("promtool").args(["check", "rules"]).arg(&alerts).output().expect("promtool is installed");
    assert!(output.status.success(), "{output:?}");
    let file = folder.write("rules.yml", format!("groups:\n- name: dashboard\n  rules:\n{rules}"));
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output().expect("promtool is installed");
    let printed = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains(&format!("{} rules found", queries.len())), "{printed}");
}

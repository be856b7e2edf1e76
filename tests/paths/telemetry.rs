//! Path choices in the log and in metrics, and probes of targets by relays.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::fixture::*;
use crate::harness::*;
use crate::network::CLOSED_PORT;

/// Counts the events by the key that `of` returns.
fn counts(events: &[Value], of: impl Fn(&Value) -> String) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    events.iter().for_each(|event| *counts.entry(of(event)).or_default() += 1);
    counts
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

#[test]
fn a_change_of_path_is_logged_and_choices_are_counted() {
    let Some(mut fixture) = Fixture::new(AUTO) else { return };
    for (host, mbit) in [("server", 8), ("a", 16), ("b", 40), ("c", 8)] {
        fixture.limit_rate(host, mbit);
    }
    let mut closed = fixture.run_until_settled_on('b');
    fixture.limit_rate("b", 2);
    closed.extend(fixture.run_until(2, |path| !path.starts_with('b')));

    let metrics = fixture.home.relay.ask("/metrics");
    let assert_line = |line: &str| assert!(metrics.lines().any(|known| known == line), "{line} in {metrics}");
    for (reason, count) in counts(&closed, |event| text_of(&event["chosen"]["reason"])) {
        assert_line(&format!("ekiden_path_choices_total{{reason=\"{reason}\"}} {count}"));
    }
    for (via, count) in counts(&closed, path) {
        let relays = usize::from(via != "direct");
        assert_line(&format!("ekiden_paths_chosen_total{{via=\"{via}\",relays=\"{relays}\"}} {count}"));
    }
    for sum in ["predicted", "took"] {
        let begin = format!("ekiden_path_{sum}_seconds_total{{via=\"b\",relays=\"1\"}} ");
        let seconds = metrics.lines().find_map(|line| line.strip_prefix(&begin)).map(|sum| sum.parse::<f64>().unwrap());
        assert!(seconds.is_some_and(|seconds| seconds > 0.0), "{begin} in {metrics}");
    }

    fixture.home.relay.signal("TERM");
    let changes: Vec<Value> =
        fixture.home.relay.remaining_events().into_iter().filter(|event| event["event"] == "path_changed").collect();
    assert_line(&format!("ekiden_path_changes_total {}", changes.len()));
    let left = changes.iter().find(|change| change["from"] == "b").unwrap_or_else(|| panic!("{changes:#?}"));
    assert_eq!((&left["prefix"], &left["likely_direction"]), (&"10.9.0.0/24".into(), &"down".into()), "{left}");
    assert!(left["likely_bytes"].as_u64() >= Some(SESSION_BYTES / 2), "{left}");
    let why = text_of(&left["why"]);
    assert!(left["to"] != "b" && why.starts_with(&text_of(&left["to"])) && why.contains(" predicted for "), "{left}");
}

/// No session has reached the target through a relay, and home's own connection is refused: home requests probes of the
/// target from the relays.
#[test]
fn relays_probe_targets_that_lack_measurements() {
    let Some(fixture) = Fixture::new(AUTO) else { return };
    let target = SocketAddr::new(fixture.target().ip(), CLOSED_PORT);
    let refused = fixture.row["home"].inside(|| socks5(HOME.parse().unwrap(), target));
    assert_eq!(refused.map(|_| ()), Err(5));
    for key in &fixture.keys[1..] {
        let entry = eventually("a report of a relay about the target", || {
            let known: Vec<Value> = serde_json::from_str(&fixture.home.relay.ask("/api/paths")).unwrap();
            known.into_iter().find(|entry| entry["to"] == "10.9.0.0/24" && entry["told_by"] == *key.public)
        });
        assert!(entry["receiving"]["rtt_seconds"].as_f64().is_some_and(|rtt| rtt > 0.0 && rtt < 5.0), "{entry}");
    }
}

//! Metric names follow the rules of Prometheus ("Metric and label naming") and of OpenMetrics 1.0.

use std::collections::BTreeMap;

use crate::fixture::*;

/// Base units. A name with another unit, or with a unit before the end of the name, breaks the rules.
const UNITS: [&str; 5] = ["bits_per_second", "bytes_per_second", "seconds", "bytes", "ratio"];

/// Words that are not base units, or that are base units only with `per_second`.
const NO_UNITS: [&str; 16] = [
    "ms",
    "us",
    "ns",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "minutes",
    "hours",
    "days",
    "kilobytes",
    "kib",
    "megabytes",
    "mib",
    "percent",
    "bits",
    "bps",
];

/// All gauges: values that can decrease while the process runs. A value that only increases is a counter.
const GAUGES: [&str; 31] = [
    "ekiden_fleet_certificate_expiry_timestamp_seconds",
    "ekiden_fleet_draining",
    "ekiden_fleet_etcd_up",
    "ekiden_fleet_members",
    "ekiden_fleet_missing",
    "ekiden_pipes_idle",
    "ekiden_pipes_open",
    "ekiden_queued_bytes",
    "ekiden_quota_bytes",
    "ekiden_quota_used_bytes",
    "ekiden_ready",
    "ekiden_ready_used",
    "ekiden_relay_latency_seconds",
    "ekiden_relay_sessions",
    "ekiden_relay_slow",
    "ekiden_reload_taken",
    "ekiden_sections_waiting",
    "ekiden_sessions_open",
    "ekiden_share_fairness_ratio",
    "ekiden_share_level_bits_per_second",
    "ekiden_share_rate_bits_per_second",
    "ekiden_share_sections_sending",
    "ekiden_share_sent_bits_per_second",
    "ekiden_tls_certificate_expiry_timestamp_seconds",
    "ekiden_user_sessions_open",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    // A constant, which Prometheus' own client libraries expose as a gauge.
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
];

/// Returns the text of each line `# WORD NAME TEXT` with this word, by name.
fn metadata<'a>(scrape: &'a Scrape, word: &str) -> BTreeMap<&'a str, &'a str> {
    let begin = format!("# {word} ");
    let lines = scrape.0.lines().filter_map(|line| line.strip_prefix(begin.as_str())?.split_once(' '));
    lines.collect()
}

/// Returns a description of each rule that a metric breaks, with this name, type and UNIT line.
fn broken_rules(name: &str, kind: &str, unit: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut expect = |holds: bool, rule: &str| {
        if !holds {
            found.push(format!("{name} ({kind}): {rule}"));
        }
    };
    let words: Vec<&str> = name.split('_').collect();
    let ends_with = UNITS.iter().copied().find(|unit| name.ends_with(&format!("_{unit}")));
    let rest = ends_with.map_or(name, |unit| &name[..name.len() - unit.len() - 1]);
    let rest: Vec<&str> = rest.split('_').collect();
    expect(["ekiden", "process"].contains(&words[0]), "begins with the name of the program");
    expect(
        name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
        "lower case and underscores",
    );
    for suffix in ["total", "count", "sum", "bucket", "info", "created"] {
        // The suffix of a counter or an info appears only in the lines with values.
        expect(words.last() != Some(&suffix), "a suffix that only the encoder adds");
    }
    expect(!rest.iter().any(|word| NO_UNITS.contains(word)), "not a base unit");
    expect(!rest.iter().any(|word| ["seconds", "bytes", "ratio", "per"].contains(word)), "the unit is the end");
    let is_rate = rest.contains(&"rate");
    expect(!is_rate || ends_with.is_some_and(|unit| unit.ends_with("_per_second")), "a rate is per second");
    expect(unit.is_none() || unit == ends_with, "its UNIT line says what its name ends with");
    match kind {
        "gauge" => expect(GAUGES.contains(&name), "a gauge that is not known to fall: a counter?"),
        "histogram" => expect(ends_with.is_some() || words.last() == Some(&"segments"), "a histogram has a unit"),
        "counter" => expect(!is_rate, "a counter is no rate"),
        "info" => {}
        _ => expect(false, "unknown type"),
    }
    found
}

#[test]
fn every_name_follows_the_conventions() {
    let fixture = Fixture::busy();
    wait_metric(&fixture.home, "ekiden_traced_sessions_total", &[], |count| count >= 1.0);
    let mut found = Vec::new();
    for scrape in [&fixture.home, &fixture.far, &fixture.proxy].map(Scrape::of) {
        let (kinds, units, helps) = (metadata(&scrape, "TYPE"), metadata(&scrape, "UNIT"), metadata(&scrape, "HELP"));
        for (name, kind) in &kinds {
            found.extend(broken_rules(name, kind, units.get(name).copied()));
            assert!(helps.contains_key(name), "{name} has no HELP line");
        }
        for series in scrape.names() {
            let total = series.strip_suffix("_total");
            let is_counter = total.is_some_and(|base| kinds.get(base) == Some(&"counter"));
            assert_eq!(is_counter, total.is_some(), "{series}: _total is for counters");
            assert!(kinds.get(series) != Some(&"counter"), "{series}: a counter ends with _total");
        }
    }
    found.sort();
    found.dedup();
    assert!(found.is_empty(), "{found:#?}");
}

/// Tests `broken_rules` itself.
#[test]
fn names_that_break_the_conventions_are_detected() {
    for (name, kind, unit) in [
        ("ekiden_pipe_fallbacks", "gauge", None),
        ("ekiden_share_rate_bits", "gauge", None),
        ("ekiden_share_rate_bits", "gauge", Some("bits")),
        ("ekiden_section_delivery_rate_bytes", "histogram", Some("bytes")),
        ("ekiden_connect_milliseconds", "histogram", None),
        ("ekiden_connect", "histogram", None),
        ("ekiden_seconds_connected", "counter", None),
        ("ekiden_connect_seconds", "histogram", Some("milliseconds")),
        ("ekiden_reloads_total", "gauge", None),
        ("sessions", "counter", None),
    ] {
        assert_ne!(broken_rules(name, kind, unit), [""; 0], "{name}");
    }
    for (name, kind, unit) in [
        ("ekiden_pipe_fallbacks", "counter", None),
        ("ekiden_share_rate_bits_per_second", "gauge", Some("bits_per_second")),
        ("ekiden_connect_seconds", "histogram", Some("seconds")),
        ("ekiden_section_window_segments", "histogram", None),
    ] {
        assert_eq!(broken_rules(name, kind, unit), [""; 0]);
    }
}

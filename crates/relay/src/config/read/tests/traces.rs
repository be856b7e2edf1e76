//! `[traces]`.

use super::*;
use crate::config::TracesConfig;

fn traces(lines: &str) -> TracesConfig {
    good(&with_listener(&format!("[traces]\n{lines}"))).traces.expect("there is a collector")
}

#[test]
fn nobody_is_told_unless_a_collector_is_named() {
    assert!(good(&with_listener("")).traces.is_none());
}

#[test]
fn a_collector_has_the_usual_port_and_path() {
    for (url, address, path) in [
        ("http://127.0.0.1", "127.0.0.1:4318", ""),
        ("http://127.0.0.1:4318/", "127.0.0.1:4318", ""),
        ("http://collector.example:80/otlp/", "collector.example:80", "/otlp"),
        ("http://[::1]:4318/v1/traces", "[::1]:4318", ""),
        ("http://collector/a/b/v1/traces", "collector:4318", "/a/b"),
    ] {
        let traces = traces(&format!("endpoint = \"{url}\""));
        assert_eq!((traces.collector.address.to_string().as_str(), traces.collector.path.as_str()), (address, path));
    }
}

#[test]
fn all_sessions_are_told_and_no_address_of_a_client_unless_it_is_said() {
    let usual = traces("endpoint = \"http://c\"");
    assert!((usual.sample_ratio.0 - 1.0).abs() < f64::EPSILON && !usual.client_address && !usual.name.is_empty());
    let other = traces("endpoint = \"http://c\"\nsample = 0\nclient_address = true\nname = \"tokyo\"");
    assert!(other.sample_ratio.0.abs() < f64::EPSILON && other.client_address);
    assert_eq!(other.name, "tokyo");
}

#[test]
fn what_cannot_be_is_a_mistake() {
    for (lines, key, word) in [
        ("", "traces.endpoint", "http://127.0.0.1:4318"),
        ("endpoint = \"https://c:4318\"", "traces.endpoint", "for https"),
        ("endpoint = \"c:4318\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c:0\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://u:p@c\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c/a b\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c/?a=b\"", "traces.endpoint", "http://"),
        ("endpoint = \"http://c\"\nsample = 1.5", "traces.sample", "from 0 to 1"),
        ("endpoint = \"http://c\"\nsample = \"half\"", "traces.sample", "from 0 to 1"),
        ("endpoint = \"http://c\"\nname = \"to kyo\"", "traces.name", "a name"),
        ("endpoint = \"http://c\"\nport = 1", "traces.port", "endpoint"),
    ] {
        let mistakes = mistakes(&with_listener(&format!("[traces]\n{lines}")));
        assert_eq!(mistakes.len(), 1, "{lines}: {mistakes:?}");
        assert_eq!(mistakes[0].key, key, "{lines}");
        assert!(mistakes[0].expected.contains(word), "{lines}: {}", mistakes[0].expected);
    }
}

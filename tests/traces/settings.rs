//! Settings of traces: the address of the collector, and the share of sampled sessions.

use crate::collector::*;
use crate::harness::*;
use crate::relays::*;

#[test]
fn invalid_settings_are_reported_with_expected_values() {
    let folder = Folder::new();
    let text = "version = 1\n[traces]\nendpoint = \"https://collector.example:4318\"\nsample = 2\n";
    let file = folder.write("bad.toml", format!("{text}[[listener]]\nbind = \"127.0.0.1:0\"\n"));
    let output = ekiden().arg("check").arg(&file).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{printed}");
    for expected in
        ["bad.toml:3", "traces.endpoint", "http://127.0.0.1:4318", "for https", "bad.toml:4", "traces.sample"]
    {
        assert!(printed.contains(expected), "{expected} is missing in:\n{printed}");
    }
}

/// Runs a session up to its closing event.
fn session(home: &mut Relay) {
    let (client, server) = pair(home);
    drop((client, server));
    session_closed(home);
    // A worker answers this query after it has exported its ended sessions.
    home.sessions();
}

/// A relay exports the remaining spans before it exits, so a span that is missing afterwards is lost.
#[test]
fn sample_0_exports_no_session_and_sample_1_exports_all() {
    for (sample, expected) in [("0", 0), ("1.0", 20)] {
        let collector = Collector::start(CollectorMode::Accept);
        let site = Site::new();
        let mut home = site.home(&collector.table("home", &format!("sample = {sample}")), AUTO);
        (0..20).for_each(|_| session(&mut home));
        home.signal("TERM");
        assert_eq!(home.exit_code(), Some(0));
        let sessions = collector.spans().iter().filter(|span| span.json["name"] == "session").count();
        assert_eq!(sessions, expected, "sample = {sample}");
    }
}

/// Relays sample without coordination.
#[test]
fn relays_with_equal_sample_export_the_same_traces() {
    let collector = Collector::start(CollectorMode::Accept);
    let half = "sample = 0.5";
    let (home, far) = (collector.table("home", half), collector.table("far", half));
    let mut chain = Layout { home, far, ..Layout::default() }.start();
    (0..40).for_each(|_| session(&mut chain.home));
    for relay in [&mut chain.home, &mut chain.relays[0]] {
        relay.signal("TERM");
        assert_eq!(relay.exit_code(), Some(0));
    }
    let traces = |relay: &str| {
        let spans = collector.spans().into_iter().filter(|span| span.relay == relay && span.json["name"] == "session");
        let mut traces: Vec<String> = spans.map(|span| span.json["traceId"].to_string()).collect();
        traces.sort_unstable();
        traces
    };
    assert_eq!(traces("home"), traces("far"));
    // The chance that all sessions or none are sampled is less than one in 10^11 runs.
    assert!((1..40).contains(&traces("home").len()), "{}", traces("home").len());
}

#[test]
fn reload_enables_and_disables_traces() {
    let collector = Collector::start(CollectorMode::Accept);
    let site = Site::new();
    let mut home = site.home("", AUTO);
    session(&mut home);
    let reload = |home: &mut Relay, settings: &str| {
        site.write_home(settings, AUTO);
        home.signal("HUP");
        home.next(|event| event["event"] == "reloaded");
    };
    reload(&mut home, &collector.table("told", ""));
    session(&mut home);
    assert_eq!(collector.span("told", "session").attribute("ekiden.session"), "2");
    reload(&mut home, "");
    session(&mut home);
    home.signal("TERM");
    assert_eq!(home.exit_code(), Some(0));
    let sessions = collector.spans().iter().filter(|span| span.json["name"] == "session").count();
    assert_eq!((sessions, collector.requests()), (1, 1));
}

//! The collector's address, and the sampled share.

use crate::collector::*;
use crate::harness::*;
use crate::relays::*;

#[test]
fn a_bad_endpoint_is_a_mistake_that_says_what_to_write() {
    let folder = Folder::new();
    let text = "version = 1\n[traces]\nendpoint = \"https://collector.example:4318\"\nsample = 2\n";
    let file = folder.write("bad.toml", format!("{text}[[listener]]\nbind = \"127.0.0.1:0\"\n"));
    let output = ekiden().arg("check").arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    for expected in
        ["bad.toml:3", "traces.endpoint", "http://127.0.0.1:4318", "for https", "bad.toml:4", "traces.sample"]
    {
        assert!(said.contains(expected), "no word of {expected} in:\n{said}");
    }
}

/// A session from its beginning to its closing event.
fn session(home: &mut Relay) {
    let (client, server) = pair(home);
    drop((client, server));
    session_closed(home);
    // A worker answers this query after it has exported its ended sessions.
    home.sessions();
}

/// A relay exports the rest before it ends, so a missing span will never come.
#[test]
fn a_share_of_nothing_tells_nothing_and_one_of_all_tells_all_before_the_end() {
    for (sample, told) in [("0", 0), ("1.0", 20)] {
        let collector = Collector::start(Manner::Takes);
        let site = Site::new();
        let mut home = site.home(&collector.table("home", &format!("sample = {sample}")), AUTO);
        (0..20).for_each(|_| session(&mut home));
        home.signal("TERM");
        assert_eq!(home.exit_code(), Some(0));
        let sessions = collector.spans().iter().filter(|span| span.json["name"] == "session").count();
        assert_eq!(sessions, told, "of a share of {sample}");
    }
}

/// Relays that know nothing of each other's choices tell of the same sessions.
#[test]
fn a_trace_is_told_by_all_relays_of_the_same_share_or_by_none() {
    let collector = Collector::start(Manner::Takes);
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
    // Once in 10^11 runs it is all or nothing by chance.
    assert!((1..40).contains(&traces("home").len()), "{}", traces("home").len());
}

#[test]
fn a_reload_begins_and_ends_it() {
    let collector = Collector::start(Manner::Takes);
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

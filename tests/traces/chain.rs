//! The spans of a session through relays.

use std::io::Write;
use std::net::Shutdown;

use serde_json::Value;

use crate::collector::*;
use crate::harness::*;
use crate::relays::*;

const PARTS: [&str; 3] = ["ingress", "dial", "transfer"];

/// A home relay and a relay behind it that export to `collector`.
fn traced_chain(collector: &Collector, more: &str) -> Chain {
    let (home, far) = (collector.table("home", more), collector.table("far", more));
    Layout { home, far, ..Layout::default() }.start()
}

/// Downloads this number of bytes through the chain. Returns the closing event of the first relay.
fn download(chain: &mut Chain, bytes: usize) -> Value {
    let (mut client, mut server) = chain.pair();
    client.write_all(b"please").unwrap();
    read_exactly(&mut server, 6);
    server.write_all(&pattern(bytes)).unwrap();
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut client).len(), bytes);
    drop((client, server));
    session_closed(&mut chain.home)
}

#[test]
fn the_spans_of_both_relays_are_one_trace() {
    let collector = Collector::start(CollectorMode::Accept);
    let mut chain = traced_chain(&collector, "");
    let closed = download(&mut chain, 300_000);
    let (home, far) = (collector.span("home", "session"), collector.span("far", "session"));

    assert_eq!(home.json["traceId"], closed["trace"], "{closed}");
    assert_eq!(far.json["traceId"], closed["trace"]);
    assert!(home.json["parentSpanId"].is_null(), "{home:?}");
    assert_eq!(far.json["parentSpanId"], home.json["spanId"], "the far relay was called by the home relay");
    for (relay, session) in [("home", &home), ("far", &far)] {
        assert_eq!((&session.json["kind"], session.attribute("ekiden.end")), (&2.into(), "finished".into()));
        assert!(session.json["status"].is_null(), "{session:?}");
        assert_eq!(session.attribute("ekiden.bytes_down"), "300000", "{session:?}");
        assert_eq!(session.attribute("ekiden.bytes_up"), "6", "{session:?}");
        let (begin, end) = session.times();
        for name in PARTS {
            let part = collector.span(relay, name);
            assert_eq!(part.json["parentSpanId"], session.json["spanId"], "{part:?}");
            assert_eq!(part.json["traceId"], closed["trace"], "{part:?}");
            let (from, to) = part.times();
            assert!(begin <= from && from <= to && to <= end, "{name} of {relay}: {part:?} in {session:?}");
        }
        let transfer = collector.span(relay, "transfer");
        let (from, to) = transfer.times();
        assert!(transfer.event_time("first byte").is_some_and(|at| from <= at && at <= to), "{transfer:?}");
        assert!(transfer.attribute("ekiden.down.rtt_seconds").as_f64().is_some_and(|rtt| rtt > 0.0), "{transfer:?}");
    }
    let ids: Vec<Value> = collector.spans().iter().map(|span| span.json["spanId"].clone()).collect();
    assert_eq!(ids.len(), 8);
    assert!((1..ids.len()).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
}

#[test]
fn dial_span_has_an_event_per_hop() {
    let collector = Collector::start(CollectorMode::Accept);
    let mut chain = traced_chain(&collector, "");
    download(&mut chain, 1000);
    let dial = collector.span("home", "dial");
    assert_eq!((&dial.json["kind"], dial.attribute("ekiden.path")), (&3.into(), "way".into()), "{dial:?}");
    let far = chain.sites[1].address;
    assert_eq!(dial.attribute("network.peer.address"), far.ip().to_string());
    assert_eq!(dial.attribute("network.peer.port"), far.port().to_string());
    let hop = &dial.json["events"][0];
    assert_eq!((&hop["name"], attribute(hop, "ekiden.hop")), (&"hop answered".into(), "1".into()), "{dial:?}");
    assert!(collector.span("far", "dial").json["events"].is_null(), "there is no relay behind the far one");
}

#[test]
fn client_address_is_exported_only_if_configured() {
    for (more, exported) in [("", false), ("client_address = true", true)] {
        let collector = Collector::start(CollectorMode::Accept);
        let mut chain = traced_chain(&collector, more);
        let closed = download(&mut chain, 1000);
        let (ip, port) = closed["client"].as_str().unwrap().rsplit_once(':').unwrap();
        for relay in ["home", "far"] {
            let session = collector.span(relay, "session");
            collector.span(relay, "transfer");
            let expected = if exported { (ip.into(), port.into()) } else { (Value::Null, Value::Null) };
            assert_eq!((session.attribute("client.address"), session.attribute("client.port")), expected);
        }
        let everywhere = format!("{:?}", collector.spans());
        assert_eq!(everywhere.contains(&format!("\"{port}\"")), exported, "{everywhere}");
    }
}

#[test]
fn spans_of_a_refused_session_carry_the_error() {
    let collector = Collector::start(CollectorMode::Accept);
    let chain = traced_chain(&collector, "");
    let refused = socks5(chain.home.address(), unused_address()).map(drop);
    assert_eq!(refused, Err(5));
    for (relay, name) in [("home", "session"), ("home", "dial"), ("far", "session"), ("far", "dial")] {
        let span = collector.span(relay, name);
        assert_eq!(span.attribute("error.type"), "refused", "{span:?}");
        assert_eq!(span.json["status"]["code"], 2, "{span:?}");
        assert!(span.json["status"]["message"].as_str().unwrap().starts_with("refused"), "{span:?}");
    }
    assert!(collector.spans().iter().all(|span| span.json["name"] != "transfer"), "nothing was transferred");
}

#[test]
fn each_direct_session_has_its_own_trace() {
    let collector = Collector::start(CollectorMode::Accept);
    let site = Site::new();
    let home = site.home(&collector.table("home", ""), AUTO);
    for _ in 0..2 {
        let (client, server) = pair(&home);
        drop((client, server));
    }
    let sessions = eventually("the spans of two sessions", || {
        let spans = collector.spans().into_iter().filter(|span| span.json["name"] == "session");
        Some(spans.collect::<Vec<_>>()).filter(|sessions| sessions.len() == 2)
    });
    let trace = |at: usize| sessions[at].json["traceId"].as_str().unwrap().to_owned();
    assert_eq!((trace(0).len(), sessions[0].attribute("ekiden.path")), (32, "direct".into()));
    assert_ne!(trace(0), trace(1));
}

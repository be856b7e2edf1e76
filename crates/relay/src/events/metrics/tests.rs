//! Every metric, and the page that documents the metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Target};
use ekiden_proto::event::{ChoiceRecord, EndReason, SectionInfo};
use ekiden_proto::fleet::RelayState;
use ekiden_proto::key::PublicKey;
use ekiden_proto::limiting::{Bottleneck, LimitingFactor, LimitingSection};
use ekiden_proto::resume::{Jump, ResumeOutcome, SectionStart};

use super::*;
use crate::rules::Counter;
use crate::status::fleet::MemberView;

const PAGE: &str = include_str!("../../../../../docs/metrics.md");

/// A session of `client` to `target` with every value set.
fn session(client: SocketAddr, target: &str) -> Event {
    let second = Duration::from_secs(1);
    let info = SectionInfo {
        rtt: second / 100,
        min_rtt: second / 200,
        retransmitted: 5,
        segments_out: 1000,
        delivery_rate: 1 << 20,
        cwnd: 10,
        busy: second / 2,
        rwnd_limited: second / 4,
        sndbuf_limited: second / 8,
        start: SectionStart { earlier_sessions: 1, jump: Some(Jump { bytes: 9, outcome: ResumeOutcome::Confirmed }) },
    };
    let chosen = ChoiceRecord {
        reason: "best",
        why: String::new(),
        likely_bytes: 1,
        likely_direction: "down",
        predicted: Some(second),
        took: Some(second * 2),
    };
    Event::Closed(Box::new(SessionClosed {
        target: Some(target.parse::<Target>().unwrap()),
        path: "osaka,tokyo".to_owned(),
        chosen: Some(Box::new(chosen)),
        end: EndReason::Finished,
        duration: second,
        connect: Some(second / 10),
        first_byte: Some(second / 5),
        down: Some(info),
        up: Some(info),
        limited: Some(LimitingFactor { section: LimitingSection::Up, by: Bottleneck::Loss }),
        ..SessionClosed::new(1, "door".to_owned(), ClientAddr(client))
    }))
}

/// Metrics of a relay after events of every kind.
fn eventful() -> Metrics {
    let metrics = Metrics::new();
    drop((
        metrics.totals("door"),
        metrics.packet_counters("tunnel"),
        metrics.datagram_counters("door"),
        metrics.pools.for_relay("osaka"),
    ));
    metrics.record_accepted("door");
    drop(metrics.track_waiting_section("section"));
    metrics.record_section_evicted("section");
    metrics.record_tls_handshake("http", "completed");
    metrics.record_certificate_reload("http", "accepted");
    drop(metrics.track_http2_connection("http"));
    metrics.record_http2_stream("http", "accepted");
    metrics.record_list_reload("list".to_owned(), "accepted");
    metrics.set_certificate_expiry("http", std::time::SystemTime::now());
    metrics.record_passed("caught", "draining");
    metrics.record_upstream_reuse("hit");
    metrics.sessions.record_request(200);
    metrics.observe(&Event::AcceptPaused { listener: "door".to_owned(), reason: "session_limit" });
    metrics.observe(&session("192.0.2.1:1".parse().unwrap(), "server.example:443"));
    metrics.rules.update(&[Counter { what: "asymmetric".to_owned(), listener: None, packets: 3 }]);
    metrics.traces.record_queue_full();
    metrics
}

fn scrape(metrics: &Metrics) -> String {
    let interface = InterfaceView {
        interface: "eth0".to_owned(),
        rate_bits_per_second: 8,
        sending: 2,
        level_bits_per_second: Some(4),
        sent_bits_per_second: 8,
        fairness: Some(1.0),
    };
    let worker = WorkerCounts { name: "worker-0".to_owned(), ..WorkerCounts::default() };
    let account = AccountView {
        quota_bytes: Some(100),
        used_bytes: Some(60),
        bytes_up: 10,
        ..AccountView::empty("user", "alice")
    };
    let (workers, interfaces, accounts) = (vec![worker], vec![interface], vec![account]);
    metrics.encode(ScrapeData { workers, interfaces, accounts, fleet: None })
}

/// Returns the value on the line that begins with `name`.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
    line.trim().parse().unwrap()
}

/// The documentation row of each metric, by its name in queries.
fn rows(text: &str) -> BTreeMap<String, String> {
    let words = |line: &str, word: &str| {
        let (name, rest) = line.strip_prefix(&format!("# {word} "))?.split_once(' ')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    let helps = text.lines().filter_map(|line| words(line, "HELP"));
    let kinds: BTreeMap<String, String> = text.lines().filter_map(|line| words(line, "TYPE")).collect();
    helps
        .map(|(name, help)| {
            let kind = &kinds[&name];
            let suffix = match kind.as_str() {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let labels = labels(text, &name);
            let row = format!("| `{name}{suffix}` | {kind} | {labels} | {} |", help.trim_end_matches('.'));
            (format!("{name}{suffix}"), row)
        })
        .collect()
}

fn labels(text: &str, name: &str) -> String {
    let suffixes = ["", "_total", "_info", "_bucket"].map(|suffix| format!("{name}{suffix}{{"));
    let line = text.lines().find_map(|line| suffixes.iter().find_map(|suffix| line.strip_prefix(suffix)));
    let pairs = line.and_then(|line| line.split_once('}')).map_or("", |(pairs, _)| pairs);
    let names = pairs.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").collect::<Vec<_>>().join(", ")
}

#[test]
fn metrics_page_lists_exactly_the_exported_metrics() {
    let rows = rows(&scrape(&eventful()));
    let written: BTreeMap<String, String> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `ekiden_") || line.starts_with("| `process_"))
        .map(|line| (line.split('`').nth(1).unwrap().to_owned(), line.to_owned()))
        .collect();
    let missing: Vec<_> = rows.iter().filter(|(name, row)| written.get(*name) != Some(row)).collect();
    let wrong = missing.iter().map(|(_, row)| format!("{row}\n")).collect::<String>();
    assert!(missing.is_empty(), "docs/metrics.md should say:\n{wrong}");
    let more: Vec<_> = written.keys().filter(|name| !rows.contains_key(*name)).collect();
    assert!(more.is_empty(), "docs/metrics.md lists unknown metrics: {more:?}");
}

#[test]
fn ratios_cover_the_time_since_the_previous_sample() {
    let metrics = Metrics::new();
    let before = SectionInfo { segments_out: 1000, retransmitted: 500, ..SectionInfo::default() };
    let second = Duration::from_secs(1);
    let now = SectionInfo {
        segments_out: 1100,
        retransmitted: 501,
        busy: second,
        rwnd_limited: second / 4,
        ..SectionInfo::default()
    };
    metrics.sections.record_sample("up", SampleMoment::Running, &before, &now, 2 * second);
    let text = scrape(&metrics);
    let sum = |name: &str| value(&text, &format!("ekiden_section_{name}_sum{{section=\"up\",at=\"running\"}}"));
    for (name, share) in [
        ("retransmitted_ratio", 0.01),
        ("busy_ratio", 0.5),
        ("rwnd_limited_ratio", 0.25),
        ("sndbuf_limited_ratio", 0.0),
    ] {
        assert!((sum(name) - share).abs() < 1e-9, "{name} is {} and not {share}", sum(name));
    }
    assert!(!text.contains("ekiden_section_rtt_seconds_count"), "an RTT without a measurement");
}

#[test]
fn sections_are_counted_by_start_and_jump_outcome() {
    let metrics = Metrics::new();
    let close = |earlier_sessions, jump: Option<ResumeOutcome>| {
        let start = SectionStart { earlier_sessions, jump: jump.map(|outcome| Jump { bytes: 9, outcome }) };
        let up = Some(SectionInfo { start, ..SectionInfo::default() });
        let client = ClientAddr("192.0.2.1:1".parse().unwrap());
        let closed = SessionClosed { up, ..SessionClosed::new(1, "door".to_owned(), client) };
        metrics.observe(&Event::Closed(Box::new(closed)));
    };
    close(0, None);
    close(0, Some(ResumeOutcome::Rejected));
    close(0, Some(ResumeOutcome::Retreated));
    close(1, None);
    close(2, None);
    close(3, Some(ResumeOutcome::Retreated));
    let text = scrape(&metrics);
    for (labels, count) in [
        ("starts_total{section=\"up\",start=\"cold\"}", 2.0),
        ("starts_total{section=\"up\",start=\"resumed\"}", 1.0),
        ("starts_total{section=\"up\",start=\"reused\"}", 3.0),
        ("jumps_total{section=\"up\",outcome=\"rejected\"}", 1.0),
        ("jumps_total{section=\"up\",outcome=\"retreated\"}", 2.0),
    ] {
        assert!((value(&text, &format!("ekiden_section_{labels}")) - count).abs() < 0.5, "{labels} in {text}");
    }
    assert!(!text.contains("section=\"down\""), "a section without a session");
}

#[test]
fn number_of_lines_does_not_depend_on_clients_or_targets() {
    let lines = |metrics: &Metrics| scrape(metrics).lines().count();
    let metrics = eventful();
    let before = lines(&metrics);
    for number in 0..1000_u32 {
        let client = SocketAddr::from((std::net::Ipv4Addr::from(0xc000_0200 + number), 1000));
        metrics.record_accepted("door");
        metrics.observe(&session(client, &format!("host-{number}.example:{}", 1 + number)));
    }
    assert_eq!(lines(&metrics), before);
    let text = scrape(&metrics);
    assert!(!text.contains("192.0.") && !text.contains(".example"), "{text}");
    assert!((value(&text, "ekiden_sessions_accepted_total{listener=\"door\"}") - 1001.0).abs() < 0.5);
}

/// Regression: after a reload without transparent listeners, the counters of the removed rules kept their last values.
#[test]
fn rule_counters_end_with_the_rules() {
    let metrics = eventful();
    let has_counters = || scrape(&metrics).contains("ekiden_rules_packets_total{");
    assert!(has_counters());
    metrics.rules.set_instance(None);
    assert!(!has_counters());
}

/// Regression: after a reload without `[fleet]`, the gauges kept their last values, and the alert about the certificate
/// fired later.
#[test]
fn fleet_gauges_are_zero_without_a_fleet() {
    let metrics = Metrics::new();
    let member = MemberView {
        name: "osaka".to_owned(),
        key: PublicKey([1; 32]),
        address: String::new(),
        state: RelayState::Draining,
        age_seconds: 0.0,
        missing_seconds: Some(1.0),
        not_after: 1_800_000_000,
        neighbours: 0,
    };
    let fleet = Some(FleetView::for_test(vec![member]));
    let before = metrics.encode(ScrapeData { fleet, ..ScrapeData::default() });
    let after = scrape(&metrics);
    for (name, last) in [
        ("members", 1.0),
        ("draining", 1.0),
        ("missing", 1.0),
        ("etcd_up", 1.0),
        ("certificate_expiry_timestamp_seconds", 1.8e9),
    ] {
        let gauge = |text: &str| value(text, &format!("ekiden_fleet_{name}"));
        assert_eq!((gauge(&before), gauge(&after)), (last, 0.0), "{name}");
    }
}

#[test]
fn rejected_reload_is_reported_until_a_reload_succeeds() {
    let metrics = Metrics::new();
    let taken = |metrics: &Metrics| value(&scrape(metrics), "ekiden_reload_taken");
    assert!((taken(&metrics) - 1.0).abs() < 0.5);
    metrics.observe(&Event::ReloadRejected { mistakes: Vec::new() });
    assert!(taken(&metrics).abs() < 0.5);
    metrics.observe(&Event::Reloaded { listeners: 1 });
    metrics.record_reload_duration(Duration::from_millis(3));
    let text = scrape(&metrics);
    for (line, count) in
        [("reload_taken", 1.0), ("reload_seconds_count", 1.0), ("reloads_total{result=\"taken\"}", 1.0)]
    {
        assert!((value(&text, &format!("ekiden_{line}")) - count).abs() < 0.5, "{line}");
    }
}

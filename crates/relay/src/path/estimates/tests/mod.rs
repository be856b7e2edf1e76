//! The store of estimates without sockets: the reports to each relay, and the resulting map.

mod aging;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ekiden_proto::direction::Direction;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::path::estimate::SectionSample;
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::path::hours::HourlyBaseline;
use ekiden_proto::path::map::{NetworkMap, THIS_RELAY};
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::wire::section::report::{DirectionEstimate, MAX_ENTRIES, ReportQuery, SectionReport, Subject};

use super::history::Baselines;
use super::reports::SentEntries;
use super::store::EstimateDirection;
use super::*;
use crate::config::Config;
use crate::config::read::from_text;

const RTT: Duration = Duration::from_millis(30);

fn store() -> EstimateStore {
    EstimateStore::new(Instant::now())
}

fn key(number: u8) -> PublicKey {
    PublicKey([number; 32])
}

fn prefix(number: u8) -> Prefix {
    format!("192.0.{number}.0/24").parse().unwrap()
}

fn sample(lost: u64) -> SectionSample {
    SectionSample { rtt: Some(RTT), segments: 10_000, lost, rate: Some(1e6), rate_is_limit: true, window: None }
}

fn report_entry(subject: Subject, loss: f64) -> SectionReport {
    let figures =
        EstimateSnapshot { rtt: Some(RTT), loss: Some(loss), segments: 10_000.0, ..EstimateSnapshot::default() };
    let estimate = DirectionEstimate { snapshot: figures, age: Duration::ZERO };
    SectionReport { subject, sending: estimate, receiving: estimate }
}

/// A configuration with two next hops, and the public key of its relay.
fn config() -> (Config, PublicKey) {
    let relay = |number: u8| {
        format!("[[relay]]\nname = \"r{number}\"\naddress = \"192.0.2.{number}:7000\"\nkey = \"{}\"\n", key(number))
    };
    let text = format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{}{}", relay(1), relay(2));
    let config = from_text(&text).unwrap();
    let own: &PrivateKey = &config.relays[0].peering().unwrap().own_key;
    let own = own.public_key();
    (config, own)
}

fn loss_of(map: &NetworkMap, from: u32, to: PublicKey, direction: Direction) -> Option<f64> {
    let known = map.section(from, map.find(&to)?, direction)?;
    Some((known.section.loss * 1000.0).round() / 1000.0)
}

#[test]
fn map_contains_measurements_and_reports() {
    let ((config, own), estimates) = (config(), store());
    estimates.record_session(PeerId::Relay(key(1)), None, &sample(20), &sample(10), 0);
    estimates.record_session(
        PeerId::Targets(prefix(7)),
        None,
        &sample(0),
        &SectionSample { rate: None, ..sample(50) },
        0,
    );
    estimates
        .record_report(key(1), &[report_entry(Subject::Relay(key(2)), 0.004), report_entry(Subject::Caller(own), 0.3)]);
    let map = estimates.map(&config, None).unwrap();
    assert_eq!(loss_of(&map, THIS_RELAY, key(1), Direction::Up), Some(0.002));
    assert_eq!(loss_of(&map, THIS_RELAY, key(1), Direction::Down), Some(0.001), "own measurements outweigh reports");
    let first = map.find(&key(1)).unwrap();
    assert_eq!(loss_of(&map, first, key(2), Direction::Down), Some(0.004));
    assert_eq!(loss_of(&map, THIS_RELAY, key(2), Direction::Down), None, "no estimate exists");
    let last = map.last_section(THIS_RELAY, prefix(7), Direction::Down).unwrap();
    assert!(last.is_own && (last.section.loss - 0.0048).abs() < 1e-4 && last.section.rtt == RTT, "{last:?}");
}

#[test]
fn report_is_used_for_an_own_section_without_a_measured_loss() {
    let ((config, own), estimates) = (config(), store());
    estimates.record_session(
        PeerId::Relay(key(1)),
        None,
        &sample(0),
        &SectionSample { rtt: Some(RTT), ..SectionSample::default() },
        0,
    );
    estimates.record_report(key(1), &[report_entry(Subject::Caller(own), 0.03)]);
    let map = estimates.map(&config, None).unwrap();
    assert_eq!(loss_of(&map, THIS_RELAY, key(1), Direction::Down), Some(0.029), "the sender knows the loss");
    let known = map.section(THIS_RELAY, map.find(&key(1)).unwrap(), Direction::Down).unwrap();
    assert!(!known.is_own && known.confidence < 0.95, "{known:?}");
}

/// A relay forwards only to relays that it dials itself.
#[test]
fn caller_is_not_a_next_hop() {
    let ((config, _), estimates) = (config(), store());
    estimates.record_report(key(1), &[report_entry(Subject::Caller(key(2)), 0.0)]);
    estimates.record_report(key(2), &[report_entry(Subject::Relay(key(1)), 0.0)]);
    let map = estimates.map(&config, None).unwrap();
    let (one, two) = (map.find(&key(1)).unwrap(), map.find(&key(2)).unwrap());
    assert_eq!(map.section(one, two, Direction::Down), None);
    assert!(map.section(two, one, Direction::Down).is_some());
}

#[test]
fn relays_keep_their_numbers_in_a_new_map() {
    let ((config, _), estimates) = (config(), store());
    let before = estimates.map(&config, None).unwrap();
    let after = estimates.map(&config, Some(&before)).unwrap();
    assert_eq!((after.find(&key(1)), after.find(&key(2))), (before.find(&key(1)), before.find(&key(2))));
}

#[test]
fn unrequested_prefixes_are_ignored() {
    let ((config, _), estimates) = (config(), store());
    estimates.request_prefix(prefix(1));
    let entries = [1, 2].map(|number| report_entry(Subject::Targets(prefix(number)), 0.0));
    estimates.record_report(key(1), &entries);
    let map = estimates.map(&config, None).unwrap();
    let one = map.find(&key(1)).unwrap();
    assert!(map.last_section(one, prefix(1), Direction::Down).is_some_and(|known| !known.is_own));
    assert_eq!(map.last_section(one, prefix(2), Direction::Down), None);
}

#[test]
fn prefix_estimates_are_sent_once_and_only_to_their_users() {
    let (estimates, mut sent) = (store(), SentEntries::default());
    estimates.record_session(PeerId::Targets(prefix(1)), Some(key(1)), &sample(0), &sample(0), 0);
    let query = ReportQuery { neighbours: true, prefixes: vec![prefix(1), prefix(2)] };
    let report = estimates.report_for(&query, key(1), &mut sent);
    assert_eq!(report.iter().map(|entry| entry.subject).collect::<Vec<_>>(), [Subject::Targets(prefix(1))]);
    assert_eq!(estimates.report_for(&query, key(1), &mut sent), [], "already sent");
    assert_eq!(estimates.report_for(&query, key(2), &mut SentEntries::default()), [], "another relay asks");
}

#[test]
fn reports_are_bounded_and_start_with_the_asking_relay() {
    let (estimates, mut sent) = (store(), SentEntries::default());
    for number in 1..=200 {
        estimates.record_session(PeerId::Relay(key(number)), None, &sample(0), &sample(0), 0);
    }
    let query = ReportQuery { neighbours: true, prefixes: Vec::new() };
    let mut seen = Vec::new();
    loop {
        let report = estimates.report_for(&query, key(150), &mut sent);
        if report.is_empty() {
            break;
        }
        assert!(report.len() <= MAX_ENTRIES);
        seen.extend(report.into_iter().map(|entry| entry.subject));
    }
    assert_eq!((seen.len(), seen[0]), (200, Subject::Relay(key(150))));
}

/// Regression: with more changed neighbours than fit into a report, each report had the same neighbours.
#[test]
fn all_entries_are_reported_in_turn_if_all_change() {
    let (estimates, mut sent) = (store(), SentEntries::default());
    let query = ReportQuery { neighbours: true, prefixes: vec![prefix(1)] };
    let mut seen = HashSet::new();
    // Four reports have space for the entry about the requesting relay and 4 × 63 others.
    for _ in 0..4 {
        for number in 1..=200 {
            estimates.record_session(PeerId::Relay(key(number)), None, &sample(0), &sample(0), 0);
        }
        estimates.record_session(PeerId::Targets(prefix(1)), Some(key(150)), &sample(0), &sample(0), 0);
        seen.extend(estimates.report_for(&query, key(150), &mut sent).into_iter().map(|entry| entry.subject));
    }
    assert_eq!(seen.len(), 201);
}

#[test]
fn queries_cycle_through_all_prefixes() {
    let estimates = store();
    (0..=200).for_each(|number| estimates.request_prefix(prefix(number)));
    let (mut asked, mut from) = (Vec::new(), None);
    for _ in 0..4 {
        let (prefixes, end) = estimates.requested_prefixes(from);
        assert!(prefixes.len() <= MAX_ENTRIES);
        asked.extend(prefixes);
        from = end;
    }
    asked.sort_unstable();
    asked.dedup();
    assert_eq!((asked.len(), from), (201, None));
}

#[test]
fn each_relay_probes_a_prefix_once() {
    let estimates = store();
    let target = |host: u8| format!("192.0.2.{host}:443").parse().unwrap();
    assert!(estimates.queue_target_probe(key(1), target(1)));
    assert!(!estimates.queue_target_probe(key(1), target(2)), "the same network");
    assert!(estimates.queue_target_probe(key(2), target(2)), "another relay");
    assert_eq!(estimates.take_target_probes(&key(1)), [target(1)]);
    assert_eq!(estimates.take_target_probes(&key(1)), []);
    assert!(!estimates.queue_target_probe(key(1), target(1)), "just probed");
    let networks = (0..100).map(|number| format!("10.0.{number}.1:443").parse().unwrap());
    let (queued, refused): (Vec<SocketAddr>, Vec<_>) =
        networks.partition(|target| estimates.queue_target_probe(key(3), *target));
    assert_eq!((queued.len(), refused.len()), (16, 84), "the queue of a relay is bounded");
    assert_eq!(estimates.take_target_probes(&key(3)), queued);
    assert!(estimates.queue_target_probe(key(3), refused[0]), "the queue is empty again");
    estimates.record_target_probe(key(1), target(1), RTT);
    estimates.request_prefix(target(1).ip().into());
    let (config, _) = config();
    let map = estimates.map(&config, None).unwrap();
    let last = map.last_section(map.find(&key(1)).unwrap(), target(9).ip().into(), Direction::Down).unwrap();
    assert!(last.section.rtt == RTT && !last.is_own);
}

#[test]
fn published_neighbours_contain_relays_only() {
    let estimates = store();
    let proxy = PeerId::Proxy("192.0.2.1:1080".parse().unwrap());
    for place in [PeerId::Targets(prefix(1)), proxy, PeerId::Relay(key(1))] {
        estimates.record_session(place, Some(key(2)), &sample(0), &sample(0), 0);
    }
    estimates.record_incoming_session(PeerId::Relay(key(2)), &sample(0), &sample(0), 0);
    let mut published: Vec<_> = estimates.neighbours().into_iter().map(|entry| entry.subject).collect();
    published.sort_by_key(|subject| format!("{subject:?}"));
    assert_eq!(published, [Subject::Caller(key(2)), Subject::Relay(key(1))]);
    let nothing = ReportQuery { neighbours: false, prefixes: Vec::new() };
    assert_eq!(estimates.report_for(&nothing, key(2), &mut SentEntries::default()), []);
}

/// A relay that probes this relay has dialled in, so it is not yet a next hop.
#[test]
fn probing_relay_is_a_caller_until_dialled() {
    let estimates = store();
    let query = ReportQuery { neighbours: true, prefixes: Vec::new() };
    let reported_subject =
        |estimates: &EstimateStore| estimates.report_for(&query, key(9), &mut SentEntries::default())[0].subject;
    estimates.record_probe(PeerId::Relay(key(1)), false, &sample(0), &sample(0));
    assert_eq!(reported_subject(&estimates), Subject::Caller(key(1)));
    estimates.record_probe(PeerId::Relay(key(1)), true, &sample(0), &sample(0));
    assert_eq!(reported_subject(&estimates), Subject::Relay(key(1)));
}

#[test]
fn prefix_users_and_reporters_are_bounded() {
    let estimates = store();
    for user in 1..=40 {
        estimates.record_session(PeerId::Targets(prefix(1)), Some(key(user)), &sample(0), &sample(0), 0);
    }
    let query = ReportQuery { neighbours: false, prefixes: vec![prefix(1)] };
    let receives = |user: &u8| !estimates.report_for(&query, key(*user), &mut SentEntries::default()).is_empty();
    assert_eq!((1..=40).filter(receives).collect::<Vec<_>>(), (9..=40).collect::<Vec<_>>(), "the last 32");
    for reporter in 0..1100_u32 {
        let mut key = [0; 32];
        key[..4].copy_from_slice(&reporter.to_be_bytes());
        estimates.record_report(PublicKey(key), &[report_entry(Subject::Relay(PublicKey([1; 32])), 0.0)]);
    }
    assert_eq!(estimates.views().iter().filter(|entry| entry.told_by.is_some()).count(), 1024);
}

#[test]
fn map_sections_have_rtt_rate_and_connection_state() {
    let ((config, _), estimates) = (config(), store());
    let unseen = SectionSample { rtt: None, ..sample(0) };
    estimates.record_session(PeerId::Relay(key(1)), None, &unseen, &sample(0), 0);
    estimates.record_session(PeerId::Targets(prefix(1)), None, &sample(0), &sample(0), 0);
    let map = estimates.map(&config, None).unwrap();
    let up = map.section(THIS_RELAY, map.find(&key(1)).unwrap(), Direction::Up).unwrap().section;
    assert_eq!(
        (up.rtt, up.line_rate, up.connection.is_ready()),
        (RTT, Some(1e6), true),
        "the round trip is the same both ways"
    );
    assert!(
        !map.last_section(THIS_RELAY, prefix(1), Direction::Down).unwrap().section.connection.is_ready(),
        "no connection to a target is ready"
    );
}

#[test]
fn relay_sections_are_those_that_the_first_relay_dials() {
    let ((config, _), estimates) = (config(), store());
    let sections = || {
        let views = estimates.relay_sections(&config);
        views.into_iter().map(|section| (section.from, section.to)).collect::<Vec<_>>()
    };
    estimates.record_probe(PeerId::Relay(key(1)), false, &sample(0), &sample(0));
    estimates.record_report(key(1), &[report_entry(Subject::Caller(key(2)), 0.0)]);
    assert_eq!(sections(), []);
    estimates.record_probe(PeerId::Relay(key(1)), true, &sample(0), &sample(0));
    estimates.record_report(key(2), &[report_entry(Subject::Relay(key(1)), 0.0)]);
    assert_eq!(sections(), [(None, "r1".to_owned()), (Some("r2".to_owned()), "r1".to_owned())]);
}

#[test]
fn draining_relay_has_no_sections_and_keeps_its_number() {
    let ((mut config, _), estimates) = (config(), store());
    for relay in [1, 2] {
        estimates.record_session(PeerId::Relay(key(relay)), None, &sample(0), &sample(0), 0);
    }
    estimates.record_report(key(1), &[report_entry(Subject::Relay(key(2)), 0.0)]);
    let before = estimates.map(&config, None).unwrap();
    assert_eq!(before.section_count(), 3);
    config.draining.push(key(1));
    let after = estimates.map(&config, Some(&before)).unwrap();
    assert_eq!((after.section_count(), after.find(&key(1)), after.find(&key(2))), (1, Some(1), Some(2)));
    assert_eq!(estimates.map(&config, None).unwrap().find(&key(2)), Some(1), "a new map assigns new numbers");
}

/// The report of the other end has a higher confidence than the own measurement.
#[test]
fn own_measurements_outweigh_reports() {
    let ((config, own), estimates) = (config(), store());
    let some = SectionSample { segments: 100, lost: 2, ..sample(0) };
    estimates.record_session(PeerId::Relay(key(1)), None, &some, &some, 0);
    estimates.record_report(key(1), &[report_entry(Subject::Caller(own), 0.3)]);
    let map = estimates.map(&config, None).unwrap();
    let known = map.section(THIS_RELAY, map.find(&key(1)).unwrap(), Direction::Down).unwrap();
    assert!(known.is_own && known.section.loss < 0.1 && (0.5..0.9).contains(&known.confidence), "{known:?}");
}

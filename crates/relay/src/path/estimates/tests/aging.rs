//! Aging of estimates, and the intervals of probes.

use super::*;

/// Returns a store with the same estimates, `by` seconds older.
fn later(estimates: &EstimateStore, by: u64) -> EstimateStore {
    let older = EstimateStore::new(Instant::now().checked_sub(estimates.now() + Duration::from_secs(by)).unwrap());
    std::mem::swap(&mut *older.lock(), &mut *estimates.lock());
    older
}

const RELAY: PeerId = PeerId::Relay(PublicKey([1; 32]));
const PROBE_INTERVAL: Duration = Duration::from_secs(12);

#[test]
fn probe_is_skipped_after_a_recent_probe_or_large_session() {
    let estimates = store();
    assert!(estimates.needs_probe(RELAY, PROBE_INTERVAL), "nothing is known");
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 1000);
    assert!(estimates.needs_probe(RELAY, PROBE_INTERVAL) && !estimates.is_busy(RELAY), "too few bytes for a rate");
    estimates.record_probe(RELAY, true, &sample(0), &sample(0));
    assert!(!estimates.needs_probe(RELAY, PROBE_INTERVAL), "just probed");
    let estimates = later(&estimates, 13);
    assert!(estimates.needs_probe(RELAY, PROBE_INTERVAL));
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 100_000);
    assert!(!estimates.needs_probe(RELAY, PROBE_INTERVAL) && estimates.is_busy(RELAY) && estimates.views()[0].busy);
    let estimates = later(&estimates, 11);
    assert!(
        estimates.needs_probe(RELAY, PROBE_INTERVAL) && !estimates.is_busy(RELAY) && !estimates.views()[0].busy,
        "the session is too old"
    );
}

#[test]
fn prefixes_are_requested_while_own_sessions_use_them() {
    let estimates = store();
    estimates.record_session(PeerId::Targets(prefix(1)), None, &sample(0), &sample(0), 0);
    estimates.record_session(PeerId::Targets(prefix(2)), Some(key(1)), &sample(0), &sample(0), 0);
    assert_eq!(estimates.requested_prefixes(None).0, [prefix(1)], "sessions of other relays request no prefix");
    let estimates = later(&estimates, 590);
    estimates.request_prefix(prefix(3));
    assert_eq!(estimates.requested_prefixes(None).0, [prefix(1), prefix(3)]);
    assert_eq!(later(&estimates, 11).requested_prefixes(None).0, [prefix(3)]);
}

#[test]
fn target_probe_is_repeated_after_an_interval() {
    let estimates = store();
    let target = "192.0.2.1:443".parse().unwrap();
    assert!(estimates.queue_target_probe(key(1), target));
    assert_eq!(estimates.take_target_probes(&key(1)), [target]);
    let estimates = later(&estimates, 280);
    assert!(!estimates.queue_target_probe(key(1), target));
    assert!(later(&estimates, 21).queue_target_probe(key(1), target));
}

#[test]
fn age_of_an_estimate_is_sent_and_received() {
    let (estimates, mut sent) = (store(), SentEntries::default());
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 0);
    let estimates = later(&estimates, 100);
    let query = ReportQuery { neighbours: true, prefixes: Vec::new() };
    let report = estimates.report_for(&query, key(9), &mut sent);
    assert!(report[0].sending.age >= Duration::from_secs(100) && report[0].receiving.age >= Duration::from_secs(100));
    estimates.record_report(key(2), &report);
    let (own, reported) = (&estimates.views()[0], &estimates.views()[1]);
    assert!(reported.told_by == Some(key(2)) && reported.sending.age_seconds >= own.sending.age_seconds - 0.1);
}

#[test]
fn only_recent_estimates_are_written_and_only_recent_reports_count() {
    let estimates = store();
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 0);
    estimates.record_report(key(2), &[report_entry(Subject::Relay(key(3)), 0.0)]);
    assert!(estimates.updated_since(Duration::ZERO).len() == 1 && estimates.has_report_since(&key(2), Duration::ZERO));
    let estimates = later(&estimates, 10);
    let since = estimates.now() - Duration::from_secs(5);
    assert!(estimates.updated_since(since).is_empty() && !estimates.has_report_since(&key(2), since));
    estimates.record_session(PeerId::Relay(key(4)), None, &sample(0), &sample(0), 0);
    assert_eq!(
        estimates.updated_since(since).iter().map(|(place, _)| *place).collect::<Vec<_>>(),
        [PeerId::Relay(key(4))]
    );
}

/// Returns the baseline of one hour of the week, from four equal weeks.
fn baseline(rate: f64) -> HourlyBaseline {
    HourlyBaseline { rtt: Some(RTT.as_secs_f64()), loss: Some(0.0), rate: Some(rate), weeks: 4 }
}

#[test]
fn estimates_are_scaled_to_the_baseline_of_the_current_hour() {
    let ((config, _), estimates) = (config(), store());
    estimates.record_session(PeerId::Targets(prefix(1)), None, &sample(0), &sample(0), 0);
    let rate = |estimates: &EstimateStore, number: u8| {
        let estimate =
            estimates.map(&config, None).unwrap().last_section(THIS_RELAY, prefix(number), Direction::Down)?;
        Some((estimate.section.rate() / 1e5).round() / 10.0)
    };
    let estimates = later(&estimates, 100);
    assert_eq!(rate(&estimates, 1), Some(1.0), "as measured, in MB/s");
    let hour =
        |number: u8, rate: f64| ((PeerId::Targets(prefix(number)), EstimateDirection::Receiving), baseline(rate));
    let hours = |since| Baselines {
        now: [hour(1, 0.5e6), hour(2, 3e6)].into(),
        previous: [hour(1, 2e6)].into(),
        current_since: Some(estimates.now().saturating_sub(Duration::from_secs(since))),
    };
    estimates.set_baselines(hours(50));
    assert!(
        rate(&estimates, 1).is_some_and(|rate| rate < 0.5),
        "a quarter of the measured rate: {:?}",
        rate(&estimates, 1)
    );
    assert_eq!(rate(&estimates, 2), Some(3.0), "known from the history only");
    estimates.set_baselines(hours(200));
    assert!(rate(&estimates, 1).is_some_and(|rate| rate > 0.7), "measured in this hour: {:?}", rate(&estimates, 1));
}

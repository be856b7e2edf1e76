//! Aging of estimates, and the intervals of probes.

use super::*;

/// The same book so much later.
fn later(estimates: &EstimateStore, by: u64) -> EstimateStore {
    let older = EstimateStore::new(Instant::now().checked_sub(estimates.now() + Duration::from_secs(by)).unwrap());
    std::mem::swap(&mut *older.lock(), &mut *estimates.lock());
    older
}

const RELAY: PeerId = PeerId::Relay(PublicKey([1; 32]));
const LOOK: Duration = Duration::from_secs(12);

#[test]
fn nobody_looks_where_somebody_has_looked_or_sessions_tell() {
    let estimates = book();
    assert!(estimates.needs_probe(RELAY, LOOK), "nothing is known");
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 1000);
    assert!(estimates.needs_probe(RELAY, LOOK) && !estimates.is_busy(RELAY), "a few bytes say little of a rate");
    estimates.record_probe(RELAY, true, &sample(0), &sample(0));
    assert!(!estimates.needs_probe(RELAY, LOOK), "just looked");
    let estimates = later(&estimates, 13);
    assert!(estimates.needs_probe(RELAY, LOOK));
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 100_000);
    assert!(!estimates.needs_probe(RELAY, LOOK) && estimates.is_busy(RELAY) && estimates.views()[0].busy);
    let estimates = later(&estimates, 11);
    assert!(
        estimates.needs_probe(RELAY, LOOK) && !estimates.is_busy(RELAY) && !estimates.views()[0].busy,
        "it is over"
    );
}

#[test]
fn networks_are_asked_for_while_own_sessions_go_there() {
    let estimates = book();
    estimates.record_session(PeerId::Targets(prefix(1)), None, &sample(0), &sample(0), 0);
    estimates.record_session(PeerId::Targets(prefix(2)), Some(key(1)), &sample(0), &sample(0), 0);
    assert_eq!(estimates.requested_prefixes(None).0, [prefix(1)], "where other relays' sessions go is their affair");
    let estimates = later(&estimates, 590);
    estimates.request_prefix(prefix(3));
    assert_eq!(estimates.requested_prefixes(None).0, [prefix(1), prefix(3)]);
    assert_eq!(later(&estimates, 11).requested_prefixes(None).0, [prefix(3)]);
}

#[test]
fn a_network_is_looked_at_again_after_a_while() {
    let estimates = book();
    let target = "192.0.2.1:443".parse().unwrap();
    assert!(estimates.queue_target_probe(key(1), target));
    assert_eq!(estimates.take_target_probes(&key(1)), [target]);
    let estimates = later(&estimates, 299);
    assert!(!estimates.queue_target_probe(key(1), target));
    assert!(later(&estimates, 2).queue_target_probe(key(1), target));
}

#[test]
fn what_is_old_is_told_as_old_and_taken_as_old() {
    let (estimates, mut heard) = (book(), SentEntries::default());
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 0);
    let estimates = later(&estimates, 100);
    let ask = ReportQuery { neighbours: true, prefixes: Vec::new() };
    let told = estimates.report_for(&ask, key(9), &mut heard);
    assert!(told[0].sending.age >= Duration::from_secs(100) && told[0].receiving.age >= Duration::from_secs(100));
    estimates.record_report(key(2), &told);
    let (of_us, of_them) = (&estimates.views()[0], &estimates.views()[1]);
    assert!(of_them.told_by == Some(key(2)) && of_them.sending.age_seconds >= of_us.sending.age_seconds - 0.1);
}

#[test]
fn only_what_is_new_is_written_and_counts_as_word_of_somebody() {
    let estimates = book();
    estimates.record_session(RELAY, None, &sample(0), &sample(0), 0);
    estimates.record_report(key(2), &[says(Subject::Relay(key(3)), 0.0)]);
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

/// The usual values of an hour, after so many equal weeks.
fn usual(rate: f64) -> HourlyBaseline {
    HourlyBaseline { rtt: Some(RTT.as_secs_f64()), loss: Some(0.0), rate: Some(rate), weeks: 4 }
}

#[test]
fn what_was_measured_in_a_quiet_hour_is_brought_into_the_busy_one() {
    let ((config, _), estimates) = (config(), book());
    estimates.record_session(PeerId::Targets(prefix(1)), None, &sample(0), &sample(0), 0);
    let rate = |estimates: &EstimateStore, number: u8| {
        let known = estimates.map(&config, None).unwrap().last_section(THIS_RELAY, prefix(number), Direction::Down)?;
        Some((known.section.rate() / 1e5).round() / 10.0)
    };
    let estimates = later(&estimates, 100);
    assert_eq!(rate(&estimates, 1), Some(1.0), "as measured, in MB/s");
    let hour = |number: u8, rate: f64| ((PeerId::Targets(prefix(number)), EstimateDirection::Receiving), usual(rate));
    let hours = |since| Baselines {
        now: [hour(1, 0.5e6), hour(2, 3e6)].into(),
        previous: [hour(1, 2e6)].into(),
        current_since: Some(estimates.now().saturating_sub(Duration::from_secs(since))),
    };
    estimates.set_baselines(hours(50));
    assert!(rate(&estimates, 1).is_some_and(|rate| rate < 0.5), "a quarter of it, {:?}", rate(&estimates, 1));
    assert_eq!(rate(&estimates, 2), Some(3.0), "only the history knows that one");
    estimates.set_baselines(hours(200));
    assert!(
        rate(&estimates, 1).is_some_and(|rate| rate > 0.7),
        "it was measured in this hour: {:?}",
        rate(&estimates, 1)
    );
}

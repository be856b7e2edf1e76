use super::*;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn losing(segments: u64, lost: u64) -> SectionSample {
    SectionSample { rtt: Some(Duration::from_millis(20)), segments, lost, ..SectionSample::default() }
}

fn carrying(rate: f64, rate_is_limit: bool) -> SectionSample {
    SectionSample { rate: Some(rate), rate_is_limit, ..SectionSample::default() }
}

fn of(samples: &[(u64, SectionSample)]) -> Estimate {
    let mut estimate = Estimate::default();
    samples.iter().for_each(|(seconds, sample)| estimate.record(sample, at(*seconds)));
    estimate
}

fn near(value: Option<f64>, expected: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() <= expected * 0.02)
}

#[test]
fn nothing_is_known_of_a_section_that_nobody_has_used() {
    let estimate = Estimate::default();
    assert_eq!((estimate.rtt(), estimate.loss(), estimate.rate(), estimate.window()), (None, None, None, None));
    assert!(estimate.confidence(at(0)) < f64::EPSILON);
}

#[test]
fn samples_count_by_their_segments() {
    let estimate = of(&[(0, losing(10_000, 10)), (0, losing(100, 1))]);
    assert!(near(estimate.loss(), 11.0 / 10_100.0), "{estimate:?}");
}

#[test]
fn more_losses_than_segments_are_all_of_them() {
    assert!(near(of(&[(0, losing(10, 90))]).loss(), 1.0));
}

#[test]
fn a_section_that_begins_to_lose_is_believed_at_once() {
    let estimate = of(&[(0, losing(20_000, 2)), (10, losing(1_000, 20))]);
    assert!(estimate.loss().is_some_and(|loss| loss > 0.009), "{estimate:?}");
}

/// Else what came before would be taken for what it carries, and the losses for fewer than they are.
#[test]
fn and_what_it_carried_before_is_forgotten() {
    let fast = SectionSample { rate: Some(1e7), rate_is_limit: true, ..losing(20_000, 2) };
    let slow = SectionSample { rate: Some(5e5), ..losing(200, 8) };
    let estimate = of(&[(0, fast), (10, slow)]);
    assert_eq!((estimate.rate(), estimate.at_least()), (None, Some(5e5)));
    assert_eq!(of(&[(0, fast), (10, SectionSample { rate: Some(5e5), ..losing(200, 0) })]).rate(), Some(1e7));
}

#[test]
fn and_one_that_stops_to_lose_as_well() {
    let estimate = of(&[(0, losing(20_000, 400)), (10, losing(5_000, 0))]);
    assert!(estimate.loss().is_some_and(|loss| loss < 0.011), "{estimate:?}");
}

#[test]
fn what_chance_explains_changes_little() {
    let estimate = of(&[(0, losing(20_000, 200)), (1, losing(1_000, 14))]);
    assert!(estimate.loss().is_some_and(|loss| (0.0100..0.0103).contains(&loss)), "{estimate:?}");
}

#[test]
fn what_is_old_counts_half_after_half_its_life() {
    let estimate = of(&[(0, losing(1_000, 4)), (HALF_LIFE.as_secs(), losing(1_000, 10))]);
    assert!(near(estimate.loss(), 12.0 / 1_500.0), "{estimate:?}");
}

#[test]
fn a_rate_that_was_not_the_limit_is_a_lower_bound_only() {
    let estimate = of(&[(0, carrying(1e6, false))]);
    assert_eq!((estimate.rate(), estimate.at_least()), (None, Some(1e6)));
}

#[test]
fn a_limit_is_believed_until_more_has_come() {
    let mut estimate = of(&[(0, carrying(1e6, true)), (0, carrying(5e5, false))]);
    assert_eq!(estimate.rate(), Some(1e6), "less than the limit says nothing");
    estimate.record(&carrying(3e6, false), at(0));
    assert_eq!(estimate.rate(), Some(3e6), "more says that it is not one");
}

#[test]
fn a_lower_limit_lowers_the_rate() {
    let estimate = of(&[(0, carrying(4e6, true)), (5, carrying(1e6, true)), (10, carrying(1e6, true))]);
    assert!(estimate.rate().is_some_and(|rate| rate < 2.1e6), "{estimate:?}");
}

#[test]
fn a_rate_that_is_no_number_is_none() {
    assert_eq!(of(&[(0, carrying(f64::NAN, true)), (0, carrying(-1.0, true))]).rate(), None);
}

#[test]
fn round_trips_are_smoothed_until_the_road_changes() {
    let rtt = |millis| SectionSample { rtt: Some(Duration::from_millis(millis)), ..SectionSample::default() };
    assert_eq!(of(&[(0, rtt(20)), (1, rtt(24))]).rtt(), Some(Duration::from_millis(21)));
    assert_eq!(of(&[(0, rtt(20)), (1, rtt(60))]).rtt(), Some(Duration::from_millis(60)));
}

#[test]
fn confidence_grows_with_segments_and_falls_with_age() {
    let (few, many) = (of(&[(0, losing(20, 0))]), of(&[(0, losing(2_000, 0))]));
    assert!(few.confidence(at(0)) < 0.3 && many.confidence(at(0)) > 0.9);
    assert!(many.confidence(at(600)) < 0.5 * many.confidence(at(0)));
    assert!(many.confidence(at(7_200)) < 0.01);
    assert_eq!(many.age(at(600)), at(600));
}

#[test]
fn time_that_runs_backwards_does_no_harm() {
    let estimate = of(&[(50, losing(100, 1)), (10, losing(100, 1))]);
    assert!(near(estimate.loss(), 0.01) && estimate.age(at(20)) == Duration::ZERO);
}

#[test]
fn what_is_told_is_known() {
    let own = of(&[(0, losing(1_000, 10)), (0, carrying(2e6, true))]);
    let told = Estimate::from_snapshot(&own.snapshot(), own.age(at(30)), at(1_000));
    assert_eq!((told.snapshot().rtt, told.rate(), told.age(at(1_000))), (own.rtt(), own.rate(), at(30)));
    assert!(near(told.loss(), 0.01));
}

#[test]
fn a_liar_cannot_make_us_sure_for_ever() {
    let lie = EstimateSnapshot { loss: Some(-5.0), segments: 1e300, ..EstimateSnapshot::default() };
    let told = Estimate::from_snapshot(&lie, Duration::ZERO, at(0));
    assert!(told.loss() == Some(0.0) && told.confidence(at(0)) <= 1.0);
}

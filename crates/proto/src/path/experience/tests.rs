use super::*;

const NOW: Duration = Duration::from_secs(1000);

/// What the map promises, in logarithms of seconds.
const PROMISED: f64 = 0.5;

const CLASS: SizeClass = SizeClass(11);

/// By how much `experience` says that sessions will be slower than promised, where others' word alone would make it `hearsay`.
fn slower(experience: &PathAverages, hearsay: f64, now: Duration) -> f64 {
    (experience.predict(PROMISED + hearsay, 1.0, now) - PROMISED).exp()
}

fn comes(experience: &mut PathAverages, factor: f64) -> bool {
    let expected = experience.predict(PROMISED, 1.0, NOW);
    experience.record(PROMISED + factor.ln(), PROMISED, expected, NOW)
}

/// An experience of so many sessions that each came by `factor` slower.
fn after(sessions: u32, factor: f64) -> PathAverages {
    let mut experience = PathAverages::new(CLASS);
    for _ in 0..sessions {
        comes(&mut experience, factor);
    }
    experience
}

#[test]
fn what_came_beats_what_others_say() {
    let correction = slower(&after(3, 3.0), (1.0_f64 / 8.0).ln(), NOW);
    assert!((2.0..3.0).contains(&correction), "{correction}");
    assert_eq!(PathAverages::new(CLASS).predict(7.0, 1.0, NOW), 7.0, "nothing came yet");
}

#[test]
fn a_map_that_says_something_else_now_has_to_show_it() {
    let experience = after(8, 1.0);
    for other in [-3.0, 3.0] {
        let expected = experience.predict(PROMISED + other, 1.0, NOW);
        assert!((expected - PROMISED).abs() < 0.2, "as it came: {expected}");
    }
    let mut confirmed = experience;
    for _ in 0..16 {
        confirmed.record(PROMISED - 3.0, PROMISED - 3.0, confirmed.predict(PROMISED - 3.0, 1.0, NOW), NOW);
    }
    let now = confirmed.predict(PROMISED - 3.0, 1.0, NOW);
    assert!(now < PROMISED - 2.5, "it has shown it: {now}");
}

#[test]
fn sessions_of_another_size_tell_the_less_the_farther_it_is() {
    let mut past = PathHistory::default();
    *past.entry(CLASS) = after(8, 4.0);
    let share = |past: &PathHistory, class| past.nearest(SizeClass(class)).map(|(near, share)| (near.class(), share));
    assert_eq!([11, 12, 9].map(|class| share(&past, class)), [1.0, 0.7, 0.7 * 0.7].map(|share| Some((CLASS, share))));
    past.entry(SizeClass(9));
    assert_eq!(share(&past, 9), Some((CLASS, 0.7 * 0.7)), "there nothing came yet");
    *past.entry(SizeClass(9)) = PathAverages { class: SizeClass(9), ..after(1, 1.0) };
    assert_eq!(share(&past, 9), Some((SizeClass(9), 1.0)));
    assert!(
        past.log_excess(CLASS, NOW) > past.log_excess(SizeClass(12), NOW)
            && past.log_excess(SizeClass(9), NOW).abs() < 0.01
    );
}

#[test]
fn sizes_are_alike_that_have_the_same_power_of_two_next_to_them() {
    let class = |bytes: u64| SizeClass::for_bytes(bytes).bytes();
    assert_eq!([0, 1000, 100_000, 90_000, u64::MAX].map(class), [1 << 10, 1 << 10, 1 << 17, 1 << 16, 1 << 40]);
}

#[test]
fn what_came_long_ago_counts_little() {
    let experience = after(8, 4.0);
    let later = |halves: u32| slower(&experience, 0.0, NOW + HALF_LIFE * halves);
    assert!(later(0) > 3.5 && later(12) < 1.02, "{} and {}", later(0), later(12));
    assert!(experience.weight(NOW + HALF_LIFE) < 4.1);
}

#[test]
fn three_in_a_row_disappoint_and_one_is_chance() {
    let mut experience = after(8, 1.0);
    assert_eq!([3.0, 3.0, 1.0].map(|factor| comes(&mut experience, factor)), [false, false, false]);
    assert_eq!([3.0, 3.0, 3.0].map(|factor| comes(&mut experience, factor)), [false, false, true]);
    assert!(slower(&experience, 0.0, NOW) > 2.5, "believed at once: {experience:?}");
}

#[test]
fn a_bit_slower_is_no_disappointment_and_nothing_is_infinite() {
    let mut experience = PathAverages::new(CLASS);
    for _ in 0..20 {
        assert!(!experience.record(PROMISED + 1.3_f64.ln(), PROMISED, PROMISED, NOW));
    }
    experience.record(f64::INFINITY, PROMISED, PROMISED, Duration::ZERO);
    experience.record(f64::NEG_INFINITY, PROMISED, PROMISED, Duration::MAX);
    assert!(experience.predict(0.0, 1.0, NOW).is_finite(), "{experience:?}");
}

#[test]
fn one_session_with_bad_luck_counts_little_and_a_fast_one_after_a_pause_much() {
    let mut experience = PathAverages::new(CLASS);
    comes(&mut experience, 20.0);
    assert!(slower(&experience, 0.0, NOW) < 4.0, "{experience:?}");
    let mut bad = after(8, 8.0);
    comes(&mut bad, 1.0);
    assert!(slower(&bad, 0.0, NOW) > 4.0, "{bad:?}");
    bad.record_trial(PROMISED, PROMISED, bad.predict(PROMISED, 1.0, NOW), NOW);
    assert!(slower(&bad, 0.0, NOW) < 1.1, "{bad:?}");
}

const fn second(second: u64) -> Duration {
    Duration::from_secs(1000 + second)
}

#[test]
fn pauses_grow_and_what_was_under_way_does_not_make_them_longer() {
    let mut pause = CircuitBreaker { is_closed: true, ..CircuitBreaker::default() };
    let mut at = 0;
    for wanted in [10, 20, 40, 80, 160, 320, 600, 600] {
        assert_eq!(pause.state(second(at)), BreakerState::Closed);
        pause.trip(false, second(at));
        pause.trip(false, second(at + 5));
        assert_eq!(pause.state(second(at + wanted - 1)), BreakerState::Open, "{wanted}: {pause:?}");
        at += wanted;
    }
    pause.trip(false, second(at + 601));
    assert_eq!(pause.state(second(at + 611)), BreakerState::Closed, "forgotten: {pause:?}");
}

#[test]
fn one_session_tries_and_the_others_wait() {
    let mut pause = CircuitBreaker::default();
    pause.trip(true, second(0));
    pause.record_success();
    assert_eq!([9, 10].map(|at| pause.state(second(at))), [BreakerState::Open, BreakerState::HalfOpen]);
    pause.begin_trial(second(10));
    assert_eq!([29, 30].map(|at| pause.state(second(at))), [BreakerState::Open, BreakerState::HalfOpen]);
    pause.record_success();
    assert_eq!(pause.state(second(11)), BreakerState::Closed);
    pause.trip(true, second(11));
    assert_eq!(
        [50, 51].map(|at| pause.state(second(at))),
        [BreakerState::Open, BreakerState::HalfOpen],
        "it is remembered"
    );
}

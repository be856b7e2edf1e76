use super::*;

const NOW: Duration = Duration::from_secs(1000);

/// An experience of so many sessions that each came by `factor` slower.
fn after(sessions: u32, factor: f64) -> Experience {
    let mut experience = Experience::default();
    for _ in 0..sessions {
        experience.came(factor.ln(), experience.correction(0.0, NOW), NOW);
    }
    experience
}

#[test]
fn what_came_beats_what_others_say() {
    let promised = (1.0_f64 / 8.0).ln();
    let correction = after(3, 3.0).correction(promised, NOW).exp();
    assert!((2.0..3.0).contains(&correction), "{correction}");
    assert_eq!(Experience::default().correction(promised, NOW), promised, "nothing came yet");
}

#[test]
fn what_came_long_ago_counts_little() {
    let experience = after(8, 4.0);
    let later = |halves: u32| experience.correction(0.0, NOW + HALF_LIFE * halves).exp();
    assert!(later(0) > 3.5 && later(12) < 1.02, "{} and {}", later(0), later(12));
    assert!(experience.weight(NOW + HALF_LIFE) < 4.1);
}

#[test]
fn three_in_a_row_disappoint_and_one_is_chance() {
    let mut experience = after(8, 1.0);
    let mut slow = |factor: f64| {
        let expected = experience.correction(0.0, NOW);
        experience.came(factor.ln(), expected, NOW)
    };
    assert_eq!([slow(3.0), slow(3.0), slow(1.0)], [false, false, false]);
    assert_eq!([slow(3.0), slow(3.0), slow(3.0)], [false, false, true]);
    assert!(experience.correction(0.0, NOW).exp() > 2.5, "believed at once: {experience:?}");
}

#[test]
fn a_bit_slower_is_no_disappointment_and_nothing_is_infinite() {
    let mut experience = Experience::default();
    for _ in 0..20 {
        assert!(!experience.came(1.3_f64.ln(), 0.0, NOW));
    }
    experience.came(f64::INFINITY, 0.0, Duration::ZERO);
    experience.came(f64::NEG_INFINITY, 0.0, Duration::MAX);
    assert!(experience.correction(0.0, NOW).is_finite(), "{experience:?}");
}

#[test]
fn one_session_with_bad_luck_counts_little_and_a_fast_one_after_a_pause_much() {
    let mut experience = Experience::default();
    experience.came(20_f64.ln(), 0.0, NOW);
    assert!(experience.correction(0.0, NOW).exp() < LUCK, "{experience:?}");
    let mut bad = after(8, 8.0);
    bad.came(0.0, bad.correction(0.0, NOW), NOW);
    assert!(bad.correction(0.0, NOW).exp() > 4.0, "{bad:?}");
    bad.came_after_pause(0.0, bad.correction(0.0, NOW), NOW);
    assert!(bad.correction(0.0, NOW).exp() < 1.1, "{bad:?}");
}

const fn second(second: u64) -> Duration {
    Duration::from_secs(1000 + second)
}

#[test]
fn pauses_grow_and_what_was_under_way_does_not_make_them_longer() {
    let mut pause = Pause { is_over: true, ..Pause::default() };
    let mut at = 0;
    for wanted in [10, 20, 40, 80, 160, 320, 600, 600] {
        assert_eq!(pause.access(second(at)), Access::Open);
        pause.begin(false, second(at));
        pause.begin(false, second(at + 5));
        assert_eq!(pause.access(second(at + wanted - 1)), Access::Out, "{wanted}: {pause:?}");
        at += wanted;
    }
    pause.begin(false, second(at + 601));
    assert_eq!(pause.access(second(at + 611)), Access::Open, "forgotten: {pause:?}");
}

#[test]
fn one_session_tries_and_the_others_wait() {
    let mut pause = Pause::default();
    pause.begin(true, second(0));
    pause.came();
    assert_eq!([9, 10].map(|at| pause.access(second(at))), [Access::Out, Access::Trial]);
    pause.tries(second(10));
    assert_eq!([29, 30].map(|at| pause.access(second(at))), [Access::Out, Access::Trial]);
    pause.came();
    assert_eq!(pause.access(second(11)), Access::Open);
    pause.begin(true, second(11));
    assert_eq!([50, 51].map(|at| pause.access(second(at))), [Access::Out, Access::Trial], "it is remembered");
}

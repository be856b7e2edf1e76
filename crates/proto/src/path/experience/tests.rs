use super::*;

const NOW: Duration = Duration::from_secs(1000);

/// What the map says where it says the same all the time.
const LEVEL: f64 = 0.5;

/// An experience of so many sessions that each came by `factor` slower.
fn after(sessions: u32, factor: f64) -> Experience {
    let mut experience = Experience::default();
    for _ in 0..sessions {
        experience.came(factor.ln(), experience.correction(0.0, LEVEL, NOW), LEVEL, NOW);
    }
    experience
}

#[test]
fn what_came_beats_what_others_say() {
    let promised = (1.0_f64 / 8.0).ln();
    let correction = after(3, 3.0).correction(promised, LEVEL, NOW).exp();
    assert!((2.0..3.0).contains(&correction), "{correction}");
    assert_eq!(Experience::default().correction(promised, LEVEL, NOW), promised, "nothing came yet");
}

#[test]
fn a_map_that_promises_more_has_to_show_it_and_one_that_promises_less_is_believed() {
    let experience = after(8, 1.0);
    let sooner = experience.correction(0.0, LEVEL - 3.0, NOW);
    assert!((2.7..=3.0).contains(&sooner), "as it came, not e^3 times sooner: {sooner}");
    assert!(experience.correction(0.0, LEVEL + 3.0, NOW).abs() < 0.01);
    let promised_too_much = after(8, 20.0);
    assert!(promised_too_much.correction(0.0, LEVEL + 20_f64.ln(), NOW).abs() < 0.1, "it is right by now");
    let mut confirmed = experience;
    for _ in 0..16 {
        confirmed.came(0.0, confirmed.correction(0.0, LEVEL - 3.0, NOW), LEVEL - 3.0, NOW);
    }
    let now = confirmed.correction(0.0, LEVEL - 3.0, NOW);
    assert!(now < 0.5, "it has shown it: {now}");
}

#[test]
fn what_came_long_ago_counts_little() {
    let experience = after(8, 4.0);
    let later = |halves: u32| experience.correction(0.0, LEVEL, NOW + HALF_LIFE * halves).exp();
    assert!(later(0) > 3.5 && later(12) < 1.02, "{} and {}", later(0), later(12));
    assert!(experience.weight(NOW + HALF_LIFE) < 4.1);
}

#[test]
fn three_in_a_row_disappoint_and_one_is_chance() {
    let mut experience = after(8, 1.0);
    let mut slow = |factor: f64| {
        let expected = experience.correction(0.0, LEVEL, NOW);
        experience.came(factor.ln(), expected, LEVEL, NOW)
    };
    assert_eq!([slow(3.0), slow(3.0), slow(1.0)], [false, false, false]);
    assert_eq!([slow(3.0), slow(3.0), slow(3.0)], [false, false, true]);
    assert!(experience.correction(0.0, LEVEL, NOW).exp() > 2.5, "believed at once: {experience:?}");
}

#[test]
fn a_bit_slower_is_no_disappointment_and_nothing_is_infinite() {
    let mut experience = Experience::default();
    for _ in 0..20 {
        assert!(!experience.came(1.3_f64.ln(), 0.0, LEVEL, NOW));
    }
    experience.came(f64::INFINITY, 0.0, LEVEL, Duration::ZERO);
    experience.came(f64::NEG_INFINITY, 0.0, LEVEL, Duration::MAX);
    assert!(experience.correction(0.0, LEVEL, NOW).is_finite(), "{experience:?}");
}

#[test]
fn one_session_with_bad_luck_counts_little_and_a_fast_one_after_a_pause_much() {
    let mut experience = Experience::default();
    experience.came(20_f64.ln(), 0.0, LEVEL, NOW);
    assert!(experience.correction(0.0, LEVEL, NOW).exp() < LUCK, "{experience:?}");
    let mut bad = after(8, 8.0);
    bad.came(0.0, bad.correction(0.0, LEVEL, NOW), LEVEL, NOW);
    assert!(bad.correction(0.0, LEVEL, NOW).exp() > 4.0, "{bad:?}");
    bad.came_after_pause(0.0, bad.correction(0.0, LEVEL, NOW), LEVEL, NOW);
    assert!(bad.correction(0.0, LEVEL, NOW).exp() < 1.1, "{bad:?}");
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

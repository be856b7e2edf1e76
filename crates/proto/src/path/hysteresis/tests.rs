use super::*;
use crate::path::candidates::Candidate;

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(1000.0 + seconds)
}

fn hops(relays: &[u32]) -> Hops {
    Hops::from_candidate(&Candidate { relays: relays.to_vec() }).unwrap()
}

/// Open paths with these predictions: direct, and through relay 1 and relay 2; the best first.
fn open(direct: f64, one: f64, two: f64, experienced: bool) -> Vec<AvailablePath> {
    let open = |relays: &[u32], predicted| AvailablePath { hops: hops(relays), predicted, is_experienced: experienced };
    let mut all = vec![open(&[], direct), open(&[1], one), open(&[2], two)];
    all.sort_by(|one, other| one.predicted.total_cmp(&other.predicted));
    all
}

/// A stand that has kept relay 1 since long.
fn settled() -> StandingChoice {
    let mut stand = StandingChoice::default();
    for second in 0..10 {
        stand.decide(&open(3.0, 1.0, 1.5, false), at(f64::from(second) - 10.0));
    }
    assert_eq!(stand.current(), Some(hops(&[1])));
    stand
}

#[test]
fn a_small_gain_is_no_reason_to_change() {
    let mut stand = settled();
    for second in 0..100 {
        let (_, verdict) = stand.decide(&open(3.0, 1.0, 0.97, false), at(second.into()));
        assert_eq!((verdict, stand.current()), (StandingDecision::Kept, Some(hops(&[1]))));
    }
}

#[test]
fn a_gain_has_to_last() {
    let mut stand = settled();
    for (second, predicted) in [(0.0, 0.8), (2.9, 0.8), (3.0, 1.2), (4.0, 0.8), (6.9, 0.8)] {
        stand.decide(&open(3.0, 1.0, predicted, false), at(second));
        assert_eq!(stand.current(), Some(hops(&[1])), "after {second} s");
    }
    let (place, verdict) = stand.decide(&open(3.0, 1.0, 0.8, false), at(7.0));
    assert_eq!((place, verdict, stand.current()), (0, StandingDecision::Best, Some(hops(&[2]))));
}

#[test]
fn who_goes_to_and_fro_has_to_wait_longer() {
    let mut stand = settled();
    let mut changes = Vec::new();
    for tenth in 0..18_000 {
        let now = f64::from(tenth) / 10.0;
        // The better one changes every 20 s, as if a crowd ran after it.
        let (one, two) = if ((now / 20.0) as u64).is_multiple_of(2) { (1.0, 0.8) } else { (0.8, 1.0) };
        let before = stand.current();
        stand.decide(&open(3.0, one, two, false), at(now));
        if stand.current() != before {
            changes.push(now);
        }
    }
    assert!((2..=18).contains(&changes.len()), "{changes:?}");
}

#[test]
fn a_path_that_has_become_much_worse_is_left_at_once() {
    let mut stand = settled();
    let (place, verdict) = stand.decide(&open(3.0, 1.9, 1.5, false), at(0.1));
    assert_eq!((place, verdict, stand.current()), (0, StandingDecision::Degraded, Some(hops(&[2]))));
}

#[test]
fn what_all_paths_suffer_changes_nothing() {
    let mut stand = settled();
    let (_, verdict) = stand.decide(&open(9.0, 3.0, 4.5, false), at(0.1));
    assert_eq!((verdict, stand.current()), (StandingDecision::Best, Some(hops(&[1]))));
}

#[test]
fn nobody_stays_on_what_sessions_show_to_be_worse_than_direct() {
    let mut stand = settled();
    let (_, verdict) = stand.decide(&open(1.0, 1.2, 1.5, false), at(0.1));
    assert_eq!(verdict, StandingDecision::Kept, "hearsay has to last");
    stand.decide(&open(1.0, 1.2, 1.5, true), at(0.2));
    assert_eq!(stand.current(), Some(hops(&[])));
}

#[test]
fn after_a_long_pause_the_choice_is_made_anew() {
    let mut stand = settled();
    stand.decide(&open(3.0, 1.0, 0.8, false), at(60.0));
    assert_eq!(stand.current(), Some(hops(&[2])));
}

#[test]
fn what_is_not_open_any_more_is_replaced() {
    let mut stand = settled();
    let without: Vec<AvailablePath> =
        open(3.0, 1.0, 1.5, false).into_iter().filter(|open| open.hops != hops(&[1])).collect();
    let (place, verdict) = stand.decide(&without, at(0.1));
    assert_eq!((place, verdict, stand.current()), (0, StandingDecision::Unavailable, Some(hops(&[2]))));
}

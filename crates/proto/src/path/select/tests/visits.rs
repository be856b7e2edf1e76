//! Paths that get faster from session to session, while the windows of their sections open.

use super::*;

const BYTES: u64 = 100_000;

/// A chooser for which direct takes longer than the path through the relay with open windows, and less time than that
/// path without open windows.
fn long_first_section() -> PathChooser {
    chooser(
        MapBuilder::new()
            .with_section(0, 3, 120.0, 0.0)
            .with_last_section(0, 84.0, 0.0)
            .with_last_section(3, 4.0, 0.0)
            .build(),
    )
}

/// Duration of a session through the relay in seconds, by the number of consecutive sessions before it, and of a direct
/// session.
const BY_RELAY: [f64; 5] = [0.50, 0.50, 0.40, 0.30, 0.25];
const DIRECT: f64 = 0.36;

/// Runs sessions with a pause of `pause` seconds before each, and returns their choices.
fn run(chooser: &mut PathChooser, begin: f64, pause: f64, count: usize) -> Vec<Choice> {
    let (mut now, mut in_a_row, mut last_at) = (begin, 0, 0.0);
    let mut session = || {
        now += pause;
        let choice = chooser.choose(target(), TransferSize::down(BYTES), seconds(now));
        let candidate = first(&choice);
        let took = if candidate.is_direct() {
            DIRECT
        } else {
            in_a_row = if now <= last_at + 1.0 { in_a_row + 1 } else { 0 };
            last_at = now + BY_RELAY[in_a_row.min(4)];
            BY_RELAY[in_a_row.min(4)]
        };
        now += took;
        chooser.record_outcome(target(), candidate, &outcome(BYTES, took), seconds(now));
        choice
    };
    (0..count).map(|_| session()).collect()
}

fn share_by_relay(choices: &[Choice]) -> f64 {
    choices.iter().filter(|choice| !first(choice).is_direct()).count() as f64 / choices.len() as f64
}

#[test]
fn path_that_is_faster_only_with_open_windows_is_found() {
    let choices = run(&mut long_first_section(), 1000.0, 0.05, 100);
    assert!(share_by_relay(&choices[40..]) > 0.94, "{choices:?}");
}

#[test]
fn rare_sessions_are_judged_as_first_visits() {
    let choices = run(&mut long_first_section(), 1000.0, 5.0, 100);
    assert!(share_by_relay(&choices[40..]) < 0.06, "{choices:?}");
}

#[test]
fn choice_changes_when_sessions_become_rare() {
    let mut chooser = long_first_section();
    run(&mut chooser, 1000.0, 0.05, 60);
    let choices = run(&mut chooser, 1040.0, 5.0, 60);
    assert!(share_by_relay(&choices[20..]) < 0.06, "{choices:?}");
    // The path has not become slower, so it is not excluded.
    let retreats = choices.iter().find(|choice| matches!(choice.reason, ChoiceReason::Retreats(_)));
    assert_eq!(retreats, None);
    let choices = run(&mut chooser, 1400.0, 0.05, 60);
    assert!(share_by_relay(&choices[30..]) > 0.94, "{choices:?}");
}

#[test]
fn session_after_a_partially_reported_session_is_a_later_visit() {
    let (mut chooser, by_relay) = (long_first_section(), candidate_through(&[3]));
    let mut record = |end: f64, took: f64, is_continuation: bool| {
        let outcome = TransferOutcome { is_continuation, ..outcome(BYTES, took) };
        chooser.record_outcome(target(), &by_relay, &outcome, seconds(end));
    };
    record(1000.3, 0.3, false);
    record(1004.0, 3.0, true);
    record(1004.8, 0.3, false);
    let hops = Hops::from_candidate(&by_relay).unwrap();
    let way = PathKey { prefix: target(), hops, direction: Direction::Down };
    assert_eq!(chooser.histories.peek(&way).unwrap().visits.openness(), 0.25);
}

//! The whole chooser in virtual time: sites whose sections change, maps that lag or are wrong, and sessions at the
//! speed of the true sections, with noise.

mod network;

use super::*;
use crate::aqm;
use crate::path::select::explore::{BURST, SESSIONS_PER_EXPLORE};
use network::{Session, Simulation, completion, normal};

fn share(sessions: &[Session], of: impl Fn(&Session) -> bool) -> f64 {
    sessions.iter().filter(|session| of(session)).count() as f64 / sessions.len() as f64
}

fn changes(sessions: &[Session]) -> usize {
    sessions.iter().filter(|session| session.changed).count()
}

/// At most one in twenty sessions explores, except for a few that are saved up; never two in a row.
fn assert_explores_within_budget(sessions: &[Session]) {
    let explored = sessions.iter().filter(|session| session.explores()).count();
    assert!(
        explored <= BURST as usize + sessions.len() / SESSIONS_PER_EXPLORE as usize,
        "{explored} of {}",
        sessions.len()
    );
    for row in sessions.windows(2) {
        assert!(!row.iter().all(Session::explores), "at {}", row[0].at);
    }
}

/// Masuya's sites: Kagoshima is the best relay, Fukuoka the second.
fn steady(from: u32, to: Option<u32>, _: f64) -> (f64, f64) {
    let (low, high) = (from.min(to.unwrap_or(9)), from.max(to.unwrap_or(9)));
    match (low, high) {
        (0, 1) => (18.0, 0.0),
        (0, 2) => (27.0, 0.0),
        (0, 3) => (60.0, 0.0),
        (0, 9) => (38.6, 0.0005),
        (1, 2) => (12.0, 0.0),
        (1, 3) => (40.0, 0.0),
        (2, 3) => (30.0, 0.0),
        (1, 9) => (21.0, 0.0001),
        (2, 9) => (26.0, 0.0001),
        _ => (30.0, 0.001),
    }
}

const STEADY: Simulation = Simulation { truth: steady, report: steady, noise: 0.1, every: 0.5, lag: 2.0, seconds: 600 };

#[test]
fn best_path_is_found_and_kept() {
    let (sessions, _) = STEADY.run(1);
    assert!(share(&sessions, |session| session.candidate == candidate_through(&[1])) > 0.94);
    assert!(changes(&sessions) == 0, "{}", changes(&sessions));
    assert_explores_within_budget(&sessions);
}

/// From 100 s to 300 s the section to Kagoshima loses 3 % of its packets.
fn degrades(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    match (from, to) {
        (0, Some(1)) if (100.0..300.0).contains(&at) => (18.0, 0.03),
        _ => steady(from, to, at),
    }
}

/// New sessions leave within 10 s, do not return during the degradation, and return after it.
fn assert_leaves_and_returns(simulation: &Simulation, seed: u64, back_after: f64) {
    let (sessions, _) = simulation.run(seed);
    let is_on_degraded_path = |session: &&Session| session.candidate.relays.first() == Some(&1) && !session.explores();
    let late: Vec<f64> = sessions
        .iter()
        .filter(is_on_degraded_path)
        .map(|session| session.at)
        .filter(|at| (110.0..300.0).contains(at))
        .collect();
    assert!(late.is_empty(), "seed {seed}: still on the degraded path at {late:?}");
    let after: Vec<Session> = sessions.into_iter().filter(|session| session.at > 300.0 + back_after).collect();
    assert!(
        share(&after, |session| session.candidate == candidate_through(&[1])) > 0.9,
        "seed {seed}: does not return"
    );
    assert!(changes(&after) <= 1, "seed {seed}: {}", changes(&after));
}

#[test]
fn reported_degraded_path_is_left_within_ten_seconds() {
    for seed in 0..3 {
        let simulation = Simulation { truth: degrades, report: degrades, ..STEADY };
        assert_leaves_and_returns(&simulation, seed, 60.0);
    }
}

#[test]
fn unreported_degraded_path_is_left_within_ten_seconds() {
    for seed in 0..3 {
        // Only slow sessions reveal the degradation: the first that ends, and then two more.
        let simulation = Simulation { truth: degrades, seconds: 1200, ..STEADY };
        assert_leaves_and_returns(&simulation, seed, 400.0);
    }
}

/// Kagoshima and Fukuoka are equally good.
fn equal(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    match (from.min(to.unwrap_or(9)), from.max(to.unwrap_or(9))) {
        (0, 2) => (18.0, 0.0),
        (2, 9) => (21.0, 0.0001),
        _ => steady(from, to, at),
    }
}

/// The measured round trips deviate randomly by up to about a fifth (σ = 0.1), differently at each time.
fn noisy(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    let (millis, loss) = equal(from, to, at);
    let place = u64::from(from) << 32 | u64::from(to.unwrap_or(9));
    (millis * (0.1 * normal(aqm::random_bits(place, at as u64))).exp(), loss)
}

#[test]
fn noise_does_not_cause_flapping() {
    for seed in 0..3 {
        let simulation = Simulation { truth: equal, report: noisy, noise: 0.3, seconds: 1200, ..STEADY };
        let (sessions, _) = simulation.run(seed);
        assert!(changes(&sessions) <= 16, "seed {seed}: {} changes", changes(&sessions));
        assert_explores_within_budget(&sessions);
        let is_good = |way: &Candidate| !way.is_direct() && !way.relays.contains(&3);
        let good = share(&sessions, |session| is_good(&session.candidate));
        assert!(good > 0.94, "seed {seed}: {good}");
    }
}

/// Osaka reports short sections to all sites.
fn false_reports_of_osaka(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    if from == 3 { (1.0, 0.0) } else { steady(from, to, at) }
}

/// In truth Osaka forwards very slowly, and the path to it is short.
fn truth_with_slow_osaka(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    match (from, to) {
        (3, _) => (150.0, 0.01),
        (0, Some(3)) => (5.0, 0.0),
        _ => steady(from, to, at),
    }
}

fn reports_with_false_osaka(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    if from == 3 { false_reports_of_osaka(from, to, at) } else { truth_with_slow_osaka(from, to, at) }
}

#[test]
fn relay_with_false_reports_loses_trust_and_sessions() {
    for seed in 0..3 {
        let simulation =
            Simulation { truth: truth_with_slow_osaka, report: reports_with_false_osaka, seconds: 1200, ..STEADY };
        let (sessions, chooser) = simulation.run(seed);
        assert!(sessions[0].candidate.relays.contains(&3), "the reported path is tried");
        let is_through_osaka = |session: &Session| session.candidate.relays.contains(&3);
        let later = &sessions[60..];
        assert!(share(later, is_through_osaka) < 0.05, "seed {seed}: {}", share(later, is_through_osaka));
        assert!(later.iter().filter(|session| is_through_osaka(session)).all(Session::explores), "seed {seed}");
        assert!(
            chooser.trust().factor(3) < 0.8 && chooser.trust().factor(1) > 0.9,
            "seed {seed}: {:?}",
            chooser.trust()
        );
        assert_explores_within_budget(&sessions);
    }
}

/// The reports reverse every 10 s and are impossible: the path through a relay is shorter than the path to it.
fn contradictory_reports(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    let (millis, loss) = steady(from, to, at);
    let turn = (at / 10.0) as u32 + from + to.unwrap_or(9);
    if turn.is_multiple_of(2) { (millis * 3.0, loss) } else { (millis / 3.0, 0.05 * loss) }
}

#[test]
fn contradictory_reports_cost_little_and_cause_few_changes() {
    for seed in 0..3 {
        let (sessions, _) = Simulation { report: contradictory_reports, seconds: 1200, ..STEADY }.run(seed);
        let sum: f64 = sessions.iter().map(|session| session.took).sum();
        let direct = completion(steady, &Candidate::direct(), 0.0) * sessions.len() as f64;
        assert!(sum < direct, "seed {seed}: {sum} s, direct {direct} s");
        let (early, late) = sessions.split_at(sessions.len() / 2);
        assert!(changes(early) + changes(late) < 30, "seed {seed}: {} and {}", changes(early), changes(late));
    }
}

/// No relay helps: all are detours. The reports say that Kagoshima helps.
fn no_site_helps(from: u32, to: Option<u32>, at: f64) -> (f64, f64) {
    match (from, to) {
        (_, None) if from > 0 => (90.0, 0.002),
        _ => steady(from, to, at),
    }
}

#[test]
fn path_slower_than_direct_by_experience_is_not_chosen() {
    for seed in 0..3 {
        let (sessions, _) = Simulation { truth: no_site_helps, seconds: 1200, ..STEADY }.run(seed);
        let later = &sessions[120..];
        assert!(share(later, |session| session.candidate.is_direct()) > 0.94, "seed {seed}");
        assert!(later.iter().all(|session| session.candidate.is_direct() || session.explores()), "seed {seed}");
    }
}

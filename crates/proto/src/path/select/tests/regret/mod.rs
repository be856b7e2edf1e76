//! Share of random networks, in virtual time, in which the chooser finds the best path from its own sessions and small
//! probes alone.

mod network;

use std::ops::Range;

use super::*;
use network::{RegretNetwork, all_candidates};

/// The ratios of the chosen path's time to the best path's and to direct's, after `sessions` sessions.
fn regret(seed: u64, bytes: u64, sessions: u64) -> (f64, f64) {
    let mut network = RegretNetwork::new(seed);
    let mut chooser = chooser(network.map());
    let (mut probed, mut mapped, predicted_size) = (network.now, network.now, TransferSize::down(bytes));
    let mut kept: Option<Candidate> = None;
    for _ in 0..sessions {
        if network.now > probed + 12.0 {
            network.probe();
            probed = network.now;
        }
        if network.now > mapped + 2.0 {
            chooser.set_map(network.map());
            mapped = network.now;
        }
        let choice = chooser.choose(target(), predicted_size, seconds(network.now));
        let candidate = first(&choice).clone();
        if !choice.race && !matches!(choice.reason, ChoiceReason::Explores(_)) {
            let stays = kept.as_ref().is_none_or(|kept| *kept == candidate);
            assert!(stays || choice.previous == kept, "network {seed}: unreported change from {kept:?}: {choice:?}");
            kept = Some(candidate.clone());
        }
        let took = network.session(&candidate, bytes);
        chooser.record_outcome(target(), &candidate, &outcome(bytes, took), seconds(network.now));
    }
    let mut choices = (0..2).map(|_| chooser.choose(target(), predicted_size, seconds(network.now)));
    let choice = choices.find(|choice| !matches!(choice.reason, ChoiceReason::Explores(_))).unwrap();
    let time = |candidate: &Candidate| network.true_time(candidate, bytes);
    let best = all_candidates().iter().map(time).fold(f64::MAX, f64::min);
    let chosen = time(first(&choice));
    (chosen / best, chosen / time(&Candidate::direct()))
}

#[test]
fn best_path_of_random_networks_is_found() {
    // In at most `most` of sixty networks, the chosen path takes over 5 % longer than the best. Medium sizes are hard
    // to predict, because windows stay open from session to session.
    for (bytes, most) in [(100_000, 6), (1 << 20, 15), (8 << 20, 6)] {
        let all: Vec<_> = (0..60).map(|seed| (seed, regret(seed, bytes, 40))).collect();
        let missed: Vec<_> = all.iter().filter(|(_, (regret, _))| *regret > 1.05).collect();
        assert!(missed.len() <= most, "{bytes} bytes: {missed:?}");
        let worse = all.iter().filter(|(_, (_, over_direct))| *over_direct > 1.25).count();
        assert_eq!(worse, 0, "{bytes} bytes, worse than direct: {all:?}");
    }
}

/// Checks the criterion of the experiment `path-regret` in simulation: within 5 % of the best in 95 % of all cases, and
/// never below 0.95 times the speed of direct. `known_missed` and `known_worse` cases do not meet the criterion today;
/// more cases are a regression.
fn assert_bar(networks: &str, seeds: Range<u64>, known_missed: usize, known_worse: usize) {
    let sizes = [100_000, 1 << 20, 8 << 20, 64 << 20];
    let cases = |bytes| seeds.clone().map(move |seed| (bytes, seed, regret(seed, bytes, 60)));
    let all: Vec<_> = sizes.into_iter().flat_map(cases).collect();
    let is_missed = |case: &&(u64, u64, (f64, f64))| case.2.0 > 1.05;
    let missed = all.iter().filter(is_missed).count();
    let by_size = sizes.map(|bytes| all.iter().filter(is_missed).filter(|case| case.0 == bytes).count());
    let worse: Vec<_> = all.iter().filter(|(.., (_, over_direct))| *over_direct > 1.0 / 0.95).collect();
    println!(
        "{networks}: {missed} of {} more than 5 % above the best (bar: 5 %), {by_size:?} of {sizes:?} bytes; {} below \
         0.95 x direct (bar: none)",
        all.len(),
        worse.len()
    );
    assert!(missed <= known_missed, "{networks}: {missed} of {}", all.len());
    assert!(worse.len() <= known_worse, "{networks}: {worse:?}");
}

/// Variants of the chooser are compared on these networks.
#[test]
#[ignore = "a minute: make check-paths"]
fn choice_is_near_optimal_in_development_networks() {
    assert_bar("for work", 1000..1600, 258, 8);
}

/// No variant of the chooser was selected on these networks.
#[test]
#[ignore = "a minute: make check-paths"]
fn choice_is_near_optimal_in_validation_networks() {
    assert_bar("for the verdict", 20_000..20_600, 274, 7);
}

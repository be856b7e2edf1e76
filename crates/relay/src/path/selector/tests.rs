//! The path selector without sockets: the paths of a session, and the effect of its outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::Target;
use ekiden_proto::event::Event;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::choice::TransferOutcome;
use ekiden_proto::path::estimate::SectionSample;
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::wire::section::report::{DirectionEstimate, SectionReport, Subject};

use super::state::SelectorState;
use super::*;
use crate::config::read::from_text;
use crate::path::estimates::PeerId;
use crate::path::{self, PathChoice};

const TARGET: &str = "192.0.2.7:443";
const NOW: Duration = Duration::from_secs(1);

pub(super) fn key(number: u8) -> PublicKey {
    PublicKey([number; 32])
}

/// A configuration with `relays` next hops and the lines `more`.
pub(super) fn config(relays: u8, more: &str) -> Config {
    let relay = |number: u8| {
        format!("[[relay]]\nname = \"r{number}\"\naddress = \"198.51.100.{number}:7000\"\nkey = \"{}\"\n", key(number))
    };
    let relays: String = (1..=relays).map(relay).collect();
    from_text(&format!("version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n{relays}{more}")).unwrap()
}

pub(super) const AUTO: &str = "[[route]]\npath = \"auto\"\ndefault = \"r2\"\n";

pub(super) fn state(config: Config, estimates: &EstimateStore) -> SelectorState {
    let map = estimates.map(&config, None).unwrap();
    SelectorState::new(Arc::new(config), Arc::new(map))
}

pub(super) fn target_paths(state: &mut SelectorState, target: &str) -> PathSelection {
    let config = Arc::clone(&state.config);
    state.select(&config.routes[0], &Target::parse(target, None).unwrap(), NOW)
}

fn names(choices: &[PathChoice]) -> Vec<&str> {
    choices.iter().map(|choice| &*choice.path.name).collect()
}

fn prediction_of<'w>(choices: &'w [PathChoice], name: &str) -> &'w Prediction {
    let choice = choices.iter().find(|choice| *choice.path.name == *name);
    choice
        .and_then(|choice| choice.prediction.as_deref())
        .unwrap_or_else(|| panic!("no {name} in {:?}", names(choices)))
}

pub(super) fn sample(millis: u64, rate: f64) -> SectionSample {
    let rtt = Some(Duration::from_millis(millis));
    SectionSample { rtt, segments: 10_000, lost: 0, rate: Some(rate), rate_is_limit: true, window: None }
}

/// Estimates of a slow direct path and a fast path through `r1`.
fn measured() -> EstimateStore {
    let estimates = EstimateStore::new(Instant::now());
    let target: SocketAddr = TARGET.parse().unwrap();
    let (slow, fast) = (sample(100, 1e6), sample(10, 1e8));
    estimates.record_session(PeerId::Targets(target.ip().into()), None, &slow, &slow, 0);
    estimates.record_session(PeerId::Relay(key(1)), None, &fast, &fast, 0);
    let (rtt, rate) = (fast.rtt, fast.rate);
    let figures = EstimateSnapshot { rtt, rate, loss: Some(0.0), segments: 10_000.0, ..EstimateSnapshot::default() };
    let estimate = DirectionEstimate { snapshot: figures, age: Duration::ZERO };
    estimates.record_report(
        key(1),
        &[SectionReport { subject: Subject::Targets(target.ip().into()), sending: estimate, receiving: estimate }],
    );
    estimates
}

#[test]
fn default_and_direct_paths_race_while_nothing_is_measured() {
    let mut state = state(config(3, AUTO), &EstimateStore::new(Instant::now()));
    let answer = target_paths(&mut state, TARGET);
    assert_eq!((names(&answer.choices), path::racing_count(&answer.choices)), (vec!["r2", "direct", "r1", "r3"], 2));
    assert!(answer.choices.iter().all(|choice| choice.prediction.as_ref().unwrap().completion_time.is_none()));

    state.on_connected(prediction_of(&answer.choices, "r3"));
    let answer = target_paths(&mut state, TARGET);
    assert_eq!((names(&answer.choices), path::racing_count(&answer.choices)), (vec!["r2", "direct", "r3", "r1"], 3));
    assert_eq!(
        path::racing_count(&target_paths(&mut state, "203.0.113.1:443").choices),
        2,
        "the connection was in another network"
    );
}

#[test]
fn draining_relay_is_not_selected() {
    let mut draining = config(3, AUTO);
    draining.draining.push(key(1));
    let mut state = state(config(3, AUTO), &measured());
    assert_eq!(names(&target_paths(&mut state, TARGET).choices)[0], "r1");
    state.apply_config(&Arc::new(draining));
    assert_eq!(names(&target_paths(&mut state, TARGET).choices), ["direct"], "also on the previous map");
}

#[test]
fn changed_relay_address_is_used_after_a_reload() {
    let mut state = state(config(1, "[[route]]\npath = \"auto\"\n"), &measured());
    target_paths(&mut state, TARGET);
    let moved = from_text(&format!(
        "version = 1\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[relay]]\nname = \"r1\"\naddress = \"198.51.100.99:7000\"\n\
         key = \"{}\"\n[[route]]\npath = \"auto\"\n",
        key(1)
    ));
    state.apply_config(&Arc::new(moved.unwrap()));
    let answer = target_paths(&mut state, TARGET);
    assert_eq!(answer.choices[0].path.hops[0].address.to_string(), "198.51.100.99:7000");
}

#[test]
fn failed_path_is_left_at_once_and_the_change_is_reported() {
    let mut state = state(config(3, AUTO), &measured());
    let before = target_paths(&mut state, TARGET);
    assert_eq!(
        (names(&before.choices)[0], path::racing_count(&before.choices)),
        ("r1", 0),
        "{:?}",
        names(&before.choices)
    );
    assert!(
        before.change_event.is_none()
            && prediction_of(&before.choices, "r1").completion_time.is_some_and(|time| !time.is_zero())
    );
    state.on_failure(prediction_of(&before.choices, "r1"), NOW);
    let after = target_paths(&mut state, TARGET);
    assert_eq!(names(&after.choices), ["direct"], "an excluded path is not tried");
    let Some(Event::PathChanged { prefix, likely_bytes, likely_direction, from, to, why }) = after.change_event else {
        panic!("no event reports the changed path");
    };
    assert_eq!((from.as_str(), to.as_str(), prefix.unwrap().to_string()), ("r1", "direct", "192.0.2.0/24".to_owned()));
    assert_eq!((likely_bytes, likely_direction), (1 << 20, "down"));
    assert!(why.starts_with("direct: ") && why.contains("instead of r1"), "{why}");
    assert!(target_paths(&mut state, TARGET).change_event.is_none(), "reported once");
}

fn slow() -> TransferOutcome {
    let carried = ekiden_proto::path::transfer_size::TransferSize::down(1 << 20);
    TransferOutcome {
        transferred: carried,
        session_bytes: 1 << 20,
        elapsed: Duration::from_secs(60),
        is_continuation: false,
        limited_by_path: true,
    }
}

#[test]
fn slow_path_is_left() {
    let mut state = state(config(2, AUTO), &measured());
    let first = target_paths(&mut state, TARGET);
    for _ in 0..4 {
        state.record_outcome(prediction_of(&first.choices, "r1"), &slow(), NOW);
    }
    assert_eq!(names(&target_paths(&mut state, TARGET).choices)[0], "direct");
}

/// The address of the name is unknown when the first session starts, and known when it ends.
#[test]
fn outcome_counts_for_the_resolved_prefix_of_a_name() {
    let mut state = state(config(2, AUTO), &measured());
    let first = target_paths(&mut state, "server.example:443");
    state.names.insert("server.example", "192.0.2.7".parse().unwrap(), NOW);
    assert_eq!(names(&target_paths(&mut state, "server.example:443").choices)[0], "r1");
    for _ in 0..4 {
        state.record_outcome(prediction_of(&first.choices, "r1"), &slow(), NOW);
    }
    assert_eq!(names(&target_paths(&mut state, "server.example:443").choices)[0], "direct");
}

#[test]
fn sizes_are_learnt_by_host_and_port() {
    let mut state = state(config(2, AUTO), &measured());
    let predicted_size = |state: &mut SelectorState, target: &str| {
        let answer = target_paths(state, target);
        (
            prediction_of(&answer.choices, "direct").context.predicted_size,
            Arc::clone(&prediction_of(&answer.choices, "direct").context),
        )
    };
    let (usual, plan) = predicted_size(&mut state, TARGET);
    for _ in 0..8 {
        state.record_transfer(&plan, &TransferStats { down: 64 << 20, ..TransferStats::default() }, NOW);
    }
    assert!(predicted_size(&mut state, TARGET).0.bytes > 32 << 20);
    for other in ["192.0.2.7:80", "192.0.2.8:443"] {
        assert_eq!(predicted_size(&mut state, other).0, usual, "{other}");
    }
}

#[test]
fn default_path_of_many_relays_is_first_and_no_candidate() {
    let long = "[[path]]\nname = \"long\"\nrelays = [\"r1\", \"r2\", \"r3\", \"r4\"]\n[[route]]\npath = \"auto\"\n\
                default = \"long\"\n";
    let mut state = state(config(4, long), &EstimateStore::new(Instant::now()));
    let answer = target_paths(&mut state, TARGET);
    assert_eq!((names(&answer.choices)[0], answer.choices[0].candidate()), ("long", None));
    assert_eq!(
        (names(&answer.choices)[1], path::racing_count(&answer.choices)),
        ("direct", 2),
        "the default path races"
    );
}

#[test]
fn requested_targets_are_bounded() {
    let mut state = state(config(2, AUTO), &EstimateStore::new(Instant::now()));
    for number in 0..2000_u32 {
        target_paths(&mut state, &format!("10.{}.{}.1:443", number >> 8, number & 0xff));
    }
    assert_eq!(state.take_requested().len(), 1024);
    assert!(state.take_requested().is_empty(), "taken once");
}

#[test]
fn status_lists_choices_and_excluded_paths_up_to_a_limit() {
    let selector = PathSelector::new(Arc::new(EstimateStore::new(Instant::now())));
    let mut state = state(config(2, AUTO), &measured());
    let answer = target_paths(&mut state, TARGET);
    state.on_failure(prediction_of(&answer.choices, "r1"), selector.shared.estimates.now());
    target_paths(&mut state, TARGET);
    *selector.shared.lock() = Some(state);
    let views = selector.views();
    assert_eq!((views.len(), views[0].path.as_str(), views[0].likely_bytes), (1, "direct", 1 << 20));
    let candidates: Vec<_> = views[0].candidates.iter().map(|it| (it.path.as_str(), it.out)).collect();
    assert_eq!(candidates, [("direct", false), ("r1", true)]);
    assert!(views[0].candidates[1].predicted_seconds < views[0].candidates[0].predicted_seconds);

    let seen = sample(100, 1e6);
    let (estimates, network) = (measured(), |number: u32| format!("10.{}.{}.1:443", number >> 8, number & 0xff));
    for number in 0..600 {
        let target: SocketAddr = network(number).parse().unwrap();
        estimates.record_session(PeerId::Targets(target.ip().into()), None, &seen, &seen, 0);
    }
    let mut crowded = self::state(config(2, AUTO), &estimates);
    for number in 0..600 {
        target_paths(&mut crowded, &network(number));
    }
    *selector.shared.lock() = Some(crowded);
    assert_eq!(selector.views().len(), 500);
}

#[test]
fn no_path_is_selected_without_an_auto_route() {
    let config = Arc::new(config(1, ""));
    let selector = PathSelector::new(Arc::new(EstimateStore::new(Instant::now())));
    selector.apply_config(&config).unwrap();
    assert!(selector.select(&config.routes[0], &Target::parse(TARGET, None).unwrap()).is_none());
}

#[test]
fn race_result_is_remembered_and_unmeasured_path_is_not_predicted() {
    let selector = PathSelector::new(Arc::new(EstimateStore::new(Instant::now())));
    *selector.shared.lock() = Some(state(config(3, AUTO), &measured()));
    let config = config(3, AUTO);
    let ask = |target: &str| selector.select(&config.routes[0], &Target::parse(target, None).unwrap()).unwrap().choices;
    let (chosen, raced) = (ask(TARGET), ask("203.0.113.1:443"));
    assert!(selector.predict(prediction_of(&chosen, "r1"), &slow()).is_some());
    assert_eq!(selector.predict(prediction_of(&raced, "r1"), &slow()), None);
    selector.on_connected(prediction_of(&raced, "r3"));
    assert_eq!(path::racing_count(&ask("203.0.113.1:443")), 3);
}

#[test]
fn connection_without_a_race_is_not_remembered() {
    let selector = PathSelector::new(Arc::new(EstimateStore::new(Instant::now())));
    *selector.shared.lock() = Some(state(config(3, AUTO), &measured()));
    let config = config(3, AUTO);
    let ask = || selector.select(&config.routes[0], &Target::parse(TARGET, None).unwrap()).unwrap().choices;
    let chosen = ask();
    assert_eq!((names(&chosen)[0], path::racing_count(&chosen)), ("r1", 0));
    selector.on_connected(prediction_of(&chosen, "r1"));
    // Without measurements, paths race again: the default, direct, and a remembered path.
    let unmeasured = EstimateStore::new(Instant::now()).map(&config, None).unwrap();
    selector.shared.lock().as_mut().unwrap().chooser.set_map(Arc::new(unmeasured));
    let racing = ask();
    assert_eq!((path::racing_count(&racing), &names(&racing)[..2]), (2, &["r2", "direct"][..]));
}

use std::net::IpAddr;
use std::time::Duration;

use super::*;
use crate::direction::Direction;
use crate::key::PublicKey;
use crate::path::choice::TransferOutcome;
use crate::path::map::{MapEntry, THIS_RELAY};
use crate::path::model::{CongestionControl, Connection, SectionModel};

/// The sites of masuya2014, table 3: Yoron is this relay, the target is in Tokyo.
const SITES: [&str; 4] = ["yoron", "kagoshima", "fukuoka", "osaka"];

fn target() -> Prefix {
    Prefix::from("192.0.2.7".parse::<IpAddr>().unwrap())
}

fn seconds(at: f64) -> Duration {
    Duration::from_secs_f64(at)
}

fn key(number: u32) -> PublicKey {
    let mut key = [9; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    PublicKey(key)
}

/// A section with a window of 512 KiB.
fn section(millis: f64, loss: f64, is_ready: bool) -> SectionModel {
    SectionModel {
        rtt: Duration::from_secs_f64(millis / 1e3),
        loss,
        window: Some(512 << 10),
        line_rate: Some(125e6),
        congestion: CongestionControl::Cubic,
        mss: 1448,
        connection: Connection::ready_if(is_ready),
    }
}

fn map_entry(section: SectionModel, own: bool) -> MapEntry {
    MapEntry { section, confidence: 0.9, is_own: own }
}

/// A map under construction.
struct MapBuilder(NetworkMap);

impl MapBuilder {
    fn new() -> Self {
        let mut map = NetworkMap::new(key(0), SITES[0]);
        for (number, name) in (1..).zip(&SITES[1..]) {
            assert_eq!(map.add_node(key(number), name), Some(number));
        }
        Self(map)
    }

    fn with_section(mut self, from: u32, to: u32, millis: f64, loss: f64) -> Self {
        let known = map_entry(section(millis, loss, true), from == THIS_RELAY);
        for direction in [Direction::Down, Direction::Up] {
            self.0.set_section(from, to, direction, &known);
        }
        self
    }

    fn with_last_section(mut self, node: u32, millis: f64, loss: f64) -> Self {
        let known = map_entry(section(millis, loss, false), node == THIS_RELAY);
        for direction in [Direction::Down, Direction::Up] {
            self.0.set_last_section(node, target(), direction, &known);
        }
        self
    }

    fn build(self) -> Arc<NetworkMap> {
        Arc::new(self.0)
    }
}

/// Direct is long and slightly lossy; Kagoshima halves it, Osaka is a detour.
fn masuya() -> MapBuilder {
    MapBuilder::new()
        .with_section(0, 1, 18.0, 0.0)
        .with_section(0, 3, 60.0, 0.0)
        .with_section(1, 3, 55.0, 0.0)
        .with_last_section(0, 38.6, 0.0005)
        .with_last_section(1, 21.0, 0.0001)
        .with_last_section(3, 30.0, 0.0)
}

fn chooser(map: Arc<NetworkMap>) -> PathChooser {
    PathChooser::new(map, RelayCosts::default())
}

const BULK_SIZE: u64 = 8 << 20;

fn first(choice: &Choice) -> &Candidate {
    &choice.ranking[0].candidate
}

fn candidate_through(relays: &[u32]) -> Candidate {
    Candidate { relays: relays.to_vec() }
}

#[test]
fn fastest_path_is_chosen_and_direct_is_always_ranked() {
    let mut chooser = chooser(masuya().build());
    let choice = chooser.choose(target(), TransferSize::down(BULK_SIZE), seconds(1.0));
    assert_eq!(first(&choice), &candidate_through(&[1]), "{choice:#?}");
    assert!(!choice.race && choice.ranking.iter().any(|way| way.candidate.is_direct()), "{choice:#?}");
    assert!(choice.reason.to_string().starts_with("kagoshima: "), "{}", choice.reason);
    assert!(choice.reason.to_string().contains("predicted for 8 MiB, direct "), "{}", choice.reason);
}

fn choose(chooser: &mut PathChooser, at: f64) -> Choice {
    chooser.choose(target(), TransferSize::down(BULK_SIZE), seconds(at))
}

/// The outcome of `bytes` down in `took` seconds.
fn outcome(bytes: u64, took: f64) -> TransferOutcome {
    TransferOutcome {
        transferred: TransferSize::down(bytes),
        session_bytes: bytes,
        elapsed: seconds(took),
        is_continuation: false,
        limited_by_path: true,
    }
}

fn predicted(choice: &Choice, relays: &[u32]) -> f64 {
    let way = choice.ranking.iter().find(|way| way.candidate == candidate_through(relays)).unwrap();
    way.predicted.as_secs_f64()
}

#[test]
fn ranked_paths_race_while_direct_is_unmeasured() {
    let mut nothing = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).build());
    let choice = choose(&mut nothing, 1.0);
    assert!(choice.race && choice.reason == ChoiceReason::Unmeasured, "{choice:?}");
    assert!(choice.ranking.iter().all(|way| way.candidate.is_direct()) && choice.ranking.len() == 1, "{choice:?}");
    let mut indirect = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).with_last_section(1, 21.0, 0.0).build());
    let choice = choose(&mut indirect, 1.0);
    assert!(choice.race && choice.ranking.len() == 2, "direct is not known: {choice:?}");
}

#[test]
fn direct_is_the_only_choice_without_measured_relay_paths() {
    let mut chooser = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).with_last_section(0, 38.6, 0.0).build());
    let choice = choose(&mut chooser, 1.0);
    assert!(matches!(choice.reason, ChoiceReason::Only(_)) && !choice.race && first(&choice).is_direct(), "{choice:?}");
}

#[test]
fn transfer_size_decides_the_path() {
    // The relay is a detour with a better line.
    let draft = MapBuilder::new()
        .with_section(0, 1, 80.0, 0.0)
        .with_last_section(0, 100.0, 0.003)
        .with_last_section(1, 60.0, 0.0);
    let mut chooser = chooser(draft.build());
    let mut at = |bytes| first(&chooser.choose(target(), TransferSize::down(bytes), seconds(1.0))).clone();
    assert_eq!([at(1000), at(64 << 20)], [Candidate::direct(), candidate_through(&[1])]);
}

#[test]
fn chain_of_three_relays_is_chosen() {
    let row = MapBuilder::new()
        .with_section(0, 1, 30.0, 0.0)
        .with_section(1, 2, 30.0, 0.0)
        .with_section(2, 3, 30.0, 0.0)
        .with_last_section(3, 30.0, 0.0);
    let mut chooser = chooser(row.with_last_section(0, 120.0, 0.0).build());
    assert_eq!(first(&choose(&mut chooser, 1.0)), &candidate_through(&[1, 2, 3]));
}

#[test]
fn failed_path_is_paused_with_backoff_and_retried_once() {
    let mut chooser = chooser(masuya().build());
    let mut at = 1.0;
    for pause in [10.0, 20.0, 40.0] {
        let choice = choose(&mut chooser, at);
        let is_usable = choice.ranking.iter().any(|way| way.candidate == candidate_through(&[1]));
        // Later the trial of the previous round has not ended.
        assert_eq!(is_usable, pause == 10.0, "before the failure with {pause} s: {choice:?}");
        chooser.record_failure(target(), &candidate_through(&[1]), seconds(at));
        let choice = choose(&mut chooser, at + 0.1);
        assert!(choice.ranking.iter().all(|way| way.candidate != candidate_through(&[1])), "{choice:?}");
        let trials =
            (0..40).filter(|_| first(&choose(&mut chooser, at + pause + 0.1)) == &candidate_through(&[1])).count();
        assert_eq!(trials, 1, "after {pause} s");
        at += 2.0 * pause + 0.2;
    }
    chooser.record_outcome(target(), &candidate_through(&[1]), &outcome(BULK_SIZE, 0.5), seconds(at));
    let back = (0..100).map(|second| choose(&mut chooser, at + f64::from(second))).last().unwrap();
    assert_eq!(first(&back), &candidate_through(&[1]), "the trial succeeded");
}

#[test]
fn failed_path_is_replaced_and_named_in_the_reason() {
    let mut chooser = chooser(masuya().build());
    choose(&mut chooser, 1.0);
    chooser.record_failure(target(), &candidate_through(&[1]), seconds(2.0));
    let choice = choose(&mut chooser, 2.1);
    assert!(matches!(&choice.reason, ChoiceReason::Retreats(_)), "{choice:?}");
    assert!(choice.reason.to_string().contains("instead of kagoshima"), "{}", choice.reason);
    assert_eq!(choice.previous, Some(candidate_through(&[1])));
}

#[test]
fn target_is_reached_through_its_working_paths() {
    let mut chooser = chooser(masuya().build());
    let elsewhere = Prefix::from("198.51.100.1".parse::<IpAddr>().unwrap());
    for at in [1.0, 1.1, 1.2] {
        chooser.record_failure(target(), &Candidate::direct(), seconds(at));
        chooser.record_failure(target(), &candidate_through(&[1]), seconds(at));
        chooser.record_failure(elsewhere, &candidate_through(&[3]), seconds(at));
    }
    let choice = choose(&mut chooser, 2.0);
    assert!(first(&choice).relays.ends_with(&[3]) && !choice.race, "{choice:?}");
    for relays in [&[3][..], &[1, 3]] {
        chooser.record_failure(target(), &candidate_through(relays), seconds(3.0));
    }
    let choice = choose(&mut chooser, 3.0);
    assert!(first(&choice).is_direct() && !choice.race, "all paths are paused, so direct is chosen: {choice:?}");
}

#[test]
fn failed_unmeasured_direct_path_does_not_race() {
    let mut chooser = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).with_last_section(1, 21.0, 0.0).build());
    chooser.record_failure(target(), &Candidate::direct(), seconds(1.0));
    let choice = choose(&mut chooser, 1.1);
    assert!(!choice.race && first(&choice) == &candidate_through(&[1]), "{choice:?}");
}

/// Regression: without measurements direct has no rating, and a failure in the first race excluded it forever.
#[test]
fn failed_unmeasured_direct_path_races_again_after_its_pause() {
    let mut chooser = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).with_last_section(1, 21.0, 0.0).build());
    chooser.record_failure(target(), &Candidate::direct(), seconds(1.0));
    let races: Vec<u32> = (2..60).filter(|second| choose(&mut chooser, f64::from(*second)).race).collect();
    assert_eq!(races, [11, 31], "after pauses of 10 and 20 s");
}

/// A target that only one relay reaches. After a restart of the relay no path was available, and all later sessions
/// used direct.
#[test]
fn failed_relay_path_is_tried_again_while_direct_fails() {
    let (direct, relay) = (Candidate::direct(), candidate_through(&[1]));
    let mut chooser = chooser(MapBuilder::new().with_section(0, 1, 18.0, 0.0).with_last_section(1, 21.0, 0.0).build());
    chooser.record_failure(target(), &direct, seconds(1.0));
    chooser.record_failure(target(), &relay, seconds(2.0));
    let mut trials = Vec::new();
    for second in 3..60_u32 {
        let choice = choose(&mut chooser, second.into());
        assert!(!choice.race && choice.ranking.len() == 2, "every path is ranked after {second} s: {choice:?}");
        assert!(matches!(choice.reason, ChoiceReason::Only(_)), "{choice:?}");
        if first(&choice) == &relay {
            trials.push(second);
        }
        for way in &choice.ranking {
            chooser.record_failure(target(), &way.candidate, seconds(second.into()));
        }
    }
    assert_eq!(trials, [12, 32], "after pauses of 10 and 20 s");
    chooser.record_outcome(target(), &relay, &outcome(BULK_SIZE, 0.5), seconds(60.0));
    assert_eq!(first(&choose(&mut chooser, 61.0)), &relay, "the trial succeeded");
}

#[test]
fn path_is_left_after_three_slow_sessions() {
    let mut chooser = chooser(masuya().build());
    let expected = predicted(&choose(&mut chooser, 1.0), &[1]);
    for session in 0..8 {
        chooser.record_outcome(
            target(),
            &candidate_through(&[1]),
            &outcome(BULK_SIZE, expected),
            seconds(1.0 + f64::from(session) / 10.0),
        );
    }
    let slow = outcome(BULK_SIZE, expected * 6.0);
    chooser.record_outcome(target(), &candidate_through(&[1]), &slow, seconds(2.0));
    assert_eq!(first(&choose(&mut chooser, 2.1)), &candidate_through(&[1]), "a single slow session may be chance");
    chooser.record_outcome(target(), &candidate_through(&[1]), &slow, seconds(2.2));
    chooser.record_outcome(target(), &candidate_through(&[1]), &slow, seconds(2.3));
    let choice = choose(&mut chooser, 2.5);
    assert!(first(&choice) != &candidate_through(&[1]), "{choice:?}");
    assert!(matches!(choice.reason, ChoiceReason::Retreats(_)), "{choice:?}");
}

/// A map in which direct is the best path.
fn near_target() -> Arc<NetworkMap> {
    MapBuilder::new()
        .with_last_section(THIS_RELAY, 20.0, 0.0)
        .with_section(0, 1, 18.0, 0.0)
        .with_last_section(1, 21.0, 0.0)
        .build()
}

#[test]
fn direct_stays_available_when_another_path_is_chosen() {
    let mut chooser = chooser(near_target());
    let expected = predicted(&choose(&mut chooser, 1.0), &[]);
    for session in 0..2 {
        let slow = outcome(BULK_SIZE, expected * 6.0);
        chooser.record_outcome(target(), &Candidate::direct(), &slow, seconds(2.0 + f64::from(session) / 10.0));
    }
    let choice = choose(&mut chooser, 2.5);
    assert!(!first(&choice).is_direct() && matches!(choice.reason, ChoiceReason::Retreats(_)), "{choice:?}");
    let ranked = chooser.ranked_candidates(target(), TransferSize::down(BULK_SIZE), seconds(2.6));
    assert!(ranked.iter().any(|(way, is_out)| way.candidate.is_direct() && !is_out), "{ranked:?}");
}

/// Two early sessions by direct, one of them slow by chance, must not exclude direct permanently.
#[test]
fn path_with_nearly_equal_sessions_is_explored_again() {
    let mut chooser = chooser(near_target());
    for (at, took) in [(1.0, 0.8), (1.1, 1.1)] {
        chooser.record_outcome(target(), &Candidate::direct(), &outcome(BULK_SIZE, took), seconds(at));
    }
    let mut explored = Vec::new();
    for session in 0..100_u32 {
        let at = 2.0 + f64::from(session) / 2.0;
        let choice = choose(&mut chooser, at);
        if first(&choice).is_direct() && matches!(choice.reason, ChoiceReason::Explores(_)) {
            explored.push(session);
        }
        let took = if first(&choice).is_direct() { 0.95 } else { 0.88 };
        chooser.record_outcome(target(), first(&choice), &outcome(BULK_SIZE, took), seconds(at + 0.1));
    }
    assert!((1..=6).contains(&explored.len()), "{explored:?}");
}

#[test]
fn half_open_path_is_tried_if_its_sessions_predict_a_gain() {
    let map = masuya().build();
    let rated = |relays: &[u32]| {
        let hops = Hops::from_candidate(&candidate_through(relays)).unwrap();
        ranking::rate_path(&map, &RelayCosts::default(), hops, target(), TransferSize::down(BULK_SIZE)).unwrap()
    };
    let weighed = |relays: &[u32], predicted: f64, is_half_open: bool| {
        let rated = rated(relays);
        WeighedPath { rated, predicted, confidence: rated.confidence, experience: 2.0, is_half_open, is_opening: false }
    };
    let by_map = rated(&[]).predicted;
    let chosen = weighed(&[1], by_map * 0.9, false);
    let tried = |predicted: f64| {
        let out = weighed(&[], predicted, true);
        find_promising(&[chosen], &[out], &chosen, &ExploreBudget::default()).map(|way| way.rated.hops)
    };
    assert_eq!(tried(by_map * 0.8), Some(Hops::DIRECT));
    assert_eq!(tried(by_map), None);
}

#[test]
fn slow_target_changes_neither_path_nor_trust() {
    let mut chooser = chooser(masuya().build());
    let expected = predicted(&choose(&mut chooser, 1.0), &[1]);
    let slow = TransferOutcome { limited_by_path: false, ..outcome(BULK_SIZE, expected * 20.0) };
    for session in 0..20 {
        chooser.record_outcome(target(), &candidate_through(&[1]), &slow, seconds(2.0 + f64::from(session)));
    }
    assert_eq!(first(&choose(&mut chooser, 30.0)), &candidate_through(&[1]));
    assert_eq!(chooser.trust().factor(1), 1.0);
}

#[test]
fn uploads_use_the_estimates_of_their_direction() {
    let mut map = Arc::unwrap_or_clone(masuya().build());
    map.set_last_section(1, target(), Direction::Up, &map_entry(section(21.0, 0.08, false), false));
    map.set_last_section(3, target(), Direction::Up, &map_entry(section(30.0, 0.08, false), false));
    let mut chooser = chooser(Arc::new(map));
    let up = chooser.choose(target(), TransferSize::up(BULK_SIZE), seconds(1.0));
    assert!(first(&up).is_direct(), "{up:?}");
    assert_eq!(first(&choose(&mut chooser, 1.0)), &candidate_through(&[1]));
}

#[test]
fn renumbered_map_clears_the_history_and_added_relay_does_not() {
    let mut chooser = chooser(masuya().build());
    chooser.record_failure(target(), &candidate_through(&[1]), seconds(1.0));
    let mut more = Arc::unwrap_or_clone(masuya().build());
    more.add_node(key(4), "tokyo");
    chooser.set_map(Arc::new(more));
    assert!(first(&choose(&mut chooser, 1.1)) != &candidate_through(&[1]));
    chooser.set_map(masuya().build());
    assert_eq!(
        first(&choose(&mut chooser, 1.2)),
        &candidate_through(&[1]),
        "without the relay, numbers have another meaning"
    );
}

#[test]
fn the_standing_choices_can_be_listed() {
    let mut chooser = chooser(masuya().build());
    choose(&mut chooser, 1.0);
    let standing: Vec<_> = chooser.standing_choices().collect();
    assert_eq!(standing, [(target(), TransferSize::down(BULK_SIZE), candidate_through(&[1]))]);
}

mod regret;
mod simulation;
mod sweep;
mod visits;

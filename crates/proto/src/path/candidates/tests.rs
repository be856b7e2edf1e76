use super::*;
use crate::aqm::dice;
use crate::key::PublicKey;
use crate::path::map::MapEntry;
use crate::path::model::{CongestionControl, SectionModel};
use std::time::Duration;

fn key(number: u32) -> PublicKey {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    PublicKey(key)
}

/// A map of `nodes` relays, of which each knows about two thirds of the sections to others, alike by `seed`.
fn random(nodes: u32, seed: u64) -> NetworkMap {
    let mut map = NetworkMap::new(key(0), "here");
    for node in 1..nodes {
        map.add_node(key(node), &format!("r{node}"));
    }
    let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
    for (number, (from, to)) in (0..).zip(pairs) {
        let dice = dice::random_bits(seed, number);
        if dice.is_multiple_of(3) {
            continue;
        }
        let section = SectionModel {
            rtt: Duration::from_millis(1 + dice % 97),
            loss: (dice >> 16 & 0xff) as f64 * 1e-5,
            window: Some(1 << 20),
            line_rate: Some(1e6 + (dice >> 32 & 0xffff) as f64 * 1e3),
            congestion: CongestionControl::Cubic,
            mss: 1448,
            is_warm: dice & 1 << 20 == 0,
        };
        map.set_section(from, to, Direction::Down, &MapEntry { section, confidence: 1.0, is_own: from == THIS_RELAY });
    }
    map
}

/// Every simple path of one to three relays: its relays, delay and rate, counted the slow way.
fn all(map: &NetworkMap, costs: &RelayCosts) -> Vec<Label> {
    let nodes = u16::try_from(map.node_count()).unwrap();
    let mut found: Vec<Label> = Vec::new();
    let mut begun = vec![Label::START];
    for _ in 0..MAX_RELAYS {
        let longer = |label: &Label| {
            let label = *label;
            let from = label.hops.nodes().last().map_or(THIS_RELAY, |node| u32::from(*node));
            (1..nodes).filter(move |to| !label.hops.nodes().contains(to)).filter_map(move |to| {
                let known = map.section(from, to.into(), Direction::Down)?;
                let round_trips = if known.section.is_warm { 1.0 } else { 2.0 };
                let delay = known.section.rtt.as_secs_f32() * round_trips + costs.hop_delay.as_secs_f32();
                let speed = label
                    .throughput
                    .min(map.sections_from(from).iter().find(|row| row.node == u32::from(to))?.both.down.throughput());
                Some(Label { hops: label.hops.push(to)?, delay: label.delay + delay, throughput: speed })
            })
        };
        begun = begun.iter().flat_map(longer).collect();
        found.extend(&begun);
    }
    found
}

#[test]
fn the_soonest_and_the_fastest_path_to_each_relay_are_kept() {
    let costs = RelayCosts::default();
    for seed in 0..60 {
        let map = random(4 + u32::try_from(seed % 5).unwrap(), seed);
        let fronts = ParetoFronts::compute(&map, &costs, &Trust::default());
        let all = all(&map, &costs);
        for node in 1..u32::try_from(map.node_count()).unwrap() {
            let to = |label: &&Label| label.hops.nodes().last().is_some_and(|last| u32::from(*last) == node);
            let kept: Vec<Label> = fronts.labels_to(node, Direction::Down).collect();
            let measures: [fn(&Label) -> f32; 3] = [|l| -l.delay, |l| l.throughput.medium, |l| l.throughput.large];
            for measure in measures {
                let best = all.iter().filter(to).map(measure).max_by(f32::total_cmp);
                let found = kept.iter().map(measure).max_by(f32::total_cmp);
                assert!(near(best, found), "seed {seed}, to {node}: {best:?} and {found:?}, {kept:?}");
            }
        }
    }
}

/// Three rounds may each lose what does not matter.
fn near(one: Option<f32>, other: Option<f32>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 0.07 * one.abs(),
        (one, other) => one == other,
    }
}

#[test]
fn kept_paths_are_simple_and_end_where_they_should() {
    let map = random(9, 3);
    let fronts = ParetoFronts::compute(&map, &RelayCosts::default(), &Trust::default());
    for node in 0..9 {
        for label in fronts.labels_to(node, Direction::Down) {
            let mut nodes = label.hops.nodes().to_vec();
            assert_eq!(nodes.last().copied().map(u32::from), Some(node), "{label:?}");
            nodes.sort_unstable();
            nodes.dedup();
            assert_eq!(nodes.len(), label.hops.nodes().len(), "a relay twice: {label:?}");
            assert!(!nodes.contains(&0), "through this relay: {label:?}");
        }
        assert_eq!(fronts.labels_to(node, Direction::Up).count(), 0, "nothing is known of that direction");
    }
    assert_eq!(fronts.labels_to(0, Direction::Down).count() + fronts.labels_to(99, Direction::Down).count(), 0);
}

#[test]
fn who_is_not_trusted_is_no_short_way() {
    let map = random(8, 5);
    let costs = RelayCosts::default();
    let mut trust = Trust::default();
    let through = |trust: &Trust| {
        let fronts = ParetoFronts::compute(&map, &costs, trust);
        let labels: Vec<Label> =
            (1..8).flat_map(|node| fronts.labels_to(node, Direction::Down).collect::<Vec<_>>()).collect();
        labels.iter().filter(|label| label.hops.nodes().len() > 1 && label.hops.nodes()[0] == 2).count()
    };
    let before = through(&trust);
    for _ in 0..50 {
        trust.record(&[2], 1, 3.0);
    }
    assert!(through(&trust) < before, "{} of {before}", through(&trust));
}

#[test]
fn a_candidate_has_a_name_and_comes_back_from_its_short_form() {
    let map = random(4, 1);
    let candidate = Candidate { relays: vec![3, 1, 2] };
    assert_eq!(candidate.name(&map), "r3 > r1 > r2");
    assert_eq!(Candidate::direct().name(&map), "direct");
    assert_eq!(Hops::from_candidate(&candidate).map(Hops::to_candidate), Some(candidate));
    assert_eq!(Hops::from_candidate(&Candidate { relays: vec![1, 2, 3, 4] }), None, "too many");
    assert_eq!(Hops::from_candidate(&Candidate { relays: vec![u32::MAX] }), None, "no such relay");
}

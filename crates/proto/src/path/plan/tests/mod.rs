mod advice;

use std::collections::BTreeMap;
use std::time::Duration;

use super::table::table;
use super::*;
use crate::path::model::RelayCosts;

const TOKYO: Position = Position { latitude: 35.68, longitude: 139.77 };
const YORON: Position = Position { latitude: 27.05, longitude: 128.43 };

fn site(name: &str, words: &[&str], position: Option<Position>) -> Site {
    let mut roles = Roles::default();
    assert!(words.iter().all(|word| roles.add_by_name(word)), "{words:?}");
    Site { name: name.to_owned(), roles, position }
}

fn ms(milliseconds: f64) -> RttEntry {
    RttEntry { rtt: Duration::from_secs_f64(milliseconds / 1e3), source: RttSource::Given }
}

/// A client, a server, and `middle` between them; sections have a window of 256 KiB.
fn network(middle: &[(&str, &str, f64, f64)], direct: f64) -> PlanInput {
    let mut sites = vec![site("c", &["client"], None), site("s", &["server"], None)];
    let mut matrix = RttMatrix::default();
    matrix.set(0, 1, ms(direct));
    for (name, role, down, up) in middle {
        let here = sites.len();
        sites.push(site(name, &[role], None));
        matrix.set(0, here, ms(*down));
        matrix.set(here, 1, ms(*up));
    }
    PlanInput {
        sites,
        matrix,
        distance_model: DistanceModel::with_inflation(2.0),
        default_traits: SectionTraits { window: Some(256 << 10), ..SectionTraits::default() },
        traits: BTreeMap::new(),
        traffic: vec![Traffic { client: 0, server: 1, weight: 1.0 }],
        sizes: vec![10_000, 1 << 20, 1 << 30],
        costs: RelayCosts::default(),
    }
}

#[test]
fn relay_in_the_middle_doubles_the_speed_and_direct_stays() {
    let network = network(&[("m", "relay", 50.0, 50.0), ("far", "relay", 300.0, 300.0)], 100.0);
    let plan = Plan::compute(&network);
    let pair = &plan.pairs[0];
    assert_eq!(pair.best().relays, [2]);
    let gain = pair.best().gains[2];
    assert!((1.9..2.01).contains(&gain), "{gain}");
    assert_eq!(pair.best().rtt, Duration::from_millis(100));
    assert_eq!(pair.direct().gains, [1.0, 1.0, 1.0]);
    let far = pair.paths.iter().find(|path| path.relays == [3]).unwrap();
    assert!(far.gains.iter().all(|gain| *gain < 1.0) && far.merit == 0.0, "{far:?}");
    assert!(plan.single_placements.is_empty() && plan.double_placements.is_empty(), "no place is possible");
}

#[test]
fn chains_have_up_to_three_relays_each_once() {
    let mut network = network(&[("a", "relay", 25.0, 75.0), ("b", "relay", 50.0, 50.0)], 100.0);
    for (name, role) in [("d", "relay"), ("e", "possible")] {
        network.sites.push(site(name, &[role], None));
    }
    for (one, other, rtt) in [(2, 3, 25.0), (3, 4, 25.0), (4, 1, 25.0), (2, 4, 50.0), (4, 5, 10.0), (5, 1, 15.0)] {
        network.matrix.set(one, other, ms(rtt));
    }
    let pair = &Plan::compute(&network).pairs[0];
    assert_eq!(pair.best().relays, [2, 3, 4], "four quarters");
    assert!(pair.paths.iter().all(|path| path.relays.len() <= 3));
    let by_e = pair.paths.iter().find(|path| path.relays.contains(&5)).unwrap();
    assert!(verdict::path_name(&network, &by_e.relays).contains("+e"), "{by_e:?}");
    for (at, path) in pair.paths.iter().enumerate() {
        assert!(pair.paths[at + 1..].iter().all(|other| other.relays != path.relays), "{path:?} twice");
    }
}

#[test]
fn best_single_and_double_placements_are_found() {
    let places =
        [("bad", "possible", 190.0, 190.0), ("third", "possible", 33.0, 67.0), ("late", "possible", 67.0, 33.0)];
    let mut network = network(&places, 100.0);
    network.matrix.set(3, 4, ms(34.0));
    let plan = Plan::compute(&network);
    assert_eq!(plan.single_placements.len(), 3);
    assert!(
        plan.single_placements[0].sites == [3] || plan.single_placements[0].sites == [4],
        "{:?}",
        plan.single_placements
    );
    assert_eq!(plan.double_placements.len(), 3);
    assert_eq!(plan.double_placements[0].sites, [3, 4]);
    assert_eq!(plan.double_placements[0].gains[0].relays, [3, 4]);
    assert!(
        plan.double_placements[0].gain > plan.single_placements[0].gain * 1.2,
        "{} {}",
        plan.double_placements[0].gain,
        plan.single_placements[0].gain
    );
    let bad = plan.single_placements.iter().find(|one| one.sites == [2]).unwrap();
    assert!((bad.gain - 1.0).abs() < 1e-9, "direct stays: {bad:?}");
}

#[test]
fn traffic_weights_decide_the_best_placement() {
    let mut network = network(&[("near-c", "possible", 50.0, 50.0), ("near-d", "possible", 400.0, 400.0)], 100.0);
    network.sites.push(site("d", &["client"], None));
    for (other, rtt) in [(1, 100.0), (2, 400.0), (3, 50.0)] {
        network.matrix.set(4, other, ms(rtt));
    }
    network.matrix.set(1, 3, ms(50.0));
    network.traffic.push(Traffic { client: 4, server: 1, weight: 3.0 });
    assert_eq!(Plan::compute(&network).single_placements[0].sites, [3]);
    network.traffic[1].weight = 0.3;
    assert_eq!(Plan::compute(&network).single_placements[0].sites, [2]);
}

#[test]
fn positions_give_estimates_of_missing_round_trips() {
    let kilometres = YORON.distance(TOKYO);
    assert!((1400.0..1460.0).contains(&kilometres), "{kilometres}");
    let opposite = Position { latitude: 0.0, longitude: 180.0 };
    let half = Position { latitude: 0.0, longitude: 0.0 }.distance(opposite);
    assert!((half - 20_015.0).abs() < 2.0, "{half}");
    let sites = [site("yoron", &["client"], Some(YORON)), site("tokyo", &["server"], Some(TOKYO))];
    let mut matrix = RttMatrix::default();
    let model = DistanceModel::fit(&sites, &matrix);
    assert_eq!(model, DistanceModel::with_inflation(2.0));
    matrix.fill_estimates(&sites, &model);
    let entry = matrix.get(1, 0).unwrap();
    assert_eq!(entry.source, RttSource::Estimated);
    assert!((28.0..29.2).contains(&(entry.rtt.as_secs_f64() * 1e3)), "{entry:?}");
}

#[test]
fn inflation_is_the_median_of_known_round_trips() {
    let east = |longitude| Some(Position { latitude: 0.0, longitude });
    let sites: Vec<Site> = (0..4).map(|n| site(&n.to_string(), &["relay"], east(f64::from(n) * 9.0))).collect();
    let mut matrix = RttMatrix::default();
    for (one, factor) in [(0, 3.0), (1, 4.0), (2, 8.0)] {
        matrix.set(one, one + 1, ms(10.0075 * factor));
    }
    let model = DistanceModel::fit(&sites, &matrix);
    assert_eq!(model.sample_count, 3);
    assert!((model.inflation - 4.0).abs() < 0.01, "{model:?}");
}

#[test]
fn short_detours_are_suspicious_and_extreme_ratios_mistakes() {
    for (direct, expected) in [(100.0, None), (140.0, None), (400.0, Some(false)), (5000.0, Some(true))] {
        let network = network(&[("m", "relay", 50.0, 50.0)], direct);
        let anomalies = implausible::find_anomalies(&network.sites, &network.matrix);
        assert_eq!(anomalies.first().map(|anomaly| anomaly.is_mistake), expected, "{direct}: {anomalies:?}");
        assert!(
            anomalies.iter().all(|anomaly| anomaly.sites == (0, 1) && anomaly.expected.contains("by m")),
            "{anomalies:?}"
        );
    }
}

#[test]
fn round_trip_faster_than_light_is_a_mistake() {
    let sites = [site("yoron", &["client"], Some(YORON)), site("tokyo", &["server"], Some(TOKYO))];
    let mut matrix = RttMatrix::default();
    matrix.set(0, 1, ms(9.0));
    assert_eq!(implausible::find_anomalies(&sites, &matrix), []);
    matrix.set(0, 1, ms(3.0));
    let anomalies = implausible::find_anomalies(&sites, &matrix);
    assert!(anomalies[0].is_mistake && anomalies[0].expected.starts_with("at least 9.6ms"), "{anomalies:?}");
}

#[test]
fn table_has_at_most_80_columns() {
    let long = "a-name-that-is-much-longer-than-its-column";
    let mut network = network(&[(long, "relay", 50.0, 50.0), ("p", "possible", 40.0, 60.0)], 100.0);
    network.sizes = vec![10_000, 100_000, 1 << 20, 8 << 20, 64 << 20, 1 << 30];
    for at in 0..12 {
        network.sites.push(site(&format!("another-client-{at}"), &["client"], None));
        let here = network.sites.len() - 1;
        for (other, rtt) in [(1, 200.0), (2, 100.0), (3, 30.0)] {
            network.matrix.set(here, other, ms(rtt));
        }
        network.traffic.push(Traffic { client: here, server: 1, weight: 0.5 });
    }
    let text = table(&network, &Plan::compute(&network), 5);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
        assert_eq!(line.trim_end(), line, "trailing blanks");
    }
    assert!(text.contains(long) && text.contains("direct") && text.contains("gain by traffic"), "{text}");
}

#[test]
fn pair_verdict_names_sizes_for_which_direct_is_better() {
    let slow_start = network(&[("m", "relay", 60.0, 60.0)], 100.0);
    let plan = Plan::compute(&slow_start);
    let text = verdict::pair_verdict(&slow_start, &plan.pairs[0]);
    assert!(text.contains("via m is up to 1.") && text.contains("direct: 10kB would arrive"), "{text}");
    let none = network(&[("far", "relay", 300.0, 300.0)], 100.0);
    let text = verdict::pair_verdict(&none, &Plan::compute(&none).pairs[0]);
    assert!(text.starts_with("No relay helps"), "{text}");
}

#[test]
fn svg_is_complete_with_and_without_positions() {
    let mut network = network(&[("m<>&", "relay", 50.0, 50.0), ("p", "possible", 25.0, 75.0)], 100.0);
    for on_a_map in [false, true] {
        if on_a_map {
            let places = [(27.05, 179.0), (35.68, -170.0), (31.6, -179.5), (34.7, 178.0)];
            for (site, (latitude, longitude)) in network.sites.iter_mut().zip(places) {
                site.position = Some(Position { latitude, longitude });
            }
        }
        let picture = picture::render_svg(&network, &Plan::compute(&network));
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("m&lt;&gt;&amp;") && !picture.contains("NaN"), "{picture}");
        assert!(picture.contains("50.0 ms") && picture.contains(" x</text>"), "{picture}");
        assert_eq!(picture.contains(">30N<"), on_a_map);
    }
}

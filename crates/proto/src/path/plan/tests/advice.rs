//! Tests of recommendations: limits, anomalies and texts.

use super::*;

#[test]
fn long_path_list_is_cut_and_keeps_direct() {
    let names: Vec<String> = (0..25).map(|number| format!("r{number}")).collect();
    let middle: Vec<_> = names.iter().map(|name| (name.as_str(), "relay", 50.0, 50.0)).collect();
    let pair = &Plan::compute(&network(&middle, 100.0)).pairs[0];
    assert_eq!((pair.paths.len(), pair.paths[19].is_direct()), (20, true), "the last of twenty");
    let shown = table(&network(&middle, 100.0), &Plan::compute(&network(&middle, 100.0)), 5);
    assert!(shown.contains("  direct ") && shown.contains("(and 15 that add less)"), "{shown}");
}

#[test]
fn a_relay_that_adds_nothing_to_a_chain_is_left_out() {
    let mut network = network(&[("a", "relay", 50.0, 50.0), ("idle", "relay", 51.0, 400.0)], 100.0);
    network.matrix.set(2, 3, ms(1.0));
    let pair = &Plan::compute(&network).pairs[0];
    assert!(pair.paths.iter().all(|path| path.relays.len() < 2), "{:?}", pair.paths);
}

#[test]
fn placements_use_the_better_of_two_sites() {
    let places = [("weak", "possible", 80.0, 80.0), ("good", "possible", 50.0, 50.0)];
    let plan = Plan::compute(&network(&places, 100.0));
    assert_eq!((&plan.double_placements[0].gains[0].relays[..], plan.double_placements.len()), (&[3][..], 1));
    assert_eq!(plan.single_placements.iter().map(|one| one.sites[0]).collect::<Vec<_>>(), [3, 2], "the best first");
}

#[test]
fn existing_relay_is_no_site_for_a_placement() {
    let mut network = network(&[("m", "relay", 50.0, 50.0)], 100.0);
    network.sites[2].roles.possible = true;
    assert!(Plan::compute(&network).single_placements.is_empty());
}

/// The verdict for placements with these gains, by one relay and by two.
fn advice(one: f64, two: Option<f64>) -> String {
    let network = network(&[("a", "possible", 50.0, 50.0), ("b", "possible", 50.0, 50.0)], 100.0);
    let placed = |places: &[usize], gain| Placement { sites: places.to_vec(), gain, gains: Vec::new() };
    let two = two.map(|gain| placed(&[2, 3], gain)).into_iter().collect();
    verdict::placement_verdict(
        &network,
        &Plan { pairs: Vec::new(), single_placements: vec![placed(&[2], one)], double_placements: two },
    )
}

#[test]
fn placement_verdict_depends_on_the_gain() {
    assert_eq!(advice(1.04, Some(1.04)), "None of the possible places helps: leave the network as it is.");
    assert_eq!(
        advice(1.04, Some(1.5)),
        "One relay alone hardly helps. Two do: at a and b, 1.50 times as fast as today on average over traffic and sizes."
    );
    assert!(advice(1.5, Some(1.51)).ends_with("sizes. A second one would add next to nothing."));
    assert!(advice(1.5, Some(2.0)).ends_with(" With two relays: a and b, 2.00 times."));
    assert!(advice(1.5, None).starts_with("Put the next relay at a: 1.50 times as fast as today"));
}

#[test]
fn pair_verdict_names_a_gain_for_every_size_or_no_gain() {
    let of = |network: &PlanInput| verdict::pair_verdict(network, &Plan::compute(network).pairs[0]);
    let mut every = network(&[("m", "relay", 20.0, 20.0)], 100.0);
    assert!(of(&every).starts_with("via m is ") && of(&every).contains(" for every size."), "{}", of(&every));
    every.default_traits.window = None;
    every.sizes = vec![10_000];
    every.matrix.set(0, 2, ms(49.0));
    every.matrix.set(2, 1, ms(49.0));
    every.default_traits.line_rate = Some(12_500.0);
    assert!(of(&every).starts_with("No relay helps"), "{}", of(&every));
}

#[test]
fn only_known_round_trips_are_checked_for_anomalies() {
    let anomaly_count = |origin, direct: f64, half: f64| {
        let mut network = network(&[("m", "relay", half, half)], direct);
        for (one, other, entry) in network.matrix.entries().collect::<Vec<_>>() {
            network.matrix.set(
                one,
                other,
                RttEntry { source: if other == 1 { RttSource::Given } else { origin }, ..entry },
            );
        }
        implausible::find_anomalies(&network.sites, &network.matrix).len()
    };
    assert_eq!(
        (anomaly_count(RttSource::Given, 400.0, 50.0), anomaly_count(RttSource::Estimated, 400.0, 50.0)),
        (1, 0)
    );
    assert_eq!(anomaly_count(RttSource::Given, 15.0, 1.0), 0, "a few milliseconds are no detour");
    let sites = [site("yoron", &["client"], Some(YORON)), site("tokyo", &["server"], Some(TOKYO))];
    let mut matrix = RttMatrix::default();
    matrix.set(0, 1, RttEntry { source: RttSource::Estimated, ..ms(3.0) });
    assert_eq!(implausible::find_anomalies(&sites, &matrix), [], "an estimate is never a mistake");
}

#[test]
fn estimates_fill_only_missing_round_trips_and_are_not_zero() {
    let east = |longitude| Some(Position { latitude: 0.0, longitude });
    let sites: Vec<Site> =
        [0.0, 9.0, 18.0, 18.01, 27.0].iter().map(|at| site(&at.to_string(), &["relay"], east(*at))).collect();
    let mut matrix = RttMatrix::default();
    for (one, other, rtt) in [(0, 1, 5.0), (1, 2, 6.0), (2, 4, 7.0)] {
        matrix.set(one, other, ms(rtt));
    }
    matrix.set(2, 3, ms(40.0));
    let model = DistanceModel::fit(&sites, &matrix);
    assert_eq!(
        (model.inflation, model.sample_count),
        (1.0, 3),
        "sites at one place are not used, and the factor is at least 1"
    );
    matrix.fill_estimates(&sites, &model);
    assert_eq!((matrix.get(0, 1), matrix.count(RttSource::Estimated)), (Some(ms(5.0)), 6), "given round trips stay");
    let nearby = DistanceModel::with_inflation(2.0).round_trip(&sites[2], &sites[3]);
    assert_eq!(nearby, Some(Duration::from_millis(1)));
}

#[test]
fn table_reports_the_number_of_unknown_sections() {
    let mut network = network(&[("m", "relay", 50.0, 50.0)], 100.0);
    network.sites.push(site("lonely", &["relay"], None));
    let text = table(&network, &Plan::compute(&network), 5).replace("\n", " ");
    assert!(text.contains("3 unknown: paths by these sections are left out."), "{text}");
}

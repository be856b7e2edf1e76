//! A plan as programs read it: names instead of numbers, times in milliseconds, rates in bytes per second.

use std::time::Duration;

use serde::Serialize;

use super::verdict::{of_pair, of_places};
use super::{Network, Origin, Pair, Placement, Plan, Ranked};

/// Everything.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    sizes: &'a [u64],
    inflation: f64,
    round_trips: Vec<RoundTrip<'a>>,
    traffic: Vec<PairView<'a>>,
    one_relay_more: Vec<PlacementView<'a>>,
    two_relays_more: Vec<PlacementView<'a>>,
    verdict: String,
}

#[derive(Debug, Serialize)]
struct RoundTrip<'a> {
    between: [&'a str; 2],
    rtt_ms: f64,
    origin: &'static str,
}

#[derive(Debug, Serialize)]
struct PairView<'a> {
    from: &'a str,
    to: &'a str,
    weight: f64,
    paths: Vec<PathView<'a>>,
    verdict: String,
}

#[derive(Debug, Serialize)]
struct PathView<'a> {
    relays: Vec<&'a str>,
    /// Those of the relays that do not stand yet.
    not_there_yet: Vec<&'a str>,
    rtt_ms: f64,
    bytes_per_second: f64,
    completion_ms: Vec<f64>,
    gain: &'a [f64],
}

#[derive(Debug, Serialize)]
struct PlacementView<'a> {
    places: Vec<&'a str>,
    gain: f64,
    who_gains: Vec<GainView<'a>>,
}

#[derive(Debug, Serialize)]
struct GainView<'a> {
    from: &'a str,
    to: &'a str,
    gain: f64,
    relays: Vec<&'a str>,
}

/// Shows a plan.
#[must_use]
pub fn of<'a>(network: &'a Network, plan: &'a Plan) -> View<'a> {
    let round_trips = network.matrix.entries().map(|(one, other, entry)| RoundTrip {
        between: [network.name(one), network.name(other)],
        rtt_ms: milliseconds(entry.rtt),
        origin: match entry.origin {
            Origin::Given => "given",
            Origin::Measured => "measured",
            Origin::Estimated => "estimated",
        },
    });
    View {
        sizes: &network.sizes,
        inflation: network.yardstick.inflation,
        round_trips: round_trips.collect(),
        traffic: plan.pairs.iter().map(|pair| of_traffic(network, pair)).collect(),
        one_relay_more: plan.one.iter().map(|placement| of_placement(network, placement)).collect(),
        two_relays_more: plan.two.iter().map(|placement| of_placement(network, placement)).collect(),
        verdict: of_places(network, plan),
    }
}

fn of_traffic<'a>(network: &'a Network, pair: &'a Pair) -> PairView<'a> {
    let traffic = network.traffic[pair.traffic];
    PairView {
        from: network.name(traffic.client),
        to: network.name(traffic.server),
        weight: traffic.weight,
        paths: pair.paths.iter().map(|path| of_path(network, path)).collect(),
        verdict: of_pair(network, pair),
    }
}

fn of_path<'a>(network: &'a Network, path: &'a Ranked) -> PathView<'a> {
    let not_there_yet: Vec<usize> =
        path.relays.iter().copied().filter(|relay| !network.sites[*relay].roles.relay).collect();
    PathView {
        relays: names(network, &path.relays),
        not_there_yet: names(network, &not_there_yet),
        rtt_ms: milliseconds(path.rtt),
        bytes_per_second: path.rate,
        completion_ms: path.times.iter().copied().map(milliseconds).collect(),
        gain: &path.gains,
    }
}

fn of_placement<'a>(network: &'a Network, placement: &'a Placement) -> PlacementView<'a> {
    let gains = placement.gains.iter().zip(&network.traffic).map(|(gain, traffic)| GainView {
        from: network.name(traffic.client),
        to: network.name(traffic.server),
        gain: gain.gain,
        relays: names(network, &gain.relays),
    });
    PlacementView { places: names(network, &placement.places), gain: placement.gain, who_gains: gains.collect() }
}

fn names<'a>(network: &'a Network, sites: &[usize]) -> Vec<&'a str> {
    sites.iter().map(|site| network.name(*site)).collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

//! A plan in machine-readable form: names instead of numbers, times in milliseconds, rates in bytes per second.

use std::time::Duration;

use serde::Serialize;

use super::verdict::{pair_verdict, placement_verdict};
use super::{Placement, Plan, PlanInput, PlannedPath, RttSource, TrafficPaths};

/// The serialisable form of a plan with its input.
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
    /// The relays of the path that do not exist yet.
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

/// Builds the view of a plan.
#[must_use]
pub fn build<'a>(network: &'a PlanInput, plan: &'a Plan) -> View<'a> {
    let round_trips = network.matrix.entries().map(|(one, other, entry)| RoundTrip {
        between: [network.name(one), network.name(other)],
        rtt_ms: milliseconds(entry.rtt),
        origin: match entry.source {
            RttSource::Given => "given",
            RttSource::Measured => "measured",
            RttSource::Estimated => "estimated",
        },
    });
    View {
        sizes: &network.sizes,
        inflation: network.distance_model.inflation,
        round_trips: round_trips.collect(),
        traffic: plan.pairs.iter().map(|pair| pair_view(network, pair)).collect(),
        one_relay_more: plan.single_placements.iter().map(|placement| placement_view(network, placement)).collect(),
        two_relays_more: plan.double_placements.iter().map(|placement| placement_view(network, placement)).collect(),
        verdict: placement_verdict(network, plan),
    }
}

fn pair_view<'a>(network: &'a PlanInput, pair: &'a TrafficPaths) -> PairView<'a> {
    let traffic = network.traffic[pair.traffic];
    PairView {
        from: network.name(traffic.client),
        to: network.name(traffic.server),
        weight: traffic.weight,
        paths: pair.paths.iter().map(|path| path_view(network, path)).collect(),
        verdict: pair_verdict(network, pair),
    }
}

fn path_view<'a>(network: &'a PlanInput, path: &'a PlannedPath) -> PathView<'a> {
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

fn placement_view<'a>(network: &'a PlanInput, placement: &'a Placement) -> PlacementView<'a> {
    let gains = placement.gains.iter().zip(&network.traffic).map(|(gain, traffic)| GainView {
        from: network.name(traffic.client),
        to: network.name(traffic.server),
        gain: gain.gain,
        relays: names(network, &gain.relays),
    });
    PlacementView { places: names(network, &placement.sites), gain: placement.gain, who_gains: gains.collect() }
}

fn names<'a>(network: &'a PlanInput, sites: &[usize]) -> Vec<&'a str> {
    sites.iter().map(|site| network.name(*site)).collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

//! The paths of one client and one server, the most useful first; direct is always among them.

use std::time::Duration;

use super::PlanInput;
use crate::path::model;

/// Maximum number of relays in a path.
const MAX_RELAYS: usize = 3;

/// Longest detour to consider, as a multiple of the direct round trip.
const MAX_DETOUR: u32 = 8;

/// Smallest merit that justifies one more relay: a gain of about a hundredth.
const MIN_MERIT: f64 = 0.01;

/// Maximum number of paths of a traffic, including direct.
const MAX_PATHS: usize = 20;

/// One traffic with its paths.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficPaths {
    /// Index of the traffic in the network.
    pub traffic: usize,
    /// The paths through existing and possible relays, the most useful first: at most 20, including direct.
    pub paths: Vec<PlannedPath>,
}

/// A path and its merit.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedPath {
    /// The sites of its relays in order, from the client on; empty for direct.
    pub relays: Vec<usize>,
    /// Sum of the round trips of its sections.
    pub rtt: Duration,
    /// The bulk rate, bytes/s.
    pub rate: f64,
    /// Time from `connect()` to the last byte, for each of the network's sizes.
    pub times: Vec<Duration>,
    /// Speed relative to direct, for each size.
    pub gains: Vec<f64>,
    /// The merit over direct: the mean over the sizes of the logarithm of the gain, with 0 for sizes where direct is
    /// faster.
    pub merit: f64,
}

impl TrafficPaths {
    /// The path without relays.
    #[must_use]
    pub fn direct(&self) -> &PlannedPath {
        self.paths.iter().find(|path| path.is_direct()).expect("invariant: direct is among them")
    }

    /// The most useful path, or direct if no path has a gain.
    #[must_use]
    pub fn best(&self) -> &PlannedPath {
        self.paths.first().expect("invariant: direct is among them")
    }
}

impl PlannedPath {
    /// Whether the path has no relay.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.relays.is_empty()
    }

    /// The mean logarithm of all gains, which orders paths of equal merit and length.
    fn mean(&self) -> f64 {
        self.gains.iter().map(|gain| gain.ln()).sum::<f64>() / self.gains.len().max(1) as f64
    }
}

/// Ranks the paths of a traffic.
pub(super) fn rank_paths(network: &PlanInput, traffic: usize) -> TrafficPaths {
    let mut places = network.relay_sites();
    places.extend(network.possible_sites());
    let direct = direct_times(network, traffic);
    let mut paths: Vec<PlannedPath> = Vec::new();
    visit_paths(network, traffic, &[], &places, &mut |relays| paths.extend(predict(network, traffic, relays, &direct)));
    paths.sort_by(compare);
    let mut paths = without_idle_relays(paths);
    if let Some(at) = paths.iter().position(PlannedPath::is_direct).filter(|at| *at >= MAX_PATHS) {
        let direct = paths.remove(at);
        paths.insert(MAX_PATHS - 1, direct);
    }
    paths.truncate(MAX_PATHS);
    TrafficPaths { traffic, paths }
}

/// Removes paths with almost no merit over a path with fewer of the same relays.
fn without_idle_relays(paths: Vec<PlannedPath>) -> Vec<PlannedPath> {
    let is_within = |fewer: &PlannedPath, more: &PlannedPath| {
        fewer.relays.len() < more.relays.len() && fewer.relays.iter().all(|relay| more.relays.contains(relay))
    };
    let is_idle = |path: &PlannedPath| {
        let enough = |fewer: &PlannedPath| is_within(fewer, path) && fewer.merit > path.merit - MIN_MERIT;
        path.relays.len() > 1 && paths.iter().any(enough)
    };
    let idle: Vec<bool> = paths.iter().map(is_idle).collect();
    paths.into_iter().zip(idle).filter(|(_, idle)| !idle).map(|(path, _)| path).collect()
}

/// Orders by merit, the highest first; paths of equal merit by their number of relays, then by the mean.
fn compare(one: &PlannedPath, other: &PlannedPath) -> std::cmp::Ordering {
    let same = (one.merit - other.merit).abs() < 1e-6;
    let by_merit = if same { std::cmp::Ordering::Equal } else { other.merit.total_cmp(&one.merit) };
    let by_length = || one.relays.len().cmp(&other.relays.len());
    by_merit.then_with(by_length).then_with(|| other.mean().total_cmp(&one.mean()))
}

/// The times of a traffic's direct path.
pub(super) fn direct_times(network: &PlanInput, traffic: usize) -> Vec<Duration> {
    completion_times(network, traffic, &[]).expect("invariant: the round trip between both ends of a traffic is known")
}

/// Times from `connect()` to the last byte through these relays, for each size; `None` if a round trip is unknown.
pub(super) fn completion_times(network: &PlanInput, traffic: usize, relays: &[usize]) -> Option<Vec<Duration>> {
    let sections = network.sections(&stops(network, traffic, relays))?;
    Some(network.sizes.iter().map(|size| model::completion(&sections, *size, &network.costs)).collect())
}

fn predict(network: &PlanInput, traffic: usize, relays: &[usize], direct: &[Duration]) -> Option<PlannedPath> {
    let sections = network.sections(&stops(network, traffic, relays))?;
    let times = completion_times(network, traffic, relays)?;
    let gains = gains(direct, &times);
    Some(PlannedPath {
        relays: relays.to_vec(),
        rtt: sections.iter().map(|section| section.rtt).sum(),
        rate: model::path_rate(&sections, &network.costs),
        merit: merit(&gains),
        times,
        gains,
    })
}

/// The ratios of `direct` to `times`.
pub(super) fn gains(direct: &[Duration], times: &[Duration]) -> Vec<f64> {
    let gain = |(direct, time): (&Duration, &Duration)| direct.as_secs_f64() / time.as_secs_f64().max(1e-9);
    direct.iter().zip(times).map(gain).collect()
}

fn merit(gains: &[f64]) -> f64 {
    gains.iter().map(|gain| gain.max(1.0).ln()).sum::<f64>() / gains.len().max(1) as f64
}

/// The sites of a path, both ends included.
pub(super) fn stops(network: &PlanInput, traffic: usize, relays: &[usize]) -> Vec<usize> {
    let traffic = network.traffic[traffic];
    [&[traffic.client], relays, &[traffic.server]].concat()
}

/// Calls `visit` once for each path that contains all relays of `required` and any of `allowed`.
pub(super) fn visit_paths(
    network: &PlanInput,
    traffic: usize,
    required: &[usize],
    allowed: &[usize],
    visit: &mut dyn FnMut(&[usize]),
) {
    let traffic = network.traffic[traffic];
    let direct = network.matrix.get(traffic.client, traffic.server);
    let longest = direct.map_or(Duration::MAX, |entry| entry.rtt * MAX_DETOUR);
    let ends = [traffic.client, traffic.server];
    let usable =
        |sites: &[usize]| -> Vec<usize> { sites.iter().copied().filter(|site| !ends.contains(site)).collect() };
    let (needed, optional) = (usable(required), usable(allowed));
    if needed.len() == required.len() {
        PathSearch { network, needed, optional, longest, chain: vec![], visit }
            .search_from(traffic.client, Duration::ZERO);
    }
}

struct PathSearch<'a> {
    network: &'a PlanInput,
    needed: Vec<usize>,
    optional: Vec<usize>,
    longest: Duration,
    chain: Vec<usize>,
    visit: &'a mut dyn FnMut(&[usize]),
}

impl PathSearch<'_> {
    fn search_from(&mut self, from: usize, so_far: Duration) {
        let missing = self.needed.iter().filter(|site| !self.chain.contains(site)).count();
        if missing == 0 {
            (self.visit)(&self.chain);
        }
        let room = MAX_RELAYS - self.chain.len();
        for at in 0..self.needed.len() + self.optional.len() {
            let is_needed = at < self.needed.len();
            let site = if is_needed { self.needed[at] } else { self.optional[at - self.needed.len()] };
            if self.chain.contains(&site) || room < missing + usize::from(!is_needed) || room == 0 {
                continue;
            }
            let Some(entry) = self.network.matrix.get(from, site) else { continue };
            let length = so_far + entry.rtt;
            if length <= self.longest {
                self.chain.push(site);
                self.search_from(site, length);
                self.chain.pop();
            }
        }
    }
}

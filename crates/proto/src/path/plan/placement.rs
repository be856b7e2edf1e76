//! The best places for one or two more relays: every place and every pair of places is evaluated.
//!
//! The measure is the mean logarithm of the gain, over all traffics by their weights and over all sizes, each with its
//! fastest path. Doubling one speed compensates for halving another; no result is worse than today's, because today's
//! paths are still available.

use std::time::Duration;

use super::ranking::{completion_times, direct_times, gains, visit_paths};
use super::{PlanInput, Traffic};

/// One or two more relays, and their gain.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The sites of the additional relays.
    pub sites: Vec<usize>,
    /// Speed relative to today, averaged as described for this module.
    pub gain: f64,
    /// The gain of each traffic, in the network's order.
    pub gains: Vec<Gain>,
}

/// The gain of one traffic by a placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Gain {
    /// Speed relative to today, as the mean over the sizes.
    pub gain: f64,
    /// The relays of the most useful path with the placement; empty for direct.
    pub relays: Vec<usize>,
}

/// The best paths of a traffic.
#[derive(Debug, Clone)]
struct BestTimes {
    /// The shortest time for each size.
    times: Vec<Duration>,
    /// The largest merit of a path over direct, and the path's relays.
    most_useful: (f64, Vec<usize>),
}

/// All placements of one relay and of two, the best first.
pub(super) fn all_placements(network: &PlanInput) -> (Vec<Placement>, Vec<Placement>) {
    let (relays, places) = (network.relay_sites(), network.possible_sites());
    let traffics = 0..network.traffic.len();
    let today: Vec<BestTimes> = traffics.clone().map(|traffic| BestTimes::today(network, traffic, &relays)).collect();
    let with_relays = |best: &[BestTimes], added: &[usize]| -> Vec<BestTimes> {
        traffics.clone().map(|traffic| best[traffic].clone().with_relays(network, traffic, added, &relays)).collect()
    };
    let single_times: Vec<Vec<BestTimes>> = places.iter().map(|place| with_relays(&today, &[*place])).collect();
    let single = places.iter().zip(&single_times).map(|(place, best)| placement(network, vec![*place], &today, best));
    let mut double = Vec::new();
    for (at, place) in places.iter().enumerate() {
        for (another_at, another) in places.iter().enumerate().skip(at + 1) {
            let merged: Vec<BestTimes> =
                single_times[at].iter().zip(&single_times[another_at]).map(|(a, b)| a.merge(b)).collect();
            let pair_times = with_relays(&merged, &[*place, *another]);
            double.push(placement(network, vec![*place, *another], &today, &pair_times));
        }
    }
    (sorted(single.collect()), sorted(double))
}

fn sorted(mut placements: Vec<Placement>) -> Vec<Placement> {
    placements.sort_by(|one, other| other.gain.total_cmp(&one.gain));
    placements
}

fn placement(network: &PlanInput, places: Vec<usize>, today: &[BestTimes], best: &[BestTimes]) -> Placement {
    let log_means: Vec<f64> = today.iter().zip(best).map(|(old, new)| mean(&gains(&old.times, &new.times))).collect();
    let total: f64 = network.traffic.iter().map(|traffic| traffic.weight).sum();
    let weighted_logs = network.traffic.iter().zip(&log_means).map(|(Traffic { weight, .. }, mean)| weight * mean);
    let gain = (weighted_logs.sum::<f64>() / total.max(f64::MIN_POSITIVE)).exp();
    let gains =
        log_means.iter().zip(best).map(|(mean, best)| Gain { gain: mean.exp(), relays: best.most_useful.1.clone() });
    Placement { sites: places, gain, gains: gains.collect() }
}

fn mean(gains: &[f64]) -> f64 {
    gains.iter().map(|gain| gain.ln()).sum::<f64>() / gains.len().max(1) as f64
}

impl BestTimes {
    fn today(network: &PlanInput, traffic: usize, relays: &[usize]) -> Self {
        let best = Self { times: direct_times(network, traffic), most_useful: (0.0, Vec::new()) };
        best.with_relays(network, traffic, &[], relays)
    }

    /// Adds the paths through all of `required` and any of `allowed`.
    fn with_relays(mut self, network: &PlanInput, traffic: usize, required: &[usize], allowed: &[usize]) -> Self {
        let direct = direct_times(network, traffic);
        visit_paths(network, traffic, required, allowed, &mut |relays| {
            let Some(times) = completion_times(network, traffic, relays) else { return };
            let merit = mean(&gains(&direct, &times).iter().map(|gain| gain.max(1.0)).collect::<Vec<_>>());
            if merit > self.most_useful.0 + 1e-9 {
                self.most_useful = (merit, relays.to_vec());
            }
            for (best, time) in self.times.iter_mut().zip(times) {
                *best = time.min(*best);
            }
        });
        self
    }

    /// The best times when the paths of both are available.
    fn merge(&self, other: &Self) -> Self {
        let times = self.times.iter().zip(&other.times).map(|(time, other_time)| *time.min(other_time)).collect();
        let most_useful = if other.most_useful.0 > self.most_useful.0 { &other.most_useful } else { &self.most_useful };
        Self { times, most_useful: most_useful.clone() }
    }
}

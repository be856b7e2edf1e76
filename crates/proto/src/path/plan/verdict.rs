//! The conclusions of a plan, as English sentences.

use super::{Placement, Plan, PlanInput, PlannedPath, TrafficPaths};
use crate::quantity::{compact_size, factor, time};

/// Smaller gains are not reported, because predictions are less exact.
const MIN_GAIN: f64 = 1.05;

/// One or two sentences about the paths of a pair.
#[must_use]
pub fn pair_verdict(network: &PlanInput, pair: &TrafficPaths) -> String {
    let best = pair.best();
    let (best_index, gain) = largest_gain(best);
    if best.is_direct() || gain < MIN_GAIN {
        return "No relay helps here: direct is the best path, or as good as any.".to_owned();
    }
    let name = path_name(network, &best.relays);
    let first_gain = best.gains.iter().rposition(|gain| *gain < MIN_GAIN).map_or(0, |last| last + 1);
    let mut text = if first_gain == 0 {
        let least = best.gains.iter().copied().fold(f64::INFINITY, f64::min);
        format!("{name} is {} to {} times as fast as direct for every size.", factor(least), factor(gain))
    } else if first_gain < best.gains.len() {
        let largest =
            (best_index + 1 < best.gains.len()).then(|| format!(" (at {})", compact_size(network.sizes[best_index])));
        let start = compact_size(network.sizes[first_gain]);
        let most = factor(gain);
        format!("From {start} on {name} is up to {most} times as fast as direct{}.", largest.unwrap_or_default())
    } else {
        format!("{name} is {} times as fast as direct at {}.", factor(gain), compact_size(network.sizes[best_index]))
    };
    text.extend(small_object_note(network, pair, best));
    text
}

/// A sentence about the smallest objects, if the best path delays them.
fn small_object_note(network: &PlanInput, pair: &TrafficPaths, best: &PlannedPath) -> Option<String> {
    let (direct, relayed) = (*pair.direct().times.first()?, *best.times.first()?);
    let delay = relayed.checked_sub(direct).filter(|delay| delay.as_micros() >= 500)?;
    let smallest = compact_size(*network.sizes.first()?);
    Some(format!(" Small objects are faster direct: {smallest} would arrive {} later.", time(delay.as_secs_f64())))
}

/// The index of the size at which a path gains the most, and that gain.
fn largest_gain(path: &PlannedPath) -> (usize, f64) {
    let gains = path.gains.iter().copied().enumerate();
    gains.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((0, 1.0))
}

/// The recommended next step, for all traffic.
#[must_use]
pub fn placement_verdict(network: &PlanInput, plan: &Plan) -> String {
    let Some(single) = plan.single_placements.first() else {
        return "No site is a possible place for a relay: give some the role \"possible\" to see where one would help."
            .to_owned();
    };
    let double = plan.double_placements.first();
    let best = double.map_or(single.gain, |double| double.gain.max(single.gain));
    if best < MIN_GAIN {
        return "None of the possible places helps: leave the network as it is.".to_owned();
    }
    let name = |placement: &Placement| join_and(placement.sites.iter().map(|place| network.name(*place)));
    let mean = "on average over traffic and sizes";
    if single.gain < MIN_GAIN {
        let double = double.expect("invariant: with no gain from one relay, the best gain is from two");
        return format!(
            "One relay alone hardly helps. Two do: at {}, {} times as fast as today {mean}.",
            name(double),
            factor(double.gain)
        );
    }
    let mut text =
        format!("Put the next relay at {}: {} times as fast as today {mean}.", name(single), factor(single.gain));
    if let Some(double) = double {
        let second = (name(double), factor(double.gain));
        text += &if double.gain < single.gain * MIN_GAIN {
            " A second one would add next to nothing.".to_owned()
        } else {
            format!(" With two relays: {}, {} times.", second.0, second.1)
        };
    }
    text
}

/// The name of a path: `direct`, or its relays, with `+` before possible ones.
#[must_use]
pub fn path_name(network: &PlanInput, relays: &[usize]) -> String {
    if relays.is_empty() {
        return "direct".to_owned();
    }
    let name = |relay: &usize| {
        let mark = if network.sites[*relay].roles.relay { "" } else { "+" };
        format!("{mark}{}", network.name(*relay))
    };
    format!("via {}", relays.iter().map(name).collect::<Vec<_>>().join(", "))
}

fn join_and<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.collect::<Vec<_>>().join(" and ")
}

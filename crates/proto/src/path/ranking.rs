//! The predicted transfer time of each path to a prefix, from the map alone.

use std::time::Duration;

use crate::direction::Direction;

use super::candidates::{Hops, ParetoFronts};
use super::experience::SizeClass;
use super::map::{NetworkMap, THIS_RELAY};
use super::model::{self, RelayCosts, SectionModel};
use super::prefix::Prefix;
use super::transfer_size::TransferSize;
use super::trust::Trust;
use super::visits;

/// Maximum number of paths in a ranking.
const MAX_RANKED: usize = 8;

/// Maximum number of paths that the model evaluates: those with the shortest lower bound of the time by delay and rate.
const MAX_MODELLED: usize = 12;

/// The key of a ranking: targets of one prefix, sizes with the same nearest power of two, and one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ChoiceKey {
    pub prefix: Prefix,
    pub direction: Direction,
    pub class: SizeClass,
}

impl ChoiceKey {
    pub fn new(prefix: Prefix, predicted_size: TransferSize) -> Self {
        Self { prefix, direction: predicted_size.direction, class: SizeClass::for_bytes(predicted_size.bytes) }
    }

    /// The representative size in bytes.
    pub const fn bytes(&self) -> u64 {
        self.class.bytes()
    }

    /// The transfer with its direction.
    pub const fn transfer(&self) -> TransferSize {
        TransferSize { bytes: self.bytes(), direction: self.direction }
    }
}

/// A path and its prediction from the map, for a first visit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RatedPath {
    pub hops: Hops,
    /// The predicted time in seconds, if all reports of other relays are correct.
    pub predicted: f64,
    /// The predicted time for the representative size of the size class, in seconds.
    pub class_predicted: f64,
    /// Decrease of the logarithms of the times from initial to open windows.
    pub log_gain: f64,
    /// The predicted time in seconds, if every uncertain figure has its best value.
    pub optimistic: f64,
    /// The predicted time to the first byte, in seconds.
    pub first_byte: f64,
    /// Steady rate in bytes/s.
    pub rate: f64,
    pub confidence: f64,
    /// Bit set of the sections with figures from other relays; bit 0 is the section that this relay dials.
    reported_sections: u8,
}

impl RatedPath {
    /// Converts the predictions for a first visit to those for a session with windows of this `openness`.
    pub fn at_openness(self, openness: f64) -> Self {
        let factor = (-self.log_gain * openness).exp();
        Self {
            predicted: self.predicted * factor,
            class_predicted: self.class_predicted * factor,
            optimistic: self.optimistic * factor,
            ..self
        }
    }

    /// The relays that report sections of this path.
    pub fn reporters(&self) -> impl Iterator<Item = u32> {
        let nodes = self.hops.nodes().iter().enumerate();
        nodes.filter(|(at, _)| self.reported_sections & (2 << at) > 0).map(|(_, node)| u32::from(*node))
    }

    /// The logarithm of the factor on the prediction for lack of trust.
    pub fn log_distrust(&self, trust: &Trust) -> f64 {
        -self.reporters().map(|node| trust.log_factor(node)).sum::<f64>()
    }
}

/// The map's prediction for one path. `None` when the map lacks one of its sections.
pub(super) fn rate_path(
    map: &NetworkMap,
    costs: &RelayCosts,
    hops: Hops,
    prefix: Prefix,
    predicted_size: TransferSize,
) -> Option<RatedPath> {
    let mut sections: Vec<SectionModel> = Vec::with_capacity(hops.nodes().len() + 1);
    let mut optimistic_sections = sections.clone();
    let (mut confidence, mut reported) = (1.0_f64, 0);
    let mut from = THIS_RELAY;
    let mut next = hops.nodes().iter().map(|node| u32::from(*node));
    loop {
        let to = next.next();
        let entry = match to {
            Some(to) => map.section(from, to, predicted_size.direction),
            None => map.last_section(from, prefix, predicted_size.direction),
        }?;
        reported |= u8::from(!entry.is_own) << sections.len();
        confidence = confidence.min(entry.confidence);
        sections.push(entry.section);
        optimistic_sections.push(entry.optimistic());
        let Some(to) = to else { break };
        from = to;
    }
    let completion = |sections: &[SectionModel], bytes| model::completion(sections, bytes, costs).as_secs_f64();
    let class_bytes = SizeClass::for_bytes(predicted_size.bytes).bytes();
    let class_predicted = completion(&sections, class_bytes);
    let later_sections: Vec<_> = sections.iter().map(|section| section.after_transfer(class_bytes)).collect();
    Some(RatedPath {
        hops,
        predicted: completion(&sections, predicted_size.bytes),
        class_predicted,
        log_gain: visits::log_gain(class_predicted, completion(&later_sections, class_bytes)),
        optimistic: completion(&optimistic_sections, predicted_size.bytes),
        first_byte: model::time_to_first_byte(&sections, costs).as_secs_f64(),
        rate: model::path_rate(&sections, costs),
        confidence,
        reported_sections: reported,
    })
}

/// The best paths, the best first, and direct if it is known.
pub(super) fn rank(
    map: &NetworkMap,
    fronts: &ParetoFronts,
    costs: &RelayCosts,
    choice_key: &ChoiceKey,
    predicted_size: TransferSize,
) -> Vec<RatedPath> {
    let rate_of = |hops| rate_path(map, costs, hops, choice_key.prefix, predicted_size);
    let mut rated: Vec<RatedPath> = promising(map, fronts, choice_key).into_iter().filter_map(rate_of).collect();
    rated.sort_unstable_by(|one, other| one.predicted.total_cmp(&other.predicted));
    rated.truncate(MAX_RANKED - 1);
    if let Some(direct) = rate_of(Hops::DIRECT) {
        let at = rated.partition_point(|other| other.predicted < direct.predicted);
        rated.insert(at, direct);
    }
    rated
}

/// Paths through relays with the smallest lower bounds: delay, and the size at the steady rate from the beginning.
fn promising(map: &NetworkMap, fronts: &ParetoFronts, choice_key: &ChoiceKey) -> Vec<Hops> {
    let bytes = choice_key.bytes();
    let mut bounds: Vec<(f32, Hops)> = Vec::new();
    for edge in map.last_sections(choice_key.prefix).iter().filter(|edge| edge.node != THIS_RELAY) {
        let section = edge.both.get(choice_key.direction);
        if !section.is_known() {
            continue;
        }
        let paths = fronts.labels_to(edge.node, choice_key.direction);
        bounds.extend(paths.map(|label| {
            let rate = label.throughput.min(section.throughput()).for_size(bytes).max(1.0);
            (label.delay + section.delay() + bytes as f32 / rate, label.hops)
        }));
    }
    if bounds.len() > MAX_MODELLED {
        bounds.select_nth_unstable_by(MAX_MODELLED - 1, |one, other| one.0.total_cmp(&other.0));
        bounds.truncate(MAX_MODELLED);
    }
    bounds.into_iter().map(|(_, hops)| hops).collect()
}

/// Seconds as a [`Duration`]; out of range, `u32::MAX` seconds.
pub(super) fn to_duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u32::MAX.into()))
}

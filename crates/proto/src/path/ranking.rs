//! What each path to a prefix is predicted to take, as far as the map says.

use std::time::Duration;

use crate::direction::Direction;

use super::candidates::{Fronts, Hops};
use super::experience::Class;
use super::likely::Likely;
use super::map::{HERE, Map};
use super::model::{self, Costs, Section};
use super::prefix::Prefix;
use super::trust::Trust;

/// Paths of a ranking at most.
const MOST: usize = 8;

/// Paths for which the model is asked: those that a look at delay and rate says are the best.
const WORTH: usize = 12;

/// Targets, sizes and a direction that are answered alike: sizes that have the same power of two next to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub prefix: Prefix,
    pub direction: Direction,
    pub class: Class,
}

impl Question {
    pub fn of(prefix: Prefix, likely: Likely) -> Self {
        Self { prefix, direction: likely.direction, class: Class::of(likely.bytes) }
    }

    /// The size that it stands for, in bytes.
    pub const fn bytes(&self) -> u64 {
        self.class.bytes()
    }

    /// The same with its direction.
    pub const fn likely(&self) -> Likely {
        Likely { bytes: self.bytes(), direction: self.direction }
    }
}

/// A path, and what the map says of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rated {
    pub hops: Hops,
    /// Seconds, if all that others say is true.
    pub raw: f64,
    /// The same for a session of the size that stands for its class.
    pub reference: f64,
    /// Seconds, if what is not sure is as good as it can be.
    pub hoped: f64,
    /// Seconds to the first byte.
    pub first_byte: f64,
    /// Bytes/s.
    pub rate: f64,
    pub confidence: f64,
    /// The sections that others report, as bits: the lowest is the first behind this relay.
    reported: u8,
}

impl Rated {
    /// The relays whose reports are behind it.
    pub fn reporters(&self) -> impl Iterator<Item = u32> {
        let nodes = self.hops.nodes().iter().enumerate();
        nodes.filter(|(at, _)| self.reported & (2 << at) > 0).map(|(_, node)| u32::from(*node))
    }

    /// By what its prediction is to be multiplied for lack of trust, as a logarithm.
    pub fn doubt(&self, trust: &Trust) -> f64 {
        -self.reporters().map(|node| trust.log(node)).sum::<f64>()
    }
}

/// What the map says of one path. None when it lacks one of the sections.
pub(super) fn rate(map: &Map, costs: &Costs, hops: Hops, prefix: Prefix, likely: Likely) -> Option<Rated> {
    let mut sections: Vec<Section> = Vec::with_capacity(hops.nodes().len() + 1);
    let mut hopeful = sections.clone();
    let (mut confidence, mut reported) = (1.0_f64, 0);
    let mut from = HERE;
    let mut next = hops.nodes().iter().map(|node| u32::from(*node));
    loop {
        let to = next.next();
        let known = match to {
            Some(to) => map.section(from, to, likely.direction),
            None => map.last(from, prefix, likely.direction),
        }?;
        reported |= u8::from(!known.own) << sections.len();
        confidence = confidence.min(known.confidence);
        sections.push(known.section);
        hopeful.push(known.hopeful());
        let Some(to) = to else { break };
        from = to;
    }
    let completion = |sections: &[Section], bytes| model::completion(sections, bytes, costs).as_secs_f64();
    Some(Rated {
        hops,
        raw: completion(&sections, likely.bytes),
        reference: completion(&sections, Class::of(likely.bytes).bytes()),
        hoped: completion(&hopeful, likely.bytes),
        first_byte: model::first_byte(&sections, costs).as_secs_f64(),
        rate: model::rate(&sections, costs),
        confidence,
        reported,
    })
}

/// The paths that are worth a thought, the best first, and direct if it is known.
pub(super) fn rank(map: &Map, fronts: &Fronts, costs: &Costs, question: &Question) -> Vec<Rated> {
    let likely = question.likely();
    let rate_of = |hops| rate(map, costs, hops, question.prefix, likely);
    let mut rated: Vec<Rated> = promising(map, fronts, question).into_iter().filter_map(rate_of).collect();
    rated.sort_unstable_by(|one, other| one.raw.total_cmp(&other.raw));
    rated.truncate(MOST - 1);
    if let Some(direct) = rate_of(Hops::DIRECT) {
        let at = rated.partition_point(|other| other.raw < direct.raw);
        rated.insert(at, direct);
    }
    rated
}

/// Paths through relays, those first that could be the soonest if they ran at their rate from the beginning.
fn promising(map: &Map, fronts: &Fronts, question: &Question) -> Vec<Hops> {
    let bytes = question.bytes();
    let mut bounds: Vec<(f32, Hops)> = Vec::new();
    for last in map.lasts(question.prefix).iter().filter(|last| last.node != HERE) {
        let section = last.both.toward(question.direction);
        if !section.is_known() {
            continue;
        }
        let paths = fronts.to(last.node, question.direction);
        bounds.extend(paths.map(|label| {
            let rate = label.speed.min(section.speed()).at(bytes).max(1.0);
            (label.delay + section.delay() + bytes as f32 / rate, label.hops)
        }));
    }
    if bounds.len() > WORTH {
        bounds.select_nth_unstable_by(WORTH - 1, |one, other| one.0.total_cmp(&other.0));
        bounds.truncate(WORTH);
    }
    bounds.into_iter().map(|(_, hops)| hops).collect()
}

/// Seconds as a time that can be shown and added.
pub(super) fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(u32::MAX.into()))
}

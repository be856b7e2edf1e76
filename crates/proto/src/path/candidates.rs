//! The paths that may be chosen: direct, and those of up to three relays that no other beats at everything.
//!
//! From this relay to every other, a few paths are kept: the *front* of those where none is both sooner there and faster.
//! It grows by one section a round, three rounds, so it takes about as long as there are sections (a Bellman-Ford of three
//! rounds, with the two measures of Martins, "On a multicriteria shortest path problem", 1984). What lies behind, the last
//! section to a target, is added per prefix when somebody goes there.

use std::fmt;

use crate::limiting::Direction;

use super::map::{HERE, Map};
use super::model::Costs;
use super::trust::Trust;

/// Most relays of a path.
pub const MOST_RELAYS: usize = 3;

/// Paths kept to each relay, for each number of sections.
const KEPT: usize = 4;

/// A path that may be chosen, by the numbers of its relays in the [`Map`], in the order in which they are dialled; none:
/// direct.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Candidate {
    /// At most [`MOST_RELAYS`].
    pub relays: Vec<u32>,
}

impl Candidate {
    /// The path without relays.
    #[must_use]
    pub const fn direct() -> Self {
        Self { relays: Vec::new() }
    }

    /// Whether it is the path without relays.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.relays.is_empty()
    }

    /// Its name: `direct`, `osaka`, `fukuoka > osaka`.
    #[must_use]
    pub fn name(&self, map: &Map) -> String {
        if self.is_direct() {
            return "direct".to_owned();
        }
        self.relays.iter().map(|relay| map.name(*relay)).collect::<Vec<_>>().join(" > ")
    }
}

/// The relays of a candidate in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Hops {
    nodes: [u16; MOST_RELAYS],
    count: u16,
}

impl Hops {
    pub const DIRECT: Self = Self { nodes: [0; MOST_RELAYS], count: 0 };

    /// Those of a candidate; none when it has too many relays, or ones that no map has.
    pub fn of(candidate: &Candidate) -> Option<Self> {
        let mut hops = Self::DIRECT;
        for relay in &candidate.relays {
            hops = hops.then(u16::try_from(*relay).ok()?)?;
        }
        Some(hops)
    }

    fn then(mut self, node: u16) -> Option<Self> {
        *self.nodes.get_mut(usize::from(self.count))? = node;
        self.count += 1;
        Some(self)
    }

    pub fn nodes(&self) -> &[u16] {
        &self.nodes[..usize::from(self.count)]
    }

    pub const fn is_direct(self) -> bool {
        self.count == 0
    }

    pub fn candidate(self) -> Candidate {
        Candidate { relays: self.nodes().iter().map(|node| u32::from(*node)).collect() }
    }
}

impl fmt::Debug for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes().fmt(f)
    }
}

/// A path to a relay: how soon one is there, and how fast it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub hops: Hops,
    /// Seconds.
    pub delay: f32,
    /// Bytes/s.
    pub rate: f32,
}

/// Labels of which none beats another at both.
#[derive(Debug, Clone, Copy)]
struct Front {
    labels: [Label; KEPT],
    count: u8,
}

impl Front {
    const EMPTY: Self = Self { labels: [Label { hops: Hops::DIRECT, delay: 0.0, rate: 0.0 }; KEPT], count: 0 };

    fn labels(&self) -> &[Label] {
        &self.labels[..usize::from(self.count)]
    }

    /// Puts a label in, unless one is there that beats it; what it beats goes.
    fn offer(&mut self, label: Label) {
        let beats = |one: &Label, other: &Label| one.delay <= other.delay && one.rate >= other.rate;
        if self.labels().iter().any(|kept| beats(kept, &label)) {
            return;
        }
        let mut count = 0;
        for at in 0..usize::from(self.count) {
            if !beats(&label, &self.labels[at]) {
                self.labels[count] = self.labels[at];
                count += 1;
            }
        }
        if count == KEPT {
            count = self.drop_least();
        }
        self.labels[count] = label;
        self.count = count as u8 + 1;
    }

    /// Makes room where it is missed least: the soonest and the fastest stay, and of the others the slowest goes.
    fn drop_least(&mut self) -> usize {
        self.labels.sort_unstable_by(|one, other| one.delay.total_cmp(&other.delay));
        self.labels.copy_within(2.., 1);
        KEPT - 1
    }
}

/// The paths from this relay to every other that may be part of a candidate, for data in one direction.
#[derive(Debug, Clone, Default)]
struct Reached {
    /// For each number of sections, by relay.
    rounds: Vec<Vec<Front>>,
}

impl Reached {
    fn of(map: &Map, costs: &Costs, trust: &Trust, direction: Direction) -> Self {
        let mut start = vec![Front::EMPTY; map.nodes()];
        start[HERE as usize].offer(Label { hops: Hops::DIRECT, delay: 0.0, rate: f32::INFINITY });
        let mut rounds: Vec<Vec<Front>> = Vec::with_capacity(MOST_RELAYS);
        for _ in 0..MOST_RELAYS {
            rounds.push(further(map, costs, trust, direction, rounds.last().unwrap_or(&start)));
        }
        Self { rounds }
    }

    fn to(&self, node: u32) -> impl Iterator<Item = &Label> {
        self.rounds.iter().filter_map(move |round| round.get(node as usize)).flat_map(Front::labels)
    }
}

/// One section more.
fn further(map: &Map, costs: &Costs, trust: &Trust, direction: Direction, before: &[Front]) -> Vec<Front> {
    let mut fronts = vec![Front::EMPTY; map.nodes()];
    let hop = costs.hop.as_secs_f32();
    for (from, front) in (0..).zip(before) {
        if front.labels().is_empty() {
            continue;
        }
        let reporter = trust.of(from) as f32;
        for to in map.row(from) {
            let section = to.both.toward(direction);
            if !section.is_known() || to.node == HERE {
                continue;
            }
            let believed = if section.is_own() { 1.0 } else { reporter };
            let (delay, rate) = (section.delay() / believed + hop, section.rate() * believed);
            for label in front.labels() {
                let Some(hops) = label.hops.onward(to.node as u16) else { continue };
                let label = Label { hops, delay: label.delay + delay, rate: label.rate.min(rate) };
                fronts[to.node as usize].offer(label);
            }
        }
    }
    fronts
}

impl Hops {
    /// With one more, where it does not come by a second time.
    fn onward(self, node: u16) -> Option<Self> {
        if self.nodes().contains(&node) { None } else { self.then(node) }
    }
}

/// What a [`Map`] comes to: all paths to relays worth a thought. The work of a recomputation is here, and needs no
/// [`super::select::Chooser`]: it may be done beside the sessions, which go on with the former.
#[derive(Debug, Clone, Default)]
pub struct Fronts {
    down: Reached,
    up: Reached,
}

impl Fronts {
    /// Works them out.
    #[must_use]
    pub fn of(map: &Map, costs: &Costs, trust: &Trust) -> Self {
        Self {
            down: Reached::of(map, costs, trust, Direction::Down),
            up: Reached::of(map, costs, trust, Direction::Up),
        }
    }

    /// The paths to `node`, for data in one direction.
    pub(super) fn to(&self, node: u32, direction: Direction) -> impl Iterator<Item = &Label> {
        match direction {
            Direction::Down => self.down.to(node),
            Direction::Up => self.up.to(node),
        }
    }
}

#[cfg(test)]
mod tests;

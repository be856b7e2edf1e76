//! The paths that may be chosen: direct, and those of up to three relays that no other beats at everything.
//!
//! From this relay to every other, a few paths are kept: the *front* of those where none is both sooner there and faster,
//! with transfers of any size. It grows by one section a round, three rounds, so it takes about as long as there are
//! sections (a Bellman-Ford of three rounds, with several measures as in Martins, "On a multicriteria shortest path
//! problem", 1984). What lies behind, the last section to a target, is added per prefix when somebody goes there.

use std::fmt;

use crate::direction::Direction;

use super::known::Speed;
use super::map::{HERE, Map};
use super::model::Costs;
use super::trust::Trust;

/// Most relays of a path.
pub const MOST_RELAYS: usize = 3;

/// Paths kept to each relay, for each number of sections.
const KEPT: usize = 4;

/// A path that is faster by less than this is not worth a longer delay.
const NEARLY: f32 = 1.02;

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
    pub speed: Speed,
}

impl Label {
    const START: Self = Self { hops: Hops::DIRECT, delay: 0.0, speed: Speed::ENDLESS };

    /// None.
    const NONE: Self = Self { hops: Hops::DIRECT, delay: f32::INFINITY, speed: Speed::NONE };

    /// With one section more.
    fn after(&self, delay: f32, speed: Speed) -> Self {
        Self { hops: self.hops, delay: self.delay + delay, speed: self.speed.min(speed) }
    }
}

/// Labels of which none beats another. Places without one have an endless delay: so all are always compared, and at once.
#[derive(Debug, Clone, Copy)]
struct Front {
    delay: [f32; KEPT],
    medium: [f32; KEPT],
    large: [f32; KEPT],
    hops: [Hops; KEPT],
}

impl Front {
    const EMPTY: Self =
        Self { delay: [f32::INFINITY; KEPT], medium: [0.0; KEPT], large: [0.0; KEPT], hops: [Hops::DIRECT; KEPT] };

    fn label(&self, at: usize) -> Label {
        let speed = Speed { medium: self.medium[at], large: self.large[at] };
        Label { hops: self.hops[at], delay: self.delay[at], speed }
    }

    fn set(&mut self, at: usize, label: &Label) {
        (self.delay[at], self.hops[at]) = (label.delay, label.hops);
        (self.medium[at], self.large[at]) = (label.speed.medium, label.speed.large);
    }

    fn labels(&self) -> impl Iterator<Item = Label> {
        (0..KEPT).filter(|at| self.delay[*at].is_finite()).map(|at| self.label(at))
    }

    /// Whether a label here is as good at everything, or so nearly that it does not matter.
    fn beats(&self, label: &Label) -> bool {
        let (medium, large) = (label.speed.medium / NEARLY, label.speed.large / NEARLY);
        let beats =
            |at: usize| (self.delay[at] <= label.delay) & (self.medium[at] >= medium) & (self.large[at] >= large);
        (0..KEPT).fold(false, |any, at| any | beats(at))
    }

    /// What a path would be that were as good as the best here at everything: nothing here goes where it is beaten.
    fn ideal(&self) -> Label {
        let best = |one: Label, other: Label| Label {
            hops: one.hops,
            delay: one.delay.min(other.delay),
            speed: one.speed.max(other.speed),
        };
        self.labels().fold(Label::NONE, best)
    }

    /// Puts a label in that none here beats; those that it beats go.
    fn put(&mut self, label: &Label) {
        let mut alone = Self::EMPTY;
        alone.set(0, label);
        for at in 0..KEPT {
            if alone.beats(&self.label(at)) {
                self.set(at, &Label::NONE);
            }
        }
        let free = self.delay.iter().position(|delay| delay.is_infinite());
        self.set(free.unwrap_or_else(|| self.least_missed()), label);
    }

    /// Of a full front, the one that is the best at nothing.
    fn least_missed(&self) -> usize {
        let best = |of: &[f32; KEPT]| {
            let places = of.iter().enumerate();
            places.max_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(at, _)| at)
        };
        let best = [best(&self.delay.map(|delay| -delay)), best(&self.medium), best(&self.large)];
        (0..KEPT).find(|at| !best.contains(at)).unwrap_or(0)
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
        start[HERE as usize].put(&Label::START);
        let mut reached = Self { rounds: vec![start] };
        for _ in 0..MOST_RELAYS {
            let further = reached.further(map, costs, trust, direction);
            reached.rounds.push(further);
        }
        reached.rounds.remove(0);
        reached
    }

    /// One section more.
    fn further(&self, map: &Map, costs: &Costs, trust: &Trust, direction: Direction) -> Vec<Front> {
        let mut fronts = vec![Front::EMPTY; map.nodes()];
        let hop = costs.hop.as_secs_f32();
        let before = self.rounds.last().map_or(&[][..], Vec::as_slice);
        for (from, front) in (0..).zip(before) {
            let labels: Vec<Label> = front.labels().collect();
            if labels.is_empty() {
                continue;
            }
            let (ideal, reporter) = (front.ideal(), trust.of(from) as f32);
            for to in map.row(from) {
                let section = to.both.toward(direction);
                if !section.is_known() || to.node == HERE {
                    continue;
                }
                let believed = if section.is_own() { 1.0 } else { reporter };
                let (delay, speed) = (section.delay() / believed + hop, section.speed().times(believed));
                let there = &mut fronts[to.node as usize];
                if self.is_beaten(&ideal.after(delay, speed), to.node, there) {
                    continue;
                }
                for label in labels.iter().map(|label| label.after(delay, speed)) {
                    if !self.is_beaten(&label, to.node, there)
                        && let Some(hops) = label.hops.onward(to.node as u16)
                    {
                        there.put(&Label { hops, ..label });
                    }
                }
            }
        }
        fronts
    }

    /// Whether a path to `node` is as good that is in `front`, or shorter.
    fn is_beaten(&self, label: &Label, node: u32, front: &Front) -> bool {
        front.beats(label) || self.rounds[1..].iter().any(|round| round[node as usize].beats(label))
    }

    fn to(&self, node: u32) -> impl Iterator<Item = Label> {
        self.rounds.iter().filter_map(move |round| round.get(node as usize)).flat_map(Front::labels)
    }
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
    pub(super) fn to(&self, node: u32, direction: Direction) -> impl Iterator<Item = Label> {
        match direction {
            Direction::Down => self.down.to(node),
            Direction::Up => self.up.to(node),
        }
    }
}

#[cfg(test)]
mod tests;

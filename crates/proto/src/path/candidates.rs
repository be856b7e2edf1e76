//! Candidate paths: direct, and the paths of up to three relays that no other path dominates.
//!
//! From this relay to every other relay, a few paths are kept: the Pareto *front*, of which no path is worse than
//! another in both delay and throughput, for transfers of any size. The front grows by one section in each of three
//! rounds, so the cost is proportional to the number of sections (a Bellman-Ford of three rounds with several measures,
//! as in Martins, "On a multicriteria shortest path problem", 1984). The last section, to a target, is added when a
//! session to its prefix begins.

use std::fmt;

use crate::direction::Direction;

use super::map::{NetworkMap, THIS_RELAY};
use super::map_entry::Throughput;
use super::model::RelayCosts;
use super::trust::Trust;

/// Maximum number of relays in a path.
pub const MAX_RELAYS: usize = 3;

/// Number of paths kept to each relay, for each number of sections.
const FRONT_SIZE: usize = 4;

/// Smallest factor of throughput that is worth a longer delay.
const THROUGHPUT_TOLERANCE: f32 = 1.02;

/// A candidate path: the numbers of its relays in the [`NetworkMap`], in the order of dialling; empty for direct.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Candidate {
    /// Numbers of at most [`MAX_RELAYS`] relays.
    pub relays: Vec<u32>,
}

impl Candidate {
    /// The path without relays.
    #[must_use]
    pub const fn direct() -> Self {
        Self { relays: Vec::new() }
    }

    /// Whether the path has no relays.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.relays.is_empty()
    }

    /// The name of the path: `direct`, `osaka`, `fukuoka > osaka`.
    #[must_use]
    pub fn name(&self, map: &NetworkMap) -> String {
        if self.is_direct() {
            return "direct".to_owned();
        }
        self.relays.iter().map(|relay| map.name(*relay)).collect::<Vec<_>>().join(" > ")
    }
}

/// The relays of a candidate in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Hops {
    nodes: [u16; MAX_RELAYS],
    count: u16,
}

impl Hops {
    pub const DIRECT: Self = Self { nodes: [0; MAX_RELAYS], count: 0 };

    /// The relays of a candidate; `None` for more than [`MAX_RELAYS`] or for a number above `u16::MAX`.
    pub fn from_candidate(candidate: &Candidate) -> Option<Self> {
        let mut hops = Self::DIRECT;
        for relay in &candidate.relays {
            hops = hops.push(u16::try_from(*relay).ok()?)?;
        }
        Some(hops)
    }

    fn push(mut self, node: u16) -> Option<Self> {
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

    pub fn to_candidate(self) -> Candidate {
        Candidate { relays: self.nodes().iter().map(|node| u32::from(*node)).collect() }
    }
}

impl fmt::Debug for Hops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.nodes().fmt(f)
    }
}

/// A path to a relay, with its delay and throughput.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub hops: Hops,
    /// The sum of the delays of the sections and relays, in seconds.
    pub delay: f32,
    pub throughput: Throughput,
}

impl Label {
    const START: Self = Self { hops: Hops::DIRECT, delay: 0.0, throughput: Throughput::UNLIMITED };

    /// The label of an unused slot.
    const NONE: Self = Self { hops: Hops::DIRECT, delay: f32::INFINITY, throughput: Throughput::NONE };

    /// This path with one more section. The hops are unchanged; the caller sets them.
    fn extend(&self, delay: f32, throughput: Throughput) -> Self {
        Self { hops: self.hops, delay: self.delay + delay, throughput: self.throughput.min(throughput) }
    }
}

/// Labels of which none dominates another. Unused slots have an infinite delay, so that comparisons cover all slots
/// without a branch.
#[derive(Debug, Clone, Copy)]
struct Front {
    delay: [f32; FRONT_SIZE],
    medium: [f32; FRONT_SIZE],
    large: [f32; FRONT_SIZE],
    hops: [Hops; FRONT_SIZE],
}

impl Front {
    const EMPTY: Self = Self {
        delay: [f32::INFINITY; FRONT_SIZE],
        medium: [0.0; FRONT_SIZE],
        large: [0.0; FRONT_SIZE],
        hops: [Hops::DIRECT; FRONT_SIZE],
    };

    fn label(&self, at: usize) -> Label {
        let speed = Throughput { medium: self.medium[at], large: self.large[at] };
        Label { hops: self.hops[at], delay: self.delay[at], throughput: speed }
    }

    fn set(&mut self, at: usize, label: &Label) {
        (self.delay[at], self.hops[at]) = (label.delay, label.hops);
        (self.medium[at], self.large[at]) = (label.throughput.medium, label.throughput.large);
    }

    fn labels(&self) -> impl Iterator<Item = Label> {
        (0..FRONT_SIZE).filter(|at| self.delay[*at].is_finite()).map(|at| self.label(at))
    }

    /// Whether a label of this front is at least as good by every measure, within the tolerance of throughput.
    fn dominates(&self, label: &Label) -> bool {
        let (medium, large) =
            (label.throughput.medium / THROUGHPUT_TOLERANCE, label.throughput.large / THROUGHPUT_TOLERANCE);
        let beats =
            |at: usize| (self.delay[at] <= label.delay) & (self.medium[at] >= medium) & (self.large[at] >= large);
        (0..FRONT_SIZE).fold(false, |any, at| any | beats(at))
    }

    /// A label that is as good as each path of this front by every measure: each measure is the best of the front. A
    /// front is skipped if this label is dominated.
    fn ideal(&self) -> Label {
        let best = |one: Label, other: Label| Label {
            hops: one.hops,
            delay: one.delay.min(other.delay),
            throughput: one.throughput.max(other.throughput),
        };
        self.labels().fold(Label::NONE, best)
    }

    /// Inserts a label that this front does not dominate, and removes the labels that the new label dominates.
    fn insert(&mut self, label: &Label) {
        let mut label_front = Self::EMPTY;
        label_front.set(0, label);
        for at in 0..FRONT_SIZE {
            if label_front.dominates(&self.label(at)) {
                self.set(at, &Label::NONE);
            }
        }
        let free_slot = self.delay.iter().position(|delay| delay.is_infinite());
        self.set(free_slot.unwrap_or_else(|| self.least_useful()), label);
    }

    /// The slot of a full front that is best by no measure.
    fn least_useful(&self) -> usize {
        let best = |measures: &[f32; FRONT_SIZE]| {
            let slots = measures.iter().enumerate();
            slots.max_by(|one, other| one.1.total_cmp(other.1)).map_or(0, |(at, _)| at)
        };
        let best = [best(&self.delay.map(|delay| -delay)), best(&self.medium), best(&self.large)];
        (0..FRONT_SIZE).find(|at| !best.contains(at)).unwrap_or(0)
    }
}

/// The paths from this relay to all other relays that may be part of a candidate, for data in one direction.
#[derive(Debug, Clone, Default)]
struct RelayFronts {
    /// The fronts for each number of sections, by relay.
    rounds: Vec<Vec<Front>>,
}

impl RelayFronts {
    fn compute(map: &NetworkMap, costs: &RelayCosts, trust: &Trust, direction: Direction) -> Self {
        let mut start = vec![Front::EMPTY; map.node_count()];
        start[THIS_RELAY as usize].insert(&Label::START);
        let mut fronts = Self { rounds: vec![start] };
        for _ in 0..MAX_RELAYS {
            let next_round = fronts.relax(map, costs, trust, direction);
            fronts.rounds.push(next_round);
        }
        fronts.rounds.remove(0);
        fronts
    }

    /// Computes the fronts with one more section.
    fn relax(&self, map: &NetworkMap, costs: &RelayCosts, trust: &Trust, direction: Direction) -> Vec<Front> {
        let mut fronts = vec![Front::EMPTY; map.node_count()];
        let hop_delay = costs.hop_delay.as_secs_f32();
        let last_round = self.rounds.last().map_or(&[][..], Vec::as_slice);
        for (from, front) in (0..).zip(last_round) {
            let labels: Vec<Label> = front.labels().collect();
            if labels.is_empty() {
                continue;
            }
            let (ideal, reporter_trust) = (front.ideal(), trust.factor(from) as f32);
            for edge in map.sections_from(from) {
                let section = edge.both.get(direction);
                if !section.is_known() || edge.node == THIS_RELAY {
                    continue;
                }
                let section_trust = if section.is_own() { 1.0 } else { reporter_trust };
                let (delay, throughput) =
                    (section.delay() / section_trust + hop_delay, section.throughput().scaled(section_trust));
                let target_front = &mut fronts[edge.node as usize];
                if self.is_dominated(&ideal.extend(delay, throughput), edge.node, target_front) {
                    continue;
                }
                for label in labels.iter().map(|label| label.extend(delay, throughput)) {
                    if !self.is_dominated(&label, edge.node, target_front)
                        && let Some(hops) = label.hops.push_unvisited(edge.node as u16)
                    {
                        target_front.insert(&Label { hops, ..label });
                    }
                }
            }
        }
        fronts
    }

    /// Whether `front` or a round with fewer sections has a path to `node` that is at least as good.
    fn is_dominated(&self, label: &Label, node: u32, front: &Front) -> bool {
        front.dominates(label) || self.rounds[1..].iter().any(|round| round[node as usize].dominates(label))
    }

    fn labels_to(&self, node: u32) -> impl Iterator<Item = Label> {
        self.rounds.iter().filter_map(move |round| round.get(node as usize)).flat_map(Front::labels)
    }
}

impl Hops {
    /// The hops with one more relay; `None` if the path already contains the relay.
    fn push_unvisited(self, node: u16) -> Option<Self> {
        if self.nodes().contains(&node) { None } else { self.push(node) }
    }
}

/// The candidates of a [`NetworkMap`]: all non-dominated paths to relays. They are computed without a
/// [`super::select::PathChooser`], so a recomputation can run in parallel with the sessions, which use the previous
/// fronts meanwhile.
#[derive(Debug, Clone, Default)]
pub struct ParetoFronts {
    down: RelayFronts,
    up: RelayFronts,
}

impl ParetoFronts {
    /// Computes the fronts of both directions.
    #[must_use]
    pub fn compute(map: &NetworkMap, costs: &RelayCosts, trust: &Trust) -> Self {
        Self {
            down: RelayFronts::compute(map, costs, trust, Direction::Down),
            up: RelayFronts::compute(map, costs, trust, Direction::Up),
        }
    }

    /// The paths to `node`, for data in one direction.
    pub(super) fn labels_to(&self, node: u32, direction: Direction) -> impl Iterator<Item = Label> {
        match direction {
            Direction::Down => self.down.labels_to(node),
            Direction::Up => self.up.labels_to(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm;
    use crate::key::PublicKey;
    use crate::path::map::MapEntry;
    use crate::path::model::{CongestionControl, Connection, SectionModel};
    use std::time::Duration;

    fn key(number: u32) -> PublicKey {
        let mut key = [7; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        PublicKey(key)
    }

    /// A map of `nodes` relays that has about two thirds of the sections between them; determined by `seed`.
    fn random(nodes: u32, seed: u64) -> NetworkMap {
        let mut map = NetworkMap::new(key(0), "here");
        for node in 1..nodes {
            map.add_node(key(node), &format!("r{node}"));
        }
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        for (number, (from, to)) in (0..).zip(pairs) {
            let bits = aqm::random_bits(seed, number);
            if bits.is_multiple_of(3) {
                continue;
            }
            let section = SectionModel {
                rtt: Duration::from_millis(1 + bits % 97),
                loss: (bits >> 16 & 0xff) as f64 * 1e-5,
                window: Some(1 << 20),
                line_rate: Some(1e6 + (bits >> 32 & 0xffff) as f64 * 1e3),
                congestion: CongestionControl::Cubic,
                mss: 1448,
                connection: Connection::ready_if(bits & 1 << 20 == 0),
            };
            map.set_section(
                from,
                to,
                Direction::Down,
                &MapEntry { section, confidence: 1.0, is_own: from == THIS_RELAY },
            );
        }
        map
    }

    /// Every simple path of one to three relays: its relays, delay and rate, by exhaustive search.
    fn all(map: &NetworkMap, costs: &RelayCosts) -> Vec<Label> {
        let nodes = u16::try_from(map.node_count()).unwrap();
        let mut found: Vec<Label> = Vec::new();
        let mut begun = vec![Label::START];
        for _ in 0..MAX_RELAYS {
            let longer = |label: &Label| {
                let label = *label;
                let from = label.hops.nodes().last().map_or(THIS_RELAY, |node| u32::from(*node));
                (1..nodes).filter(move |to| !label.hops.nodes().contains(to)).filter_map(move |to| {
                    let known = map.section(from, to.into(), Direction::Down)?;
                    let round_trips = if known.section.connection.is_ready() { 1.0 } else { 2.0 };
                    let delay = known.section.rtt.as_secs_f32() * round_trips + costs.hop_delay.as_secs_f32();
                    let speed = label.throughput.min(
                        map.sections_from(from).iter().find(|row| row.node == u32::from(to))?.both.down.throughput(),
                    );
                    Some(Label { hops: label.hops.push(to)?, delay: label.delay + delay, throughput: speed })
                })
            };
            begun = begun.iter().flat_map(longer).collect();
            found.extend(&begun);
        }
        found
    }

    #[test]
    fn paths_of_least_delay_and_most_throughput_are_kept() {
        let costs = RelayCosts::default();
        for seed in 0..60 {
            let map = random(4 + u32::try_from(seed % 5).unwrap(), seed);
            let fronts = ParetoFronts::compute(&map, &costs, &Trust::default());
            let all = all(&map, &costs);
            for node in 1..u32::try_from(map.node_count()).unwrap() {
                let to = |label: &&Label| label.hops.nodes().last().is_some_and(|last| u32::from(*last) == node);
                let kept: Vec<Label> = fronts.labels_to(node, Direction::Down).collect();
                let measures: [fn(&Label) -> f32; 3] = [|l| -l.delay, |l| l.throughput.medium, |l| l.throughput.large];
                for measure in measures {
                    let best = all.iter().filter(to).map(measure).max_by(f32::total_cmp);
                    let found = kept.iter().map(measure).max_by(f32::total_cmp);
                    assert!(near(best, found), "seed {seed}, to {node}: {best:?} and {found:?}, {kept:?}");
                }
            }
        }
    }

    /// Whether two values are equal within 7 %: each of three rounds may lose an insignificant difference.
    fn near(one: Option<f32>, other: Option<f32>) -> bool {
        match (one, other) {
            (Some(one), Some(other)) => (one - other).abs() <= 0.07 * one.abs(),
            (one, other) => one == other,
        }
    }

    #[test]
    fn kept_paths_are_simple_and_end_at_their_relay() {
        let map = random(9, 3);
        let fronts = ParetoFronts::compute(&map, &RelayCosts::default(), &Trust::default());
        for node in 0..9 {
            for label in fronts.labels_to(node, Direction::Down) {
                let mut nodes = label.hops.nodes().to_vec();
                assert_eq!(nodes.last().copied().map(u32::from), Some(node), "{label:?}");
                nodes.sort_unstable();
                nodes.dedup();
                assert_eq!(nodes.len(), label.hops.nodes().len(), "repeated relay: {label:?}");
                assert!(!nodes.contains(&0), "through this relay: {label:?}");
            }
            assert_eq!(fronts.labels_to(node, Direction::Up).count(), 0, "nothing is known of that direction");
        }
        assert_eq!(fronts.labels_to(0, Direction::Down).count() + fronts.labels_to(99, Direction::Down).count(), 0);
    }

    #[test]
    fn distrusted_relay_is_part_of_fewer_kept_paths() {
        let map = random(8, 5);
        let costs = RelayCosts::default();
        let mut trust = Trust::default();
        let through = |trust: &Trust| {
            let fronts = ParetoFronts::compute(&map, &costs, trust);
            let labels: Vec<Label> =
                (1..8).flat_map(|node| fronts.labels_to(node, Direction::Down).collect::<Vec<_>>()).collect();
            labels.iter().filter(|label| label.hops.nodes().len() > 1 && label.hops.nodes()[0] == 2).count()
        };
        let before = through(&trust);
        for _ in 0..50 {
            trust.record(&[2], 1, 3.0);
        }
        assert!(through(&trust) < before, "{} of {before}", through(&trust));
    }

    #[test]
    fn candidate_has_a_name_and_converts_to_hops_and_back() {
        let map = random(4, 1);
        let candidate = Candidate { relays: vec![3, 1, 2] };
        assert_eq!(candidate.name(&map), "r3 > r1 > r2");
        assert_eq!(Candidate::direct().name(&map), "direct");
        assert_eq!(Hops::from_candidate(&candidate).map(Hops::to_candidate), Some(candidate));
        assert_eq!(Hops::from_candidate(&Candidate { relays: vec![1, 2, 3, 4] }), None, "too many relays");
        assert_eq!(Hops::from_candidate(&Candidate { relays: vec![u32::MAX] }), None, "no such relay");
    }
}

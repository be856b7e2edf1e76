//! The network map: relays by number, targets by prefix, and the figures of the sections between them.
//!
//! A map is a snapshot: it is built from this relay's measurements and the reports of other relays, and installed in
//! the [`super::select::PathChooser`] as a whole. The number of entries is bounded, also for hostile reports.

use std::collections::HashMap;

use crate::direction::Direction;
use crate::key::PublicKey;

use super::bounded::BoundedMap;
use super::map_entry::{BothDirections, PackedEntry};
use super::prefix::Prefix;

pub use super::map_entry::MapEntry;

/// The number of this relay in every map.
pub const THIS_RELAY: u32 = 0;

/// Maximum number of relays in a map, with about a million sections between them.
pub const MAX_NODES: usize = 1024;

/// Maximum number of prefixes in a map. At the limit, the prefixes that were set longest ago are dropped first.
pub const MAX_PREFIXES: usize = 1 << 17;

/// Maximum number of last sections to one prefix: those of the nearest relays, and this relay's own.
pub const MAX_LAST_SECTIONS: usize = 16;

/// The known relays, and the figures of the sections between them and to the targets.
///
/// Numbers of relays are permanent: a newer map of a relay is made from a clone of the older map, or with
/// [`NetworkMap::empty_like`]. If the numbers change, a chooser drops its history.
#[derive(Debug, Clone)]
pub struct NetworkMap {
    nodes: Vec<Node>,
    numbers: HashMap<PublicKey, u32>,
    /// By dialling node, in the order of dialled nodes.
    sections: Vec<Vec<Edge>>,
    last_sections: BoundedMap<Prefix, Vec<Edge>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    key: PublicKey,
    name: Box<str>,
}

/// A section to relay `node`, or a last section from `node`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub node: u32,
    pub both: BothDirections,
}

impl BothDirections {
    pub(super) const fn get(&self, direction: Direction) -> &PackedEntry {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }

    const fn get_mut(&mut self, direction: Direction) -> &mut PackedEntry {
        match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        }
    }
}

impl NetworkMap {
    /// A map of this relay only, with number [`THIS_RELAY`].
    #[must_use]
    pub fn new(key: PublicKey, name: &str) -> Self {
        let node = Node { key, name: name.into() };
        Self {
            nodes: vec![node],
            numbers: HashMap::from([(key, THIS_RELAY)]),
            sections: vec![Vec::new()],
            last_sections: BoundedMap::new(MAX_PREFIXES),
        }
    }

    /// A map with the relays of `other` under their numbers, without sections.
    #[must_use]
    pub fn empty_like(other: &Self) -> Self {
        Self {
            nodes: other.nodes.clone(),
            numbers: other.numbers.clone(),
            sections: vec![Vec::new(); other.nodes.len()],
            last_sections: BoundedMap::new(MAX_PREFIXES),
        }
    }

    /// The number of a relay. A new relay is added; its name is set or updated. `None` at the limit of [`MAX_NODES`].
    pub fn add_node(&mut self, key: PublicKey, name: &str) -> Option<u32> {
        if let Some(number) = self.find(&key) {
            if self.name(number) != name {
                self.nodes[number as usize].name = name.into();
            }
            return Some(number);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let number = u32::try_from(self.nodes.len()).ok()?;
        self.nodes.push(Node { key, name: name.into() });
        self.numbers.insert(key, number);
        self.sections.push(Vec::new());
        Some(number)
    }

    /// The number of the relay with this key.
    #[must_use]
    pub fn find(&self, key: &PublicKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The key of the relay with this number.
    #[must_use]
    pub fn key(&self, node: u32) -> Option<PublicKey> {
        self.nodes.get(node as usize).map(|node| node.key)
    }

    /// The name of a relay; `?` for an unknown number.
    #[must_use]
    pub fn name(&self, node: u32) -> &str {
        self.nodes.get(node as usize).map_or("?", |node| &node.name)
    }

    /// The number of relays, this one included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of sections between relays with an estimate.
    #[must_use]
    pub fn section_count(&self) -> usize {
        self.sections.iter().map(Vec::len).sum()
    }

    /// The figures of the section that `from` dials to `to`, for data in one direction.
    #[must_use]
    pub fn section(&self, from: u32, to: u32, direction: Direction) -> Option<MapEntry> {
        let row = self.sections.get(from as usize)?;
        let at = row.binary_search_by_key(&to, |edge| edge.node).ok()?;
        row[at].both.get(direction).unpack()
    }

    /// Sets the figures. Sections of unknown relays, and of a relay to itself, are ignored.
    pub fn set_section(&mut self, from: u32, to: u32, direction: Direction, entry: &MapEntry) {
        let is_valid = (to as usize) < self.nodes.len() && from != to;
        let Some(row) = self.sections.get_mut(from as usize).filter(|_| is_valid) else { return };
        let at = row.binary_search_by_key(&to, |edge| edge.node).unwrap_or_else(|at| {
            row.insert(at, Edge { node: to, both: BothDirections::UNKNOWN });
            at
        });
        *row[at].both.get_mut(direction) = entry.into();
    }

    /// The figures of the last section from `node` to the targets of `prefix`, for data in one direction.
    #[must_use]
    pub fn last_section(&self, node: u32, prefix: Prefix, direction: Direction) -> Option<MapEntry> {
        let edge = self.last_sections(prefix).iter().find(|edge| edge.node == node)?;
        edge.both.get(direction).unpack()
    }

    /// Sets the estimate of a last section. Above [`MAX_LAST_SECTIONS`] the farthest is dropped, never this relay's
    /// own.
    pub fn set_last_section(&mut self, node: u32, prefix: Prefix, direction: Direction, entry: &MapEntry) {
        if node as usize >= self.nodes.len() {
            return;
        }
        let edges = self.last_sections.get_or_insert_with(prefix, Vec::new);
        match edges.iter_mut().find(|edge| edge.node == node) {
            Some(edge) => *edge.both.get_mut(direction) = entry.into(),
            None => {
                let mut both = BothDirections::UNKNOWN;
                *both.get_mut(direction) = entry.into();
                edges.reserve_exact(1);
                edges.push(Edge { node, both });
            }
        }
        if edges.len() > MAX_LAST_SECTIONS {
            drop_farthest(edges);
        }
    }

    /// Whether `other` has all relays of this map under their numbers; `other` may have more.
    pub(super) fn is_prefix_of(&self, other: &Self) -> bool {
        let keys = |map: &Self| map.nodes.iter().map(|node| node.key).collect::<Vec<_>>();
        keys(other).starts_with(&keys(self))
    }

    pub(super) fn sections_from(&self, from: u32) -> &[Edge] {
        self.sections.get(from as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn last_sections(&self, prefix: Prefix) -> &[Edge] {
        self.last_sections.peek(&prefix).map_or(&[], Vec::as_slice)
    }
}

fn drop_farthest(edges: &mut Vec<Edge>) {
    let delay = |edge: &Edge| edge.both.down.delay().max(edge.both.up.delay());
    let others = edges.iter().enumerate().filter(|(_, edge)| edge.node != THIS_RELAY);
    let farthest = others.max_by(|(_, one), (_, other)| delay(one).total_cmp(&delay(other))).map(|(at, _)| at);
    if let Some(at) = farthest {
        edges.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;
    use crate::path::model::{CongestionControl, Connection, SectionModel};

    fn key(number: usize) -> PublicKey {
        let mut key = [5; 32];
        key[..8].copy_from_slice(&number.to_be_bytes());
        PublicKey(key)
    }

    fn prefix(number: usize) -> Prefix {
        let number = u32::try_from(number).unwrap() << 8;
        Prefix::from(IpAddr::from(number.to_be_bytes()))
    }

    fn known(millis: u64) -> MapEntry {
        let section = SectionModel {
            rtt: Duration::from_millis(millis),
            loss: 0.0,
            window: None,
            line_rate: None,
            congestion: CongestionControl::Cubic,
            mss: 1448,
            connection: Connection::Ready,
        };
        MapEntry { section, confidence: 1.0, is_own: false }
    }

    fn millis(known: Option<MapEntry>) -> Option<u128> {
        known.map(|known| known.section.rtt.as_millis())
    }

    fn map(nodes: usize) -> NetworkMap {
        let mut map = NetworkMap::new(key(0), "here");
        for number in 1..nodes {
            map.add_node(key(number), "there");
        }
        map
    }

    #[test]
    fn relays_keep_their_numbers() {
        let mut map = map(4);
        assert_eq!(map.add_node(key(2), "osaka"), Some(2));
        assert_eq!((map.name(2), map.key(2), map.find(&key(2))), ("osaka", Some(key(2)), Some(2)));
        assert_eq!((map.name(9), map.key(9), map.find(&key(9))), ("?", None, None));
        let mut newer = NetworkMap::empty_like(&map);
        newer.add_node(key(4), "new");
        assert!(map.is_prefix_of(&newer) && !newer.is_prefix_of(&map));
        assert!(!map.is_prefix_of(&NetworkMap::new(key(1), "another")));
    }

    #[test]
    fn directions_of_a_section_are_stored_separately() {
        let mut map = map(3);
        map.set_section(0, 1, Direction::Down, &known(10));
        map.set_section(0, 1, Direction::Up, &known(20));
        map.set_section(1, 0, Direction::Down, &known(30));
        assert_eq!(millis(map.section(0, 1, Direction::Down)), Some(10));
        assert_eq!(millis(map.section(0, 1, Direction::Up)), Some(20));
        assert_eq!(millis(map.section(1, 0, Direction::Down)), Some(30));
        assert_eq!(map.section(1, 0, Direction::Up), None);
    }

    #[test]
    fn impossible_sections_are_not_stored() {
        let mut map = map(2);
        map.set_section(1, 1, Direction::Down, &known(1));
        map.set_section(0, 2, Direction::Down, &known(1));
        map.set_section(7, 0, Direction::Down, &known(1));
        map.set_last_section(2, prefix(1), Direction::Down, &known(1));
        assert!(
            map.sections_from(0).is_empty()
                && map.sections_from(1).is_empty()
                && map.last_sections(prefix(1)).is_empty()
        );
    }

    #[test]
    fn nearest_relays_and_this_relay_are_kept_for_a_prefix() {
        let mut map = map(40);
        map.set_last_section(0, prefix(1), Direction::Down, &known(500));
        for node in (1..40).rev() {
            map.set_last_section(node, prefix(1), Direction::Down, &known(node.into()));
        }
        assert_eq!(map.last_sections(prefix(1)).len(), MAX_LAST_SECTIONS);
        assert_eq!(millis(map.last_section(0, prefix(1), Direction::Down)), Some(500));
        assert_eq!(millis(map.last_section(1, prefix(1), Direction::Down)), Some(1));
        assert_eq!(map.last_section(39, prefix(1), Direction::Down), None);
    }

    #[test]
    fn numbers_of_nodes_and_prefixes_are_bounded() {
        let mut map = map(MAX_NODES + 10);
        assert_eq!((map.node_count(), map.add_node(key(MAX_NODES + 1), "one more")), (MAX_NODES, None));
        for number in 0..MAX_PREFIXES + 1000 {
            map.set_last_section(0, prefix(number), Direction::Down, &known(1));
        }
        assert!(map.last_sections.len() <= MAX_PREFIXES, "{}", map.last_sections.len());
        assert!(map.last_section(0, prefix(MAX_PREFIXES + 999), Direction::Down).is_some(), "the newest");
    }
}

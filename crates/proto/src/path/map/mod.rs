//! Who is there, and what is known of the sections between: relays by number, targets by prefix.
//!
//! A map is a picture of one moment. It is made apart, from what a relay has measured and what others have told, and
//! handed to the [`super::select::PathChooser`] as a whole. Everything in it is bounded, whoever fills it.

use std::collections::HashMap;

use crate::direction::Direction;
use crate::key::PublicKey;

use super::bounded::BoundedMap;
use super::known::{BothDirections, PackedEntry};
use super::prefix::Prefix;

pub use super::known::MapEntry;

/// This relay's number.
pub const THIS_RELAY: u32 = 0;

/// Most relays of a map, and so about a million sections between them.
pub const MAX_NODES: usize = 1024;

/// Most prefixes of a map: what was set longest ago goes.
pub const MAX_PREFIXES: usize = 1 << 17;

/// Most last sections to one prefix: the relays nearest to it, and this one.
pub const MAX_LAST_SECTIONS: usize = 16;

/// The relays that one knows of, and what is known of the sections between them and to the targets.
///
/// Numbers of relays are given once and stay: a newer map of the same relay is made from a clone of the older one, or
/// with [`NetworkMap::empty_like`] it. Where they do not stay a chooser forgets what it has experienced.
#[derive(Debug, Clone)]
pub struct NetworkMap {
    nodes: Vec<Node>,
    numbers: HashMap<PublicKey, u32>,
    /// By who dials, in the order of who is dialled.
    sections: Vec<Vec<Edge>>,
    last_sections: BoundedMap<Prefix, Vec<Edge>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    key: PublicKey,
    name: Box<str>,
}

/// A section to or, where it is a last one, from this relay.
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
    /// A map of this relay only, which is number [`THIS_RELAY`].
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

    /// A map with the relays of `other`, by the same numbers, and nothing known.
    #[must_use]
    pub fn empty_like(other: &Self) -> Self {
        Self {
            nodes: other.nodes.clone(),
            numbers: other.numbers.clone(),
            sections: vec![Vec::new(); other.nodes.len()],
            last_sections: BoundedMap::new(MAX_PREFIXES),
        }
    }

    /// The number of a relay, which is added when it is new and takes this name. None when there are [`MAX_NODES`].
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

    /// The number of a relay.
    #[must_use]
    pub fn find(&self, key: &PublicKey) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The key of a relay.
    #[must_use]
    pub fn key(&self, node: u32) -> Option<PublicKey> {
        self.nodes.get(node as usize).map(|node| node.key)
    }

    /// The name of a relay; `?` for one that is not there.
    #[must_use]
    pub fn name(&self, node: u32) -> &str {
        self.nodes.get(node as usize).map_or("?", |node| &node.name)
    }

    /// How many relays there are, this one included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// How many sections between relays something is known of.
    #[must_use]
    pub fn section_count(&self) -> usize {
        self.sections.iter().map(Vec::len).sum()
    }

    /// What is known of the section that `from` dials to `to`, for data in one direction.
    #[must_use]
    pub fn section(&self, from: u32, to: u32, direction: Direction) -> Option<MapEntry> {
        let row = self.sections.get(from as usize)?;
        let at = row.binary_search_by_key(&to, |to| to.node).ok()?;
        row[at].both.get(direction).unpack()
    }

    /// Sets it. Relays that are not there have no section, and nobody has one to itself.
    pub fn set_section(&mut self, from: u32, to: u32, direction: Direction, known: &MapEntry) {
        let there = (to as usize) < self.nodes.len() && from != to;
        let Some(row) = self.sections.get_mut(from as usize).filter(|_| there) else { return };
        let at = row.binary_search_by_key(&to, |to| to.node).unwrap_or_else(|at| {
            row.insert(at, Edge { node: to, both: BothDirections::UNKNOWN });
            at
        });
        *row[at].both.get_mut(direction) = known.into();
    }

    /// What is known of the last section from `node` to the targets of `prefix`, for data in one direction.
    #[must_use]
    pub fn last_section(&self, node: u32, prefix: Prefix, direction: Direction) -> Option<MapEntry> {
        let last = self.last_sections(prefix).iter().find(|last| last.node == node)?;
        last.both.get(direction).unpack()
    }

    /// Sets it. Of more than [`MAX_LAST_SECTIONS`] the farthest goes, never this relay's own.
    pub fn set_last_section(&mut self, node: u32, prefix: Prefix, direction: Direction, known: &MapEntry) {
        if node as usize >= self.nodes.len() {
            return;
        }
        let lasts = self.last_sections.get_or_insert_with(prefix, Vec::new);
        match lasts.iter_mut().find(|last| last.node == node) {
            Some(last) => *last.both.get_mut(direction) = known.into(),
            None => {
                let mut both = BothDirections::UNKNOWN;
                *both.get_mut(direction) = known.into();
                lasts.reserve_exact(1);
                lasts.push(Edge { node, both });
            }
        }
        if lasts.len() > MAX_LAST_SECTIONS {
            drop_farthest(lasts);
        }
    }

    /// Whether `other` has the same relays by the same numbers, and perhaps others besides.
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

fn drop_farthest(lasts: &mut Vec<Edge>) {
    let delay = |last: &Edge| last.both.down.delay().max(last.both.up.delay());
    let others = lasts.iter().enumerate().filter(|(_, last)| last.node != THIS_RELAY);
    let farthest = others.max_by(|(_, one), (_, other)| delay(one).total_cmp(&delay(other))).map(|(at, _)| at);
    if let Some(at) = farthest {
        lasts.swap_remove(at);
    }
}

#[cfg(test)]
mod tests;

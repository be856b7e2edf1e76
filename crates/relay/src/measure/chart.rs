//! The map for the chooser: of each section the best that is known of it, by whoever knows.
//!
//! Who sends knows loss and rate best, and who has measured most is right; but what this relay has measured itself goes
//! before everything that it was told.

use std::collections::HashMap;
use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::Bounded;
use ekiden_proto::path::estimate::Estimate;
use ekiden_proto::path::figures::Figures;
use ekiden_proto::path::hours::{Usual, expected};
use ekiden_proto::path::map::{HERE, Known, Map};
use ekiden_proto::path::model::Congestion;

use super::book::{Both, Pages, Way};
use super::{Book, Place};
use crate::config::{Config, Hop};

/// Our own estimate is taken from here on, however sure another relay is of its own.
const OWN: f64 = 0.5;

/// What is told never counts as more than this: who tells may be wrong, or lie.
const TOLD: f64 = 0.9;

/// The name of this relay on the map.
const NAME: &str = "here";

impl Book {
    /// What is known now of the sections between this relay, the relays of `config`, and the targets. Relays keep the
    /// numbers that they have in `before`. None where no relay is configured.
    #[must_use]
    pub fn map(&self, config: &Config, before: Option<&Map>) -> Option<Map> {
        let relays: Vec<(PublicKey, &Hop)> =
            config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &**hop))).collect();
        // Nobody chooses who is about to end.
        let relays = relays.into_iter().filter(|(key, _)| !config.draining.contains(key)).collect::<Vec<_>>();
        let own = config.relays.iter().find_map(|hop| hop.peering())?.own.public();
        let mut map = match before {
            Some(before) if before.key(HERE) == Some(own) => Map::like(before),
            _ => Map::new(own, NAME),
        };
        let nodes: Vec<Node> = relays
            .into_iter()
            .filter_map(|(key, hop)| {
                Some(Node { number: map.node(key, &hop.name)?, key, congestion: congestion_of(hop) })
            })
            .collect();
        let (now, pages) = (self.now(), self.pages());
        let chart = Chart { pages: &pages, here: own, now };
        let by_key: HashMap<_, _> = nodes.iter().map(|node| (node.key, node)).collect();
        for node in &nodes {
            chart.set_section((HERE, &own), node, &mut map);
            let told = pages.told.get(&node.key).into_iter().flat_map(Bounded::iter).filter(|(_, both)| both.dialled);
            for (place, _) in told {
                if let Place::Relay(key) = place
                    && let Some(to) = by_key.get(key)
                {
                    chart.set_section((node.number, &node.key), to, &mut map);
                }
            }
        }
        chart.set_last(&nodes, &mut map);
        Some(map)
    }
}

/// A relay on the map.
struct Node {
    number: u32,
    key: PublicKey,
    /// How the sections to it answer to loss, as far as our own settings tell.
    congestion: Congestion,
}

struct Chart<'a> {
    pages: &'a Pages,
    here: PublicKey,
    now: Duration,
}

impl Chart<'_> {
    /// Sets both directions of the section that somebody dials.
    fn set_section(&self, (from, dialler): (u32, &PublicKey), to: &Node, map: &mut Map) {
        for direction in [Direction::Down, Direction::Up] {
            if let Some(known) = self.section(dialler, &to.key, direction, to.congestion) {
                map.set_section(from, to.number, direction, &known);
            }
        }
    }

    /// What is known of the section that `dialler` dials to `relay`.
    fn section(
        &self,
        dialler: &PublicKey,
        relay: &PublicKey,
        direction: Direction,
        congestion: Congestion,
    ) -> Option<Known> {
        let (near, far) = (self.seen_by(dialler, Place::Relay(*relay)), self.seen_by(relay, Place::Relay(*dialler)));
        let rtt = [near, far].into_iter().flatten().find_map(|both| both.rtt());
        let ((sender, receiver), (at_sender, at_receiver)) = match direction {
            Direction::Down => ((relay, dialler), (far, near)),
            Direction::Up => ((dialler, relay), (near, far)),
        };
        let ends = [
            (sender, at_sender.map(|both| both.sending), Place::Relay(*receiver), Way::Sending),
            (receiver, at_receiver.map(|both| both.receiving), Place::Relay(*sender), Way::Receiving),
        ];
        best(ends.into_iter().filter_map(|(teller, estimate, place, way)| {
            let own = (*teller == self.here).then_some((place, way));
            self.known(&estimate.unwrap_or_default(), rtt, (congestion, true), own)
        }))
    }

    fn seen_by(&self, relay: &PublicKey, place: Place) -> Option<Both> {
        if *relay == self.here {
            self.pages.own.peek(&place).map(|entry| entry.both)
        } else {
            self.pages.told.get(relay)?.peek(&place).copied()
        }
    }

    fn set_last(&self, nodes: &[Node], map: &mut Map) {
        for (place, entry) in self.pages.own.iter() {
            self.set_one(HERE, *place, &entry.both, true, map);
        }
        let expected = self.pages.expected.now.keys().map(|(place, _)| place);
        for place in expected.filter(|place| self.pages.own.peek(place).is_none()) {
            self.set_one(HERE, *place, &Both::default(), true, map);
        }
        for node in nodes {
            let Some(told) = self.pages.told.get(&node.key) else { continue };
            for (place, both) in told.iter() {
                self.set_one(node.number, *place, both, false, map);
            }
        }
    }

    fn set_one(&self, node: u32, place: Place, both: &Both, own: bool, map: &mut Map) {
        let Place::Targets(prefix) = place else { return };
        let ways = [(Direction::Down, Way::Receiving, &both.receiving), (Direction::Up, Way::Sending, &both.sending)];
        for (direction, way, estimate) in ways {
            let own = own.then_some((place, way));
            if let Some(known) = self.known(estimate, both.rtt(), (Congestion::default(), false), own) {
                map.set_last(node, prefix, direction, &known);
            }
        }
    }

    /// What is to be expected of a section, of which this is known; `own` says which of ours it is.
    fn known(
        &self,
        estimate: &Estimate,
        rtt: Option<Duration>,
        (congestion, warm): (Congestion, bool),
        own: Option<(Place, Way)>,
    ) -> Option<Known> {
        let (figures, confidence) = match own {
            Some(own) => self.expected(estimate, own),
            None => (estimate.figures(), estimate.confidence(self.now) * TOLD),
        };
        let section = figures.section(figures.rtt.or(rtt)?, congestion, warm);
        Some(Known { section, confidence, own: own.is_some() })
    }

    /// What was measured, and what is usual at this hour.
    fn expected(&self, estimate: &Estimate, own: (Place, Way)) -> (Figures, f64) {
        let usual = &self.pages.expected;
        let (figures, confidence) = (estimate.figures(), estimate.confidence(self.now));
        let (Some(now), Some(since)) = (usual.now.get(&own), usual.since) else { return (figures, confidence) };
        let then: Option<&Usual> = if estimate.at() >= since { Some(now) } else { usual.before.get(&own) };
        expected(&figures, confidence, then, now)
    }
}

/// The one that goes before the others.
fn best(known: impl Iterator<Item = Known>) -> Option<Known> {
    let rank =
        |known: &Known| if known.own && known.confidence >= OWN { 1.0 + known.confidence } else { known.confidence };
    known.max_by(|one, other| rank(one).total_cmp(&rank(other)))
}

fn congestion_of(hop: &Hop) -> Congestion {
    hop.profile.congestion().map_or(Congestion::default(), |name| Congestion::of_name(&name.0))
}

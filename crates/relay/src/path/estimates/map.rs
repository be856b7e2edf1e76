//! The map for the path selector: for each section the best known estimate, and a view of the sections between
//! configured relays.
//!
//! The sender of a section measures loss and rate best, and the relay with the most samples is the most accurate; but
//! the measurements of this relay take precedence over reports.

use std::collections::HashMap;
use std::time::Duration;

use ekiden_proto::direction::Direction;
use ekiden_proto::key::PublicKey;
use ekiden_proto::path::bounded::BoundedMap;
use ekiden_proto::path::estimate::Estimate;
use ekiden_proto::path::figures::EstimateSnapshot;
use ekiden_proto::path::hours::{HourlyBaseline, forecast};
use ekiden_proto::path::map::{MapEntry, NetworkMap, THIS_RELAY};
use ekiden_proto::path::model::CongestionControl;
use serde::Serialize;

use super::store::{DuplexEstimate, EstimateDirection, EstimateTables, EstimateView};
use super::{EstimateStore, PeerId};
use crate::config::{Config, Hop};

/// Our own estimate is taken from here on, however sure another relay is of its own.
const MIN_OWN_CONFIDENCE: f64 = 0.5;

/// Upper bound of the confidence in a reported value: a reporting relay may be wrong, or lie.
const REPORTED_CONFIDENCE_FACTOR: f64 = 0.9;

/// The name of this relay on the map.
const OWN_NAME: &str = "here";

impl EstimateStore {
    /// The current map of the sections between this relay, the relays of `config`, and the targets. Relays keep their
    /// numbers of `before`. `None` when no relay is configured.
    #[must_use]
    pub fn map(&self, config: &Config, before: Option<&NetworkMap>) -> Option<NetworkMap> {
        let relays: Vec<(PublicKey, &Hop)> =
            config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &**hop))).collect();
        // A draining relay is not selected.
        let relays = relays.into_iter().filter(|(key, _)| !config.draining.contains(key)).collect::<Vec<_>>();
        let own = config.relays.iter().find_map(|hop| hop.peering())?.own_key.public_key();
        let mut map = match before {
            Some(before) if before.key(THIS_RELAY) == Some(own) => NetworkMap::empty_like(before),
            _ => NetworkMap::new(own, OWN_NAME),
        };
        let nodes: Vec<MapNode> = relays
            .into_iter()
            .filter_map(|(key, hop)| {
                Some(MapNode { number: map.add_node(key, &hop.name)?, key, congestion: congestion_of(hop) })
            })
            .collect();
        let (now, pages) = (self.now(), self.lock());
        let chart = MapBuilder { tables: &pages, own_key: own, now };
        let by_key: HashMap<_, _> = nodes.iter().map(|node| (node.key, node)).collect();
        for node in &nodes {
            chart.set_section(THIS_RELAY, &own, node, &mut map);
            let told =
                pages.reported.get(&node.key).into_iter().flat_map(BoundedMap::iter).filter(|(_, both)| both.dialled);
            for (place, _) in told {
                if let PeerId::Relay(key) = place
                    && let Some(to) = by_key.get(key)
                {
                    chart.set_section(node.number, &node.key, to, &mut map);
                }
            }
        }
        chart.set_last_hops(&nodes, &mut map);
        Some(map)
    }
}

/// A relay on the map.
struct MapNode {
    number: u32,
    key: PublicKey,
    /// How the sections to it answer to loss, as far as our own settings tell.
    congestion: CongestionControl,
}

struct MapBuilder<'a> {
    tables: &'a EstimateTables,
    own_key: PublicKey,
    now: Duration,
}

impl MapBuilder<'_> {
    /// Sets both directions of the section from a dialling node.
    fn set_section(&self, from: u32, dialler: &PublicKey, to: &MapNode, map: &mut NetworkMap) {
        for direction in [Direction::Down, Direction::Up] {
            if let Some(known) = self.section(dialler, &to.key, direction, to.congestion) {
                map.set_section(from, to.number, direction, &known);
            }
        }
    }

    /// The best known values of the section that `dialler` dials to `relay`.
    fn section(
        &self,
        dialler: &PublicKey,
        relay: &PublicKey,
        direction: Direction,
        congestion: CongestionControl,
    ) -> Option<MapEntry> {
        let (near, far) =
            (self.estimate_by(dialler, PeerId::Relay(*relay)), self.estimate_by(relay, PeerId::Relay(*dialler)));
        let rtt = [near, far].into_iter().flatten().find_map(|both| both.rtt());
        let ((sender, receiver), (at_sender, at_receiver)) = match direction {
            Direction::Down => ((relay, dialler), (far, near)),
            Direction::Up => ((dialler, relay), (near, far)),
        };
        let ends = [
            (sender, at_sender.map(|both| both.sending), PeerId::Relay(*receiver), EstimateDirection::Sending),
            (receiver, at_receiver.map(|both| both.receiving), PeerId::Relay(*sender), EstimateDirection::Receiving),
        ];
        most_trusted(ends.into_iter().filter_map(|(teller, estimate, place, way)| {
            let own = (*teller == self.own_key).then_some((place, way));
            self.known_section(&estimate.unwrap_or_default(), rtt, congestion, true, own)
        }))
    }

    fn estimate_by(&self, relay: &PublicKey, place: PeerId) -> Option<DuplexEstimate> {
        if *relay == self.own_key {
            self.tables.own.peek(&place).map(|entry| entry.estimate)
        } else {
            self.tables.reported.get(relay)?.peek(&place).copied()
        }
    }

    fn set_last_hops(&self, nodes: &[MapNode], map: &mut NetworkMap) {
        for (place, entry) in self.tables.own.iter() {
            self.set_last_hop(THIS_RELAY, *place, &entry.estimate, true, map);
        }
        let expected = self.tables.baselines.now.keys().map(|(place, _)| place);
        for place in expected.filter(|place| self.tables.own.peek(place).is_none()) {
            self.set_last_hop(THIS_RELAY, *place, &DuplexEstimate::default(), true, map);
        }
        for node in nodes {
            let Some(told) = self.tables.reported.get(&node.key) else { continue };
            for (place, both) in told.iter() {
                self.set_last_hop(node.number, *place, both, false, map);
            }
        }
    }

    fn set_last_hop(&self, node: u32, place: PeerId, both: &DuplexEstimate, own: bool, map: &mut NetworkMap) {
        let PeerId::Targets(prefix) = place else { return };
        let ways = [
            (Direction::Down, EstimateDirection::Receiving, &both.receiving),
            (Direction::Up, EstimateDirection::Sending, &both.sending),
        ];
        for (direction, way, estimate) in ways {
            let own = own.then_some((place, way));
            if let Some(known) = self.known_section(estimate, both.rtt(), CongestionControl::default(), false, own) {
                map.set_last_section(node, prefix, direction, &known);
            }
        }
    }

    /// The expected values of a section from its estimate; `own` identifies the estimate of this relay.
    fn known_section(
        &self,
        estimate: &Estimate,
        rtt: Option<Duration>,
        congestion: CongestionControl,
        is_ready: bool,
        own: Option<(PeerId, EstimateDirection)>,
    ) -> Option<MapEntry> {
        let (figures, confidence) = match own {
            Some(own) => self.with_baseline(estimate, own),
            None => (estimate.snapshot(), estimate.confidence(self.now) * REPORTED_CONFIDENCE_FACTOR),
        };
        let section = figures.to_model(figures.rtt.or(rtt)?, congestion, is_ready);
        Some(MapEntry { section, confidence, is_own: own.is_some() })
    }

    /// The measured values, adjusted by the usual values of this hour.
    fn with_baseline(&self, estimate: &Estimate, own: (PeerId, EstimateDirection)) -> (EstimateSnapshot, f64) {
        let usual = &self.tables.baselines;
        let (figures, confidence) = (estimate.snapshot(), estimate.confidence(self.now));
        let (Some(now), Some(since)) = (usual.now.get(&own), usual.current_since) else { return (figures, confidence) };
        let then: Option<&HourlyBaseline> =
            if estimate.updated_at() >= since { Some(now) } else { usual.previous.get(&own) };
        forecast(&figures, confidence, then, now)
    }
}

/// The one that goes before the others.
fn most_trusted(known: impl Iterator<Item = MapEntry>) -> Option<MapEntry> {
    let rank = |known: &MapEntry| {
        if known.is_own && known.confidence >= MIN_OWN_CONFIDENCE { 1.0 + known.confidence } else { known.confidence }
    };
    known.max_by(|one, other| rank(one).total_cmp(&rank(other)))
}

fn congestion_of(hop: &Hop) -> CongestionControl {
    hop.profile.congestion().map_or(CongestionControl::default(), |name| CongestionControl::from_name(&name.0))
}

/// Most relays of which this is told: each may have a section to each.
const MAX_RELAYS: usize = 32;

/// A section between relays.
#[derive(Debug, Clone, Serialize)]
pub struct RelaySectionView {
    /// The relay that dials; none for this one.
    pub from: Option<String>,
    /// The relay that it dials.
    pub to: String,
    /// Of data toward the other end.
    pub up: EstimateView,
    /// Of data from the other end.
    pub down: EstimateView,
}

impl EstimateStore {
    /// The sections from this relay to those of `config`, and between those, as far as they were measured.
    #[must_use]
    pub fn relay_sections(&self, config: &Config) -> Vec<RelaySectionView> {
        let keyed = config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &*hop.name)));
        let relays: Vec<(PublicKey, &str)> = keyed.take(MAX_RELAYS).collect();
        let (now, pages) = (self.now(), self.lock());
        let view = |from: Option<&str>, to: &str, both: &DuplexEstimate| RelaySectionView {
            from: from.map(str::to_owned),
            to: to.to_owned(),
            up: EstimateView::from_estimate(&both.sending, now),
            down: EstimateView::from_estimate(&both.receiving, now),
        };
        let mut sections = Vec::new();
        for (key, to) in &relays {
            let place = PeerId::Relay(*key);
            sections.extend(pages.own.peek(&place).map(|entry| view(None, to, &entry.estimate)));
            for (teller, from) in relays.iter().filter(|(teller, _)| teller != key) {
                let told = pages.reported.get(teller).and_then(|told| told.peek(&place));
                sections.extend(told.filter(|both| both.dialled).map(|both| view(Some(from), to, both)));
            }
        }
        sections
    }
}

//! The map for the path selector, with the best known estimate of each section, and a view of the sections between
//! configured relays.
//!
//! The sender on a section measures loss and rate best, and the relay with the most samples is the most accurate; but
//! confident measurements of this relay take precedence over reports.

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

/// Minimum confidence at which an estimate of this relay takes precedence over all reported estimates.
const MIN_OWN_CONFIDENCE: f64 = 0.5;

/// Factor for the confidence in a reported value: a report may be wrong or forged.
const REPORTED_CONFIDENCE_FACTOR: f64 = 0.9;

/// The name of this relay on the map.
const OWN_NAME: &str = "here";

impl EstimateStore {
    /// Returns the current map of the sections between this relay, the relays of `config`, and the targets. Relays keep
    /// their numbers from `previous`. `None` if no relay is configured.
    #[must_use]
    pub fn map(&self, config: &Config, previous: Option<&NetworkMap>) -> Option<NetworkMap> {
        let relays: Vec<(PublicKey, &Hop)> =
            config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &**hop))).collect();
        // A draining relay is not selected.
        let relays = relays.into_iter().filter(|(key, _)| !config.draining.contains(key)).collect::<Vec<_>>();
        let own = config.relays.iter().find_map(|hop| hop.peering())?.own_key.public_key();
        let mut map = match previous {
            Some(previous) if previous.key(THIS_RELAY) == Some(own) => NetworkMap::empty_like(previous),
            _ => NetworkMap::new(own, OWN_NAME),
        };
        let nodes: Vec<MapNode> = relays
            .into_iter()
            .filter_map(|(key, hop)| {
                Some(MapNode { number: map.add_node(key, &hop.name)?, key, congestion: congestion_of(hop) })
            })
            .collect();
        let (now, tables) = (self.now(), self.lock());
        let builder = MapBuilder { tables: &tables, own_key: own, now };
        let by_key: HashMap<_, _> = nodes.iter().map(|node| (node.key, node)).collect();
        for node in &nodes {
            builder.set_section(THIS_RELAY, &own, node, &mut map);
            let reported = tables
                .reported
                .get(&node.key)
                .into_iter()
                .flat_map(BoundedMap::iter)
                .filter(|(_, duplex)| duplex.dialled);
            for (peer_id, _) in reported {
                if let PeerId::Relay(key) = peer_id
                    && let Some(to) = by_key.get(key)
                {
                    builder.set_section(node.number, &node.key, to, &mut map);
                }
            }
        }
        builder.set_last_hops(&nodes, &mut map);
        Some(map)
    }
}

/// A relay on the map.
struct MapNode {
    number: u32,
    key: PublicKey,
    /// The response to loss on sections to the relay, according to the settings of this relay.
    congestion: CongestionControl,
}

struct MapBuilder<'a> {
    tables: &'a EstimateTables,
    own_key: PublicKey,
    now: Duration,
}

impl MapBuilder<'_> {
    /// Sets both directions of the section that `dialler` dials to `to`.
    fn set_section(&self, from: u32, dialler: &PublicKey, to: &MapNode, map: &mut NetworkMap) {
        for direction in [Direction::Down, Direction::Up] {
            if let Some(entry) = self.section(dialler, &to.key, direction, to.congestion) {
                map.set_section(from, to.number, direction, &entry);
            }
        }
    }

    /// Returns the best known values for one direction of the section that `dialler` dials to `relay`.
    fn section(
        &self,
        dialler: &PublicKey,
        relay: &PublicKey,
        direction: Direction,
        congestion: CongestionControl,
    ) -> Option<MapEntry> {
        let (by_dialler, by_relay) =
            (self.estimate_by(dialler, PeerId::Relay(*relay)), self.estimate_by(relay, PeerId::Relay(*dialler)));
        let rtt = [by_dialler, by_relay].into_iter().flatten().find_map(|duplex| duplex.rtt());
        let ((sender, receiver), (at_sender, at_receiver)) = match direction {
            Direction::Down => ((relay, dialler), (by_relay, by_dialler)),
            Direction::Up => ((dialler, relay), (by_dialler, by_relay)),
        };
        let ends = [
            (sender, at_sender.map(|duplex| duplex.sending), PeerId::Relay(*receiver), EstimateDirection::Sending),
            (
                receiver,
                at_receiver.map(|duplex| duplex.receiving),
                PeerId::Relay(*sender),
                EstimateDirection::Receiving,
            ),
        ];
        most_trusted(ends.into_iter().filter_map(|(reporter, estimate, peer_id, estimate_direction)| {
            let own = (*reporter == self.own_key).then_some((peer_id, estimate_direction));
            self.known_section(&estimate.unwrap_or_default(), rtt, congestion, true, own)
        }))
    }

    fn estimate_by(&self, relay: &PublicKey, peer_id: PeerId) -> Option<DuplexEstimate> {
        if *relay == self.own_key {
            self.tables.own.peek(&peer_id).map(|entry| entry.estimate)
        } else {
            self.tables.reported.get(relay)?.peek(&peer_id).copied()
        }
    }

    fn set_last_hops(&self, nodes: &[MapNode], map: &mut NetworkMap) {
        for (peer_id, entry) in self.tables.own.iter() {
            self.set_last_hop(THIS_RELAY, *peer_id, &entry.estimate, true, map);
        }
        let with_baseline = self.tables.baselines.now.keys().map(|(peer_id, _)| peer_id);
        for peer_id in with_baseline.filter(|peer_id| self.tables.own.peek(peer_id).is_none()) {
            self.set_last_hop(THIS_RELAY, *peer_id, &DuplexEstimate::default(), true, map);
        }
        for node in nodes {
            let Some(reported) = self.tables.reported.get(&node.key) else { continue };
            for (peer_id, duplex) in reported.iter() {
                self.set_last_hop(node.number, *peer_id, duplex, false, map);
            }
        }
    }

    fn set_last_hop(&self, node: u32, peer_id: PeerId, duplex: &DuplexEstimate, is_own: bool, map: &mut NetworkMap) {
        let PeerId::Targets(prefix) = peer_id else { return };
        let directions = [
            (Direction::Down, EstimateDirection::Receiving, &duplex.receiving),
            (Direction::Up, EstimateDirection::Sending, &duplex.sending),
        ];
        for (direction, estimate_direction, estimate) in directions {
            let own = is_own.then_some((peer_id, estimate_direction));
            if let Some(entry) = self.known_section(estimate, duplex.rtt(), CongestionControl::default(), false, own) {
                map.set_last_section(node, prefix, direction, &entry);
            }
        }
    }

    /// Returns the expected values of a section from its estimate; `own` identifies an estimate of this relay, and is
    /// `None` for a reported estimate.
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

    /// Returns the measured values and their confidence, adjusted by the usual values of the current hour.
    fn with_baseline(&self, estimate: &Estimate, own: (PeerId, EstimateDirection)) -> (EstimateSnapshot, f64) {
        let baselines = &self.tables.baselines;
        let (figures, confidence) = (estimate.snapshot(), estimate.confidence(self.now));
        let (Some(now), Some(since)) = (baselines.now.get(&own), baselines.current_since) else {
            return (figures, confidence);
        };
        let then: Option<&HourlyBaseline> =
            if estimate.updated_at() >= since { Some(now) } else { baselines.previous.get(&own) };
        forecast(&figures, confidence, then, now)
    }
}

/// Returns the entry with the highest confidence. An estimate of this relay with at least [`MIN_OWN_CONFIDENCE`] takes
/// precedence over all reported estimates.
fn most_trusted(entries: impl Iterator<Item = MapEntry>) -> Option<MapEntry> {
    let rank = |entry: &MapEntry| {
        if entry.is_own && entry.confidence >= MIN_OWN_CONFIDENCE { 1.0 + entry.confidence } else { entry.confidence }
    };
    entries.max_by(|one, other| rank(one).total_cmp(&rank(other)))
}

fn congestion_of(hop: &Hop) -> CongestionControl {
    hop.profile.congestion().map_or(CongestionControl::default(), |name| CongestionControl::from_name(&name.0))
}

/// Maximum number of relays whose sections are listed: each pair of relays may have a section.
const MAX_RELAYS: usize = 32;

/// A section between relays.
#[derive(Debug, Clone, Serialize)]
pub struct RelaySectionView {
    /// The relay that dials; `None` for this relay.
    pub from: Option<String>,
    /// The relay that is dialled.
    pub to: String,
    /// The direction from the dialling relay to the dialled relay.
    pub up: EstimateView,
    /// The direction from the dialled relay to the dialling relay.
    pub down: EstimateView,
}

impl EstimateStore {
    /// Returns the measured sections from this relay to the relays of `config`, and between these relays.
    #[must_use]
    pub fn relay_sections(&self, config: &Config) -> Vec<RelaySectionView> {
        let keyed = config.relays.iter().filter_map(|hop| Some((hop.peering()?.key, &*hop.name)));
        let relays: Vec<(PublicKey, &str)> = keyed.take(MAX_RELAYS).collect();
        let (now, tables) = (self.now(), self.lock());
        let view = |from: Option<&str>, to: &str, duplex: &DuplexEstimate| RelaySectionView {
            from: from.map(str::to_owned),
            to: to.to_owned(),
            up: EstimateView::from_estimate(&duplex.sending, now),
            down: EstimateView::from_estimate(&duplex.receiving, now),
        };
        let mut sections = Vec::new();
        for (key, to) in &relays {
            let peer_id = PeerId::Relay(*key);
            let mut add = |from: Option<&str>, duplex: Option<&DuplexEstimate>| {
                sections.extend(duplex.filter(|duplex| duplex.dialled).map(|duplex| view(from, to, duplex)));
            };
            add(None, tables.own.peek(&peer_id).map(|entry| &entry.estimate));
            for (reporter, from) in relays.iter().filter(|(reporter, _)| reporter != key) {
                add(Some(from), tables.reported.get(reporter).and_then(|reported| reported.peek(&peer_id)));
            }
        }
        sections
    }
}

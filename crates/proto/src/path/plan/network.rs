//! The input of a plan: sites, round trips, properties of sections, and traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{DistanceModel, Position};
use crate::path::model::{CongestionControl, Connection, RelayCosts, SectionModel, payload_rate};

/// Payload of a full packet on Ethernet, with timestamps.
const MSS: u16 = 1448;

/// The complete input of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// The sites; all other fields refer to them by index.
    pub sites: Vec<Site>,
    /// The round trips between sites.
    pub matrix: RttMatrix,
    /// The model of the estimated round trips.
    pub distance_model: DistanceModel,
    /// The properties of sections that are not in `traits`.
    pub default_traits: SectionTraits,
    /// The properties of individual sections, by their two sites, the smaller index first.
    pub traits: BTreeMap<(usize, usize), SectionTraits>,
    /// The traffic; at least one.
    pub traffic: Vec<Traffic>,
    /// Sizes of the fetched objects in bytes; at least one.
    pub sizes: Vec<u64>,
    /// The cost of relays.
    pub costs: RelayCosts,
}

/// The properties of a section beside its round trip.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SectionTraits {
    /// Share of packets lost.
    pub loss: f64,
    /// The rate of the line, bytes/s on the wire.
    pub line_rate: Option<f64>,
    /// The smaller of the two buffers, bytes.
    pub window: Option<u64>,
    /// The congestion control of the senders.
    pub congestion: CongestionControl,
}

/// Objects that clients at one site fetch from servers at another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Index of the client's site.
    pub client: usize,
    /// Index of the server's site.
    pub server: usize,
    /// Weight relative to the other traffics.
    pub weight: f64,
}

/// The source of a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RttSource {
    /// Given in the input.
    Given,
    /// Measured for this plan.
    Measured,
    /// Estimated from the positions.
    Estimated,
}

/// A round trip between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttEntry {
    /// Round-trip time between the sites.
    pub rtt: Duration,
    /// The source of the value.
    pub source: RttSource,
}

/// Round trips between all sites, equal in both directions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RttMatrix(BTreeMap<(usize, usize), RttEntry>);

impl RttMatrix {
    /// The round trip between two sites, if it is known.
    #[must_use]
    pub fn get(&self, one: usize, other: usize) -> Option<RttEntry> {
        self.0.get(&ordered(one, other)).copied()
    }

    /// Sets the round trip between two sites.
    pub fn set(&mut self, one: usize, other: usize, entry: RttEntry) {
        self.0.insert(ordered(one, other), entry);
    }

    /// All known round trips: two sites, the smaller index first, and the entry.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, RttEntry)> {
        self.0.iter().map(|(&(one, other), &entry)| (one, other, entry))
    }

    /// The number of entries from this source.
    #[must_use]
    pub fn count(&self, origin: RttSource) -> usize {
        self.0.values().filter(|entry| entry.source == origin).count()
    }

    /// Estimates missing round trips where both sites have a position.
    pub fn fill_estimates(&mut self, sites: &[Site], distance_model: &DistanceModel) {
        for (one, site) in sites.iter().enumerate() {
            for (other, other_site) in sites.iter().enumerate().skip(one + 1) {
                if self.get(one, other).is_none()
                    && let Some(rtt) = distance_model.round_trip(site, other_site)
                {
                    self.set(one, other, RttEntry { rtt, source: RttSource::Estimated });
                }
            }
        }
    }
}

/// The key of a section, independent of the order of its ends.
pub(super) fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl PlanInput {
    /// The sections of a path from client to server, for the model; `None` if a round trip is unknown. Connections
    /// between relays are ready.
    #[must_use]
    pub fn sections(&self, stops: &[usize]) -> Option<Vec<SectionModel>> {
        let last = stops.len().checked_sub(2)?;
        let sections = stops.windows(2).enumerate();
        sections.map(|(at, ends)| self.section(ends[0], ends[1], at > 0 && at < last)).collect()
    }

    fn section(&self, from: usize, to: usize, is_ready: bool) -> Option<SectionModel> {
        let SectionTraits { loss, line_rate: line, window, congestion } = self.traits_of(from, to);
        let line = line.map(|line| payload_rate(line, MSS));
        Some(SectionModel {
            rtt: self.matrix.get(from, to)?.rtt,
            loss,
            window,
            line_rate: line,
            congestion,
            mss: MSS,
            connection: Connection::ready_if(is_ready),
        })
    }

    /// The properties of the section between two sites, beside its round trip.
    #[must_use]
    pub fn traits_of(&self, one: usize, other: usize) -> SectionTraits {
        self.traits.get(&ordered(one, other)).copied().unwrap_or(self.default_traits)
    }

    /// The sites that have a relay.
    pub(super) fn relay_sites(&self) -> Vec<usize> {
        self.sites_where(|site| site.roles.relay)
    }

    /// The sites without a relay that are possible places for one.
    pub(super) fn possible_sites(&self) -> Vec<usize> {
        self.sites_where(|site| site.roles.possible && !site.roles.relay)
    }

    fn sites_where(&self, fits: impl Fn(&Site) -> bool) -> Vec<usize> {
        (0..self.sites.len()).filter(|site| fits(&self.sites[*site])).collect()
    }

    /// The name of the site with this index.
    pub(super) fn name(&self, site: usize) -> &str {
        &self.sites[site].name
    }
}

/// A site of the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// The name of the site in the input.
    pub name: String,
    /// The roles of the site.
    pub roles: Roles,
    /// The position on earth, if given.
    pub position: Option<Position>,
}

/// The roles of a site, existing or possible; it can have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    /// The site has clients.
    pub client: bool,
    /// The site has servers.
    pub server: bool,
    /// The site has a relay.
    pub relay: bool,
    /// The site is a possible place for a relay.
    pub possible: bool,
}

impl Roles {
    /// The names of the roles in the input.
    pub const NAMES: [&'static str; 4] = ["client", "server", "relay", "possible"];

    /// Adds the role with this name; false for an unknown name.
    pub fn add_by_name(&mut self, word: &str) -> bool {
        match word {
            "client" => self.client = true,
            "server" => self.server = true,
            "relay" => self.relay = true,
            "possible" => self.possible = true,
            _ => return false,
        }
        true
    }
}

//! The input of a plan: sites, round trips, properties of sections, and traffic.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{DistanceModel, Position};
use crate::path::model::{CongestionControl, RelayCosts, SectionModel, payload_rate};

/// Payload of a full packet on Ethernet, with timestamps.
const MSS: u16 = 1448;

/// Everything a plan is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanInput {
    /// The sites; elsewhere their places in here stand for them.
    pub sites: Vec<Site>,
    /// The round trips.
    pub matrix: RttMatrix,
    /// How missing ones were estimated.
    pub distance_model: DistanceModel,
    /// The properties of sections without an entry.
    pub default_traits: SectionTraits,
    /// The properties of the others, by their sites, the smaller number first.
    pub traits: BTreeMap<(usize, usize), SectionTraits>,
    /// The traffic; at least one.
    pub traffic: Vec<Traffic>,
    /// Sizes of the objects that are fetched, bytes; at least one.
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
    /// How senders answer to loss.
    pub congestion: CongestionControl,
}

/// Objects that clients at one site fetch from another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// Where the client is.
    pub client: usize,
    /// Where the server is.
    pub server: usize,
    /// How much it counts, beside the others.
    pub weight: f64,
}

/// Where a round trip is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RttSource {
    /// It is written.
    Given,
    /// It was measured just now.
    Measured,
    /// From the positions.
    Estimated,
}

/// A round trip between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RttEntry {
    /// How long it takes.
    pub rtt: Duration,
    /// Where that is known from.
    pub source: RttSource,
}

/// Round trips between all sites, the same both ways.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RttMatrix(BTreeMap<(usize, usize), RttEntry>);

impl RttMatrix {
    /// The round trip between two sites, if it is known.
    #[must_use]
    pub fn get(&self, one: usize, other: usize) -> Option<RttEntry> {
        self.0.get(&ordered(one, other)).copied()
    }

    /// Notes one.
    pub fn set(&mut self, one: usize, other: usize, entry: RttEntry) {
        self.0.insert(ordered(one, other), entry);
    }

    /// All that is known: two sites, the smaller number first, and their round trip.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, RttEntry)> {
        self.0.iter().map(|(&(one, other), &entry)| (one, other, entry))
    }

    /// How many come from there.
    #[must_use]
    pub fn count(&self, origin: RttSource) -> usize {
        self.0.values().filter(|entry| entry.source == origin).count()
    }

    /// Estimates missing round trips where both sites have a position.
    pub fn fill_estimates(&mut self, sites: &[Site], yardstick: &DistanceModel) {
        for (one, site) in sites.iter().enumerate() {
            for (other, another) in sites.iter().enumerate().skip(one + 1) {
                if self.get(one, other).is_none()
                    && let Some(rtt) = yardstick.round_trip(site, another)
                {
                    self.set(one, other, RttEntry { rtt, source: RttSource::Estimated });
                }
            }
        }
    }
}

/// The key of a section: it is the same seen from both ends.
pub(super) fn ordered(one: usize, other: usize) -> (usize, usize) {
    (one.min(other), one.max(other))
}

impl PlanInput {
    /// The sections of a path from client to server, as the model wants them; `None` when the round trip of one is not
    /// known. Between relays a connection is ready.
    #[must_use]
    pub fn sections(&self, stops: &[usize]) -> Option<Vec<SectionModel>> {
        let last = stops.len().checked_sub(2)?;
        let sections = stops.windows(2).enumerate();
        sections.map(|(at, ends)| self.section(ends[0], ends[1], at > 0 && at < last)).collect()
    }

    fn section(&self, from: usize, to: usize, warm: bool) -> Option<SectionModel> {
        let SectionTraits { loss, line_rate: line, window, congestion } = self.traits_of(from, to);
        let line = line.map(|line| payload_rate(line, MSS));
        Some(SectionModel {
            rtt: self.matrix.get(from, to)?.rtt,
            loss,
            window,
            line_rate: line,
            congestion,
            mss: MSS,
            is_warm: warm,
        })
    }

    /// The properties of a section beside its round trip.
    #[must_use]
    pub fn traits_of(&self, one: usize, other: usize) -> SectionTraits {
        self.traits.get(&ordered(one, other)).copied().unwrap_or(self.default_traits)
    }

    /// The sites where relays stand.
    pub(super) fn relay_sites(&self) -> Vec<usize> {
        self.sites_where(|site| site.roles.relay)
    }

    /// The sites where one could be and is not.
    pub(super) fn possible_sites(&self) -> Vec<usize> {
        self.sites_where(|site| site.roles.possible && !site.roles.relay)
    }

    fn sites_where(&self, fits: impl Fn(&Site) -> bool) -> Vec<usize> {
        (0..self.sites.len()).filter(|site| fits(&self.sites[*site])).collect()
    }

    /// The name of a site.
    pub(super) fn name(&self, site: usize) -> &str {
        &self.sites[site].name
    }
}

/// A place in the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// The roles of the site.
    pub roles: Roles,
    /// Where it is on earth.
    pub position: Option<Position>,
}

/// The roles of a site, existing or possible; it can have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles {
    /// Clients.
    pub client: bool,
    /// Servers.
    pub server: bool,
    /// A relay that stands.
    pub relay: bool,
    /// Room for a relay.
    pub possible: bool,
}

impl Roles {
    /// The words for them.
    pub const NAMES: [&'static str; 4] = ["client", "server", "relay", "possible"];

    /// Adds the role of this word; false where there is none.
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

//! Plans a network before its relays exist: computes ranked paths, and the best places for one or two more relays, from
//! sites and the round trips between them.
//!
//! [`PlanInput`] is the input, [`implausible`] finds its anomalies, and [`Plan`] is the result, computed with
//! [`super::model`]. [`table`], [`picture`] and [`view`] are its output formats. This module measures nothing and reads
//! no files.

mod geography;
pub mod implausible;
mod network;
pub mod picture;
mod placement;
mod ranking;
pub mod table;
mod verdict;
pub mod view;

pub use geography::{DistanceModel, Position};
pub use network::{PlanInput, RttEntry, RttMatrix, RttSource, SectionTraits, Traffic};
pub use network::{Roles, Site};
pub use placement::{Gain, Placement};
pub use ranking::{PlannedPath, TrafficPaths};

/// The result for a [`PlanInput`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Each [`Traffic`] of the input with its paths.
    pub pairs: Vec<TrafficPaths>,
    /// The places for one additional relay, the best first.
    pub single_placements: Vec<Placement>,
    /// The pairs of places for two additional relays, the best first.
    pub double_placements: Vec<Placement>,
}

impl Plan {
    /// Predicts every path and every placement.
    #[must_use]
    pub fn compute(network: &PlanInput) -> Self {
        let pairs = (0..network.traffic.len()).map(|traffic| ranking::rank_paths(network, traffic)).collect();
        let (single_placements, double_placements) = placement::all_placements(network);
        Self { pairs, single_placements, double_placements }
    }
}

#[cfg(test)]
mod tests;

//! Where relays help, before there are any: sites and the round trips between them in, ranked paths and the best places
//! for the next one or two relays out.
//!
//! [`PlanInput`] is what is known, [`doubts`] what is strange about it, [`Plan`] what follows, by the arithmetic of
//! [`super::model`]. [`table`], [`picture`] and [`view`] show it. Nothing is measured and nothing read here.

pub mod doubts;
mod geography;
mod network;
pub mod numbers;
pub mod picture;
mod placement;
mod ranking;
mod sites;
pub mod table;
mod verdict;
pub mod view;

pub use geography::{DistanceModel, Position};
pub use network::{PlanInput, RttEntry, RttMatrix, RttSource, SectionTraits, Traffic};
pub use placement::{Gain, Placement};
pub use ranking::{PlannedPath, TrafficPaths};
pub use sites::{Roles, Site};

/// What follows from a [`PlanInput`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Each of the network's traffics with its paths.
    pub pairs: Vec<TrafficPaths>,
    /// Where one relay more would be best, the best place first.
    pub single_placements: Vec<Placement>,
    /// Where two would be.
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

//! Where relays help, before there are any: sites and the round trips between them in, ranked paths and the best places
//! for the next one or two relays out.
//!
//! [`Network`] is what is known, [`doubts`] what is strange about it, [`Plan`] what follows, by the arithmetic of
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

pub use geography::{Position, Yardstick};
pub use network::{Entry, Matrix, Network, Origin, Traffic, Traits};
pub use placement::{Gain, Placement};
pub use ranking::{Pair, Ranked};
pub use sites::{Roles, Site};

/// What follows from a [`Network`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Each of the network's traffics with its paths.
    pub pairs: Vec<Pair>,
    /// Where one relay more would be best, the best place first.
    pub one: Vec<Placement>,
    /// Where two would be.
    pub two: Vec<Placement>,
}

impl Plan {
    /// Predicts every path and every placement.
    #[must_use]
    pub fn of(network: &Network) -> Self {
        let pairs = (0..network.traffic.len()).map(|traffic| ranking::pair(network, traffic)).collect();
        let (one, two) = placement::all(network);
        Self { pairs, one, two }
    }
}

#[cfg(test)]
mod tests;

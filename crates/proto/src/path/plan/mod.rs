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

use std::time::Duration;

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

/// Formats a size with its unit: `10kB`, `1MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 6] =
        [("GiB", 1 << 30), ("GB", 1_000_000_000), ("MiB", 1 << 20), ("MB", 1_000_000), ("KiB", 1 << 10), ("kB", 1000)];
    let exact = UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match exact {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None if bytes < 10_000 => format!("{bytes}B"),
        None if bytes < 10_000_000 => format!("{}kB", bytes / 1000),
        None => format!("{}MB", bytes / 1_000_000),
    }
}

/// Formats a factor with three significant digits, and without decimals from 100 on.
#[must_use]
pub fn factor(factor: f64) -> String {
    match factor {
        f if f < 9.995 => format!("{f:.2}"),
        f if f < 99.95 => format!("{f:.1}"),
        f => format!("{f:.0}"),
    }
}

/// Formats milliseconds without the unit.
#[must_use]
pub fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1e3;
    if milliseconds < 999.95 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

/// Formats a duration in ms or s, with its unit.
#[must_use]
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s if s < 99.95 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    }
}

/// Formats bytes per second as Mbit/s, without the unit.
#[must_use]
pub fn megabits(rate: f64) -> String {
    match rate * 8.0 / 1e6 {
        m if m < 9.95 => format!("{m:.2}"),
        m if m < 999.5 => format!("{m:.1}"),
        m => format!("{m:.0}"),
    }
}

#[cfg(test)]
mod tests;

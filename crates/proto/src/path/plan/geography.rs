//! Round trips from positions: great-circle distance, the speed of light in fibre, and the detours of cables.

use std::time::Duration;

use super::{RttMatrix, RttSource, Site};

/// Mean radius of the earth (IUGG), km.
const EARTH_RADIUS: f64 = 6371.0;

/// Light in fibre: about two thirds of light in vacuum, km/s.
const LIGHT_IN_FIBRE: f64 = 200_000.0;

/// Light in vacuum, km/s.
const LIGHT_IN_VACUUM: f64 = 299_792.458;

/// Round trips in the Internet are about three times light in vacuum (Singla and others, "The Internet at the speed of
/// light", HotNets 2014), which is twice light in fibre.
const INFLATION: f64 = 2.0;

/// Smallest number of given round trips that replace the default factor.
const MIN_SAMPLES: usize = 3;

/// Smallest round trip between two sites at one place: that of a city's access network.
const MIN_ROUND_TRIP: Duration = Duration::from_millis(1);

/// A position on earth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// Degrees to the north, -90 to 90.
    pub latitude: f64,
    /// Degrees to the east, -180 to 180.
    pub longitude: f64,
}

impl Position {
    /// Kilometres along the surface (haversine).
    #[must_use]
    pub fn distance(self, other: Self) -> f64 {
        let half = |from: f64, to: f64| ((to - from).to_radians() / 2.0).sin().powi(2);
        let (latitudes, longitudes) = (half(self.latitude, other.latitude), half(self.longitude, other.longitude));
        let along = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        2.0 * EARTH_RADIUS * (latitudes + along * longitudes).min(1.0).sqrt().asin()
    }
}

/// Converts a distance to a round trip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistanceModel {
    /// Ratio of the round trip to that of light in fibre along the great circle.
    pub inflation: f64,
    /// Number of given round trips whose median is the factor; 0 for a given or default factor.
    pub sample_count: usize,
}

impl DistanceModel {
    /// A factor from the configuration.
    #[must_use]
    pub const fn with_inflation(inflation: f64) -> Self {
        Self { inflation, sample_count: 0 }
    }

    /// The median factor of the round trips in `matrix` whose sites have positions, or the default if they are few.
    #[must_use]
    pub fn fit(sites: &[Site], matrix: &RttMatrix) -> Self {
        let mut factors: Vec<f64> = matrix
            .entries()
            .filter(|(_, _, entry)| entry.source != RttSource::Estimated)
            .filter_map(|(a, b, entry)| {
                let straight = 2.0 * distance(&sites[a], &sites[b])? / LIGHT_IN_FIBRE;
                // Sites at one location give no information about cables.
                (straight > 1e-3).then(|| entry.rtt.as_secs_f64() / straight)
            })
            .collect();
        if factors.len() < MIN_SAMPLES {
            return Self::with_inflation(INFLATION);
        }
        factors.sort_unstable_by(f64::total_cmp);
        Self { inflation: factors[factors.len() / 2].max(1.0), sample_count: factors.len() }
    }

    /// The estimated round trip between two sites; `None` if a position is missing.
    #[must_use]
    pub fn round_trip(&self, one: &Site, other: &Site) -> Option<Duration> {
        let kilometres = distance(one, other)?;
        Some(Duration::from_secs_f64(2.0 * kilometres / LIGHT_IN_FIBRE * self.inflation).max(MIN_ROUND_TRIP))
    }
}

/// The round trip of light in vacuum, the lower bound of all round trips.
pub(super) fn light_round_trip(one: &Site, other: &Site) -> Option<Duration> {
    distance(one, other).map(|kilometres| Duration::from_secs_f64(2.0 * kilometres / LIGHT_IN_VACUUM))
}

fn distance(one: &Site, other: &Site) -> Option<f64> {
    Some(one.position?.distance(other.position?))
}

//! Implausible and suspicious round trips.
//!
//! A detour through a third site may be shorter than the direct path: this occurs in the Internet, and it is one reason
//! why relays help. Only a much shorter detour should be checked.

use std::time::Duration;

use super::{RttMatrix, RttSource, Site, geography};

/// Ratio of the direct round trip to that of a detour from which the round trip is suspicious.
const SUSPICIOUS_RATIO: f64 = 3.0;

/// Ratio from which the round trip is a mistake, such as a wrong unit.
const MISTAKE_RATIO: f64 = 20.0;

/// Shorter round trips are not checked: their ratios are dominated by differences of a millisecond.
const MIN_CHECKED: Duration = Duration::from_millis(20);

/// A round trip down to this share of that of light is accepted, because positions are those of a city, not of a
/// machine.
const LIGHT_TOLERANCE: f64 = 0.8;

/// An implausible round trip between two sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RttAnomaly {
    /// The indices of the two sites.
    pub sites: (usize, usize),
    /// Whether the round trip is impossible; otherwise it is only suspicious.
    pub is_mistake: bool,
    /// The value that would be plausible, with its unit.
    pub expected: String,
}

/// All anomalies of given and measured round trips, in the order of the sites.
#[must_use]
pub fn find_anomalies(sites: &[Site], matrix: &RttMatrix) -> Vec<RttAnomaly> {
    let known = || matrix.entries().filter(|(_, _, entry)| entry.source != RttSource::Estimated);
    let mut anomalies = Vec::new();
    for (one, other, entry) in known() {
        let is_mistake = |expected| RttAnomaly { sites: (one, other), is_mistake: true, expected };
        if let Some(expected) = faster_than_light(&sites[one], &sites[other], entry.rtt) {
            anomalies.push(is_mistake(expected));
        } else if let Some((ratio, expected)) = detour(sites, matrix, one, other, entry.rtt) {
            anomalies.push(RttAnomaly { is_mistake: ratio >= MISTAKE_RATIO, ..is_mistake(expected) });
        }
    }
    anomalies
}

fn faster_than_light(one: &Site, other: &Site, rtt: Duration) -> Option<String> {
    let light = geography::light_round_trip(one, other)?;
    let milliseconds = light.as_secs_f64() * 1e3;
    (rtt.as_secs_f64() < light.as_secs_f64() * LIGHT_TOLERANCE).then(|| {
        format!(
            "at least {milliseconds:.1}ms, the time of light between the two positions: check the round trip and both \
             positions"
        )
    })
}

/// The shortest detour through another site and its ratio, if it is short enough to be suspicious.
fn detour(sites: &[Site], matrix: &RttMatrix, one: usize, other: usize, rtt: Duration) -> Option<(f64, String)> {
    let known = |a, b| matrix.get(a, b).filter(|entry| entry.source != RttSource::Estimated).map(|entry| entry.rtt);
    let by = |third: usize| Some((known(one, third)? + known(third, other)?, third));
    let others = (0..sites.len()).filter(|third| *third != one && *third != other);
    let (shortest, third) = others.filter_map(by).min()?;
    let ratio = rtt.as_secs_f64() / shortest.as_secs_f64().max(1e-6);
    (rtt > MIN_CHECKED && ratio >= SUSPICIOUS_RATIO).then(|| {
        let expected = format!(
            "not {ratio:.0} times as long as by {} ({:.1}ms): check the digits and units of the three round trips",
            sites[third].name,
            shortest.as_secs_f64() * 1e3
        );
        (ratio, expected)
    })
}

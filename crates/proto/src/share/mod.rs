//! Division of the rate of an interface among sections: weighted max-min fairness.
//!
//! A section that demands less than its share gets its demand, and the others divide the rest by their weights
//! (Bertsekas and Gallager, Data Networks, 6.5.2). [`allocate`] computes the level, the rate per unit of weight;
//! [`DemandEstimator`] estimates the demand of a section from the bytes it sent. Rates are in bytes per second.

use std::cmp::Ordering;
use std::time::Duration;

/// Factor on the demand of a section by which it may speed up before its next sample: large enough that the sample then
/// shows the section as limited ([`DemandEstimator`]), and too small for many sections to overload the interface.
const SPEEDUP_ROOM: f64 = 1.4;

/// The claim of one section to a share of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Weight of the section; at least 1.
    pub weight: u32,
    /// The demand in bytes per second; [`u64::MAX`] means unlimited.
    pub demand: u64,
}

impl Claim {
    /// Compares exactly by demand per unit of weight, and equal ratios by weight, so that sums are always computed in
    /// the same order.
    fn compare(&self, other: &Self) -> Ordering {
        let scaled = |demand: u64, weight: u32| u128::from(demand) * u128::from(weight);
        let by_demand = scaled(self.demand, other.weight).cmp(&scaled(other.demand, self.weight));
        by_demand.then(self.weight.cmp(&other.weight))
    }
}

/// The division of the rate of an interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allocation {
    rate: f64,
    /// The rate per unit of weight; infinite when the demands do not use up the rate.
    level: f64,
    /// The level if idle sections had unlimited demand; or with one more section of the largest weight.
    entry: f64,
    /// The rate that no section demands.
    unused: f64,
}

/// Divides `rate` among `claims`, which are sorted in place; their order does not affect the result.
#[must_use]
pub fn allocate(rate: u64, claims: &mut [Claim]) -> Allocation {
    claims.sort_unstable_by(Claim::compare);
    let heaviest = claims.iter().map(|claim| u64::from(claim.weight)).max().unwrap_or(1);
    let idle_weight = claims.iter().filter(|claim| claim.demand == 0).map(|claim| u64::from(claim.weight)).sum();
    let rate = rate as f64;
    let (level, remaining) = water_fill(rate, claims, 0);
    let (entry, _) = water_fill(rate, claims, heaviest.max(idle_weight));
    Allocation { rate, level, entry, unused: remaining }
}

/// Returns the level at which `claims`, and one unlimited claim of the weight `extra_weight`, use up `rate`, and the
/// unused rest of the rate.
fn water_fill(rate: f64, claims: &[Claim], extra_weight: u64) -> (f64, f64) {
    let mut remaining = rate;
    let mut shares = extra_weight + claims.iter().map(|claim| u64::from(claim.weight)).sum::<u64>();
    for claim in claims {
        let level = remaining / shares as f64;
        if claim.demand as f64 >= level * f64::from(claim.weight) {
            return (level, 0.0);
        }
        remaining -= claim.demand as f64;
        shares -= u64::from(claim.weight);
    }
    if shares > 0 { (remaining / shares as f64, 0.0) } else { (f64::INFINITY, remaining) }
}

impl Allocation {
    /// An allocation of `rate` without claims.
    #[must_use]
    pub fn empty(rate: u64) -> Self {
        allocate(rate, &mut [])
    }

    /// The rate per unit of weight; `None` when the demands do not use up the rate.
    #[must_use]
    pub fn level(&self) -> Option<u64> {
        self.level.is_finite().then_some(self.level as u64)
    }

    /// The share of one of the claims. The sum of all shares is at most the rate.
    #[must_use]
    pub fn share(&self, claim: Claim) -> u64 {
        claim.demand.min(self.max_rate(claim.weight) as u64)
    }

    /// The rate ceiling of a section with this claim, or of one more section: its share, or where it demands less, the
    /// rate up to which it may speed up at once.
    #[must_use]
    pub fn ceiling(&self, claim: Claim) -> u64 {
        let (max_rate, demand) = (self.max_rate(claim.weight), claim.demand as f64);
        let entry = self.entry * f64::from(claim.weight);
        // Many sections may start at once; a section with samples leaves a part of the unused rate to the others.
        let reachable =
            if claim.demand == 0 { entry } else { (demand + self.unused).max(demand * SPEEDUP_ROOM).max(entry) };
        max_rate.min(reachable) as u64
    }

    fn max_rate(&self, weight: u32) -> f64 {
        self.rate.min(self.level * f64::from(weight))
    }
}

/// Jain's fairness index (Jain, Chiu and Hawe, DEC-TR-301) of `count` values with the given sum and sum of squares: 1
/// if all are equal, 1/n if one value is all of the sum. `None` for fewer than two values, and if all are 0.
#[must_use]
pub fn jain_index(count: usize, sum: f64, squares: f64) -> Option<f64> {
    if count > 1 { jain_ratio(count, sum, squares) } else { None }
}

/// Jain's index of `values`; 1 for a single value. `None` without values, and if all are 0.
#[must_use]
pub fn jain_index_of(values: &[f64]) -> Option<f64> {
    jain_ratio(values.len(), values.iter().sum(), values.iter().map(|value| value * value).sum())
}

fn jain_ratio(count: usize, sum: f64, squares: f64) -> Option<f64> {
    (squares > 0.0).then(|| sum * sum / (count as f64 * squares))
}

/// A section that uses four fifths of its ceiling counts as limited by it.
const LIMITED_SHARE: Ratio = Ratio { numerator: 4, denominator: 5 };

/// The demand of a section that is not limited, as a multiple of its rate. With the headroom above the demand
/// ([`crate::share::Allocation::ceiling`]) the section stays below [`LIMITED_SHARE`] as long as it sends no faster.
const DEMAND_SHARE: Ratio = Ratio { numerator: 11, denominator: 10 };

/// The part of the last rate that is assumed after a pause of a section limited by its congestion control.
const PAUSE_SHARE: Ratio = Ratio { numerator: 7, denominator: 10 };

/// Smallest number of packets in a sample: with fewer, the measured rate depends mostly on when the sample began.
const MIN_PACKETS: u64 = 8;

/// A sample of the bytes that a section sent.
#[derive(Debug, Clone, Copy)]
pub struct SendSample {
    /// Bytes that the section has sent during the sample.
    pub bytes: u64,
    /// The span of the sample.
    pub span: Duration,
    /// Whether congestion control limited the section, rather than the receiver or a lack of data.
    pub congestion_limited: bool,
}

/// Estimates the demand of one section.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemandEstimator {
    rate: u64,
}

impl DemandEstimator {
    /// Shortest span of a sample for a section that may send up to `ceiling`, in packets of `packet` bytes.
    #[must_use]
    pub fn min_interval(ceiling: u64, packet: u64) -> Duration {
        Duration::from_nanos((MIN_PACKETS * packet).saturating_mul(1_000_000_000) / ceiling.max(1))
    }

    /// Returns the demand after this sample under the ceiling `ceiling`; [`u64::MAX`] means unlimited.
    pub fn judge(&mut self, sample: SendSample, ceiling: u64) -> u64 {
        let rate = (sample.bytes as f64 / sample.span.as_secs_f64().max(1e-9)) as u64;
        self.rate = if sample.congestion_limited { rate.max(PAUSE_SHARE.of(self.rate)) } else { rate };
        if self.rate >= LIMITED_SHARE.of(ceiling) { u64::MAX } else { DEMAND_SHARE.of(self.rate) }
    }
}

/// A fraction of a rate.
struct Ratio {
    numerator: u64,
    denominator: u64,
}

impl Ratio {
    const fn of(&self, value: u64) -> u64 {
        // Division comes first to prevent an overflow; the rounding is insignificant.
        value / self.denominator * self.numerator + value % self.denominator * self.numerator / self.denominator
    }
}

#[cfg(test)]
mod tests;

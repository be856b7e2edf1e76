//! Who gets how much of an interface that several sections share: max-min shares by weight.
//!
//! Whoever wants less than its share gets what it wants, and the rest is shared by the others, by their weights
//! (Bertsekas and Gallager, Data Networks, 6.5.2). [`allocate`] finds the level up to which all are served; [`DemandEstimator`] judges
//! from what a section has sent how much it wants. Rates are in bytes a second.

use std::cmp::Ordering;
use std::time::Duration;

/// Room for a section that speeds up, over what it wants, before anybody has judged it again: enough that what it sends by
/// then is seen to be held back ([`DemandEstimator`]), and not so much that many could flood the interface.
const SPEEDUP_ROOM: f64 = 1.4;

/// What one section asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// How many shares it has; at least 1.
    pub weight: u32,
    /// What it could use; [`u64::MAX`] for all it can get.
    pub demand: u64,
}

impl Claim {
    /// By how much of each share is wanted, exactly; among equals by weight, so that sums are made in one order.
    fn compare(&self, other: &Self) -> Ordering {
        let scaled = |wants: u64, weight: u32| u128::from(wants) * u128::from(weight);
        let by_wish = scaled(self.demand, other.weight).cmp(&scaled(other.demand, self.weight));
        by_wish.then(self.weight.cmp(&other.weight))
    }
}

/// How an interface is divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Allocation {
    rate: f64,
    /// What everybody can have for each share; infinite when nobody wants that much.
    level: f64,
    /// The same, did those who want nothing yet want all they can get; or were there one more of the largest weight.
    entry: f64,
    /// What nobody wants.
    unused: f64,
}

/// Divides `rate` among `claims`, whose order does not matter and is not kept.
#[must_use]
pub fn allocate(rate: u64, claims: &mut [Claim]) -> Allocation {
    claims.sort_unstable_by(Claim::compare);
    let heaviest = claims.iter().map(|claim| u64::from(claim.weight)).max().unwrap_or(1);
    let new = claims.iter().filter(|claim| claim.demand == 0).map(|claim| u64::from(claim.weight)).sum();
    let rate = rate as f64;
    let (level, left) = water_fill(rate, claims, 0);
    let (entry, _) = water_fill(rate, claims, heaviest.max(new));
    Allocation { rate, level, entry, unused: left }
}

/// The level at which `claims`, and one that wants everything for `more` shares, take up all of `rate`; and what is left.
fn water_fill(rate: f64, claims: &[Claim], more: u64) -> (f64, f64) {
    let mut left = rate;
    let mut shares = more + claims.iter().map(|claim| u64::from(claim.weight)).sum::<u64>();
    for claim in claims {
        let level = left / shares as f64;
        if claim.demand as f64 >= level * f64::from(claim.weight) {
            return (level, 0.0);
        }
        left -= claim.demand as f64;
        shares -= u64::from(claim.weight);
    }
    if shares > 0 { (left / shares as f64, 0.0) } else { (f64::INFINITY, left) }
}

impl Allocation {
    /// Nobody wants anything of `rate`.
    #[must_use]
    pub fn empty(rate: u64) -> Self {
        allocate(rate, &mut [])
    }

    /// What everybody can have for each share; `None` when nobody wants that much.
    #[must_use]
    pub fn level(&self) -> Option<u64> {
        self.level.is_finite().then_some(self.level as u64)
    }

    /// The share of one of the claims. All of them together are no more than the rate.
    #[must_use]
    pub fn share(&self, claim: Claim) -> u64 {
        claim.demand.min(self.max_rate(claim.weight) as u64)
    }

    /// Up to what a section may send, with this claim or as one more: its share; and where it wants less than it could
    /// have, what it may take at once if it wants more all of a sudden.
    #[must_use]
    pub fn ceiling(&self, claim: Claim) -> u64 {
        let (most, wants) = (self.max_rate(claim.weight), claim.demand as f64);
        let entry = self.entry * f64::from(claim.weight);
        // Many may come at once; who has been seen to send leaves some to the others.
        let sudden = if claim.demand == 0 { entry } else { (wants + self.unused).max(wants * SPEEDUP_ROOM).max(entry) };
        most.min(sudden) as u64
    }

    fn max_rate(&self, weight: u32) -> f64 {
        self.rate.min(self.level * f64::from(weight))
    }
}

/// How alike `values` are (Jain, Chiu and Hawe, DEC-TR-301): 1 when all are the same, 1/n when one has everything. `None`
/// for fewer than two, and when all are nothing.
#[must_use]
pub fn jain_index(count: usize, sum: f64, squares: f64) -> Option<f64> {
    if count > 1 { jain_ratio(count, sum, squares) } else { None }
}

/// The same of values at hand: also of a single one, which is like itself. `None` of no values, and when all are nothing.
#[must_use]
pub fn jain_index_of(values: &[f64]) -> Option<f64> {
    jain_ratio(values.len(), values.iter().sum(), values.iter().map(|value| value * value).sum())
}

fn jain_ratio(count: usize, sum: f64, squares: f64) -> Option<f64> {
    (squares > 0.0).then(|| sum * sum / (count as f64 * squares))
}

/// From four fifths of what it may send, a section is held back.
const LIMITED_SHARE: (u64, u64) = (4, 5);

/// What a section wants that is not held back: a tenth more than it sends. With the room above that
/// ([`crate::share::Allocation::ceiling`]) it stays below [`LIMITED_SHARE`] as long as it sends no faster.
const DEMAND_SHARE: (u64, u64) = (11, 10);

/// What is still believed of the last rate after a pause.
const PAUSE_SHARE: (u64, u64) = (7, 10);

/// A look at fewer packets than these says more of when it began than of the rate.
const MIN_PACKETS: u64 = 8;

/// What was seen of a section in some time.
#[derive(Debug, Clone, Copy)]
pub struct SendSample {
    /// Bytes that it has sent.
    pub bytes: u64,
    /// In what time.
    pub span: Duration,
    /// Whether its congestion control held it back, rather than its receiver or a lack of bytes.
    pub congestion_limited: bool,
}

/// The pace of one section.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemandEstimator {
    rate: u64,
}

impl DemandEstimator {
    /// How long a section has to be watched that may send up to `ceiling`, in packets of `packet` bytes.
    #[must_use]
    pub fn min_interval(ceiling: u64, packet: u64) -> Duration {
        Duration::from_nanos((MIN_PACKETS * packet).saturating_mul(1_000_000_000) / ceiling.max(1))
    }

    /// What it wants, now that it was seen so and might have sent up to `ceiling`; [`u64::MAX`] for all it can get.
    pub fn judge(&mut self, seen: SendSample, ceiling: u64) -> u64 {
        let rate = (seen.bytes as f64 / seen.span.as_secs_f64().max(1e-9)) as u64;
        self.rate = if seen.congestion_limited { rate.max(scale(self.rate, PAUSE_SHARE)) } else { rate };
        if self.rate >= scale(ceiling, LIMITED_SHARE) { u64::MAX } else { scale(self.rate, DEMAND_SHARE) }
    }
}

const fn scale(value: u64, (part, whole): (u64, u64)) -> u64 {
    // Divided first, so that nothing overflows; an exact tenth is nobody's concern.
    value / whole * part + value % whole * part / whole
}

#[cfg(test)]
mod tests;

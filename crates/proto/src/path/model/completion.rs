//! Sections in a row: the slowest says the rate, all of them the time to the first byte.

use super::slow_start::transfer_time;
use super::{RelayCosts, SectionModel};

/// What chance takes of two equal sections is half of this, of many all: the least of several rates that are a third off now and
/// then. Measured in the laboratory.
const SWING: f64 = 0.4;

/// In bytes/s.
pub(super) fn combined_rate(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let slowest = sections.iter().map(SectionModel::rate).reduce(f64::min).unwrap_or(0.0);
    let limit = if relay_count(sections) > 0 { costs.relay_rate } else { f64::MAX };
    (slowest * slowest_share(sections, costs)).min(limit)
}

/// In seconds.
pub(super) fn first_byte_seconds(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let handshakes: f64 = sections.iter().filter(|section| !section.is_warm).map(SectionModel::round_trip).sum();
    let request: f64 = sections.iter().map(SectionModel::round_trip).sum();
    let answer_to_open = match sections.split_last() {
        Some((_, before)) if costs.waits_for_connect => before.iter().map(SectionModel::round_trip).sum(),
        _ => 0.0,
    };
    handshakes + request + answer_to_open + costs.hop_delay.as_secs_f64() * relay_count(sections) as f64
}

/// In seconds.
pub(super) fn completion_seconds(sections: &[SectionModel], size: u64, costs: &RelayCosts) -> f64 {
    if sections.is_empty() {
        return f64::INFINITY;
    }
    let longest = sections.iter().map(|section| transfer_time(section, size)).fold(0.0, f64::max);
    let through_relays = if relay_count(sections) > 0 { size as f64 / costs.relay_rate } else { 0.0 };
    first_byte_seconds(sections, costs) + (longest / slowest_share(sections, costs)).max(through_relays)
}

/// How many relays are between so many sections.
fn relay_count(sections: &[SectionModel]) -> usize {
    sections.len().saturating_sub(1)
}

/// The share of the slowest section's rate that is left of it in a row of sections.
///
/// Relays: of n equal sections each carries n times what the path would undivided, and each of n - 1 relays takes `share` of
/// the latter. Chance: where losses make rates swing, the slowest is now the one section and now the other, and a relay's
/// buffer evens out little of that. A faster section waits for the slowest anyway, so it counts the less the faster it is.
fn slowest_share(sections: &[SectionModel], costs: &RelayCosts) -> f64 {
    let Some(slowest) = sections.iter().min_by(|a, b| a.rate().total_cmp(&b.rate())) else { return 1.0 };
    let count: f64 = sections.iter().map(|section| (slowest.rate() / section.rate()).powi(4)).sum();
    let others = (count - 1.0).max(0.0) / count.max(1.0);
    (1.0 - costs.share.clamp(0.0, 0.9) * others) * (1.0 - SWING * slowest.rate_variability() * others)
}

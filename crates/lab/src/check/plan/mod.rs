//! The measurements of each direction, and the traffic of each measurement.

use super::expectation::transmission_time;
use super::jitter;
use super::probe::{MIN_PROBE_BYTES, ProbeSend, burst_probes, regular_probes};
use super::row::CheckedDirection;
use super::transport::{PeriodicLoss, ThroughputModel};
use crate::topology::Lab;
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::{Conditions, Loss, QueueKind, QueueLimit};
use ekiden_emulator::nanos;

const SECOND: Nanos = 1_000_000_000;

/// The extent of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckSize {
    /// A few seconds for each link: the check before every run.
    Quick,
    /// Sample sizes for the published criteria.
    Full,
}

/// A measurement of one property, with its own series of traffic.
#[derive(Debug, Clone, Copy)]
pub enum Measurement {
    /// Fixed delay of an unloaded line.
    Delay,
    /// Delay at 80 % of the rate.
    Loaded,
    /// Round-trip time, by pings.
    Ping,
    /// The rate, over seconds and over any ten milliseconds.
    Rate,
    /// The spacing of packets sent back to back.
    Spacing,
    /// The distribution of the jitter, and the order of packets.
    Jitter,
    /// Loss, duplication and reordering.
    Chance,
    /// The drops and marks of the queue.
    Queue,
    /// Throughput of a TCP transfer under periodic loss.
    Transfer(PeriodicLoss),
}

/// The other measurements that may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concurrency {
    /// No other measurement, because the resolution is microseconds.
    Exclusive,
    /// Measurements on other links that send a few hundred packets per second.
    Light,
    /// Any measurement on other links.
    Any,
}

impl Measurement {
    /// Returns the other measurements that may run at the same time.
    pub const fn concurrency(&self) -> Concurrency {
        match self {
            Self::Delay | Self::Loaded | Self::Ping | Self::Rate | Self::Spacing => Concurrency::Exclusive,
            Self::Jitter => Concurrency::Light,
            Self::Chance | Self::Queue | Self::Transfer(_) => Concurrency::Any,
        }
    }
}

/// Returns the measurements that apply to a direction.
pub fn measurements(direction: &CheckedDirection<'_>, lab: &Lab) -> Vec<Measurement> {
    let (conditions, reverse) = if direction.forward {
        (&direction.link.forward, &direction.link.reverse)
    } else {
        (&direction.link.reverse, &direction.link.forward)
    };
    // The expected delays and rates presume a line that is up and has a constant rate.
    if conditions.down || reverse.down || conditions.trace.is_some() {
        return Vec::new();
    }
    let mut measures = Vec::new();
    let punctual = has_constant_delay(conditions);
    let rated = conditions.rate.is_some();
    let lossless = |c: &Conditions| c.loss.is_none() && c.duplicate.is_none();
    let both_constant = punctual
        && has_constant_delay(reverse)
        && reverse.trace.is_none()
        && conditions.delay.is_some()
        && reverse.delay.is_some();
    let theory = periodic_loss(direction, conditions, reverse, lab).filter(|_| both_constant && lossless(reverse));
    measures.extend(theory.map(Measurement::Transfer));
    let mut add = |applies: bool, measure| measures.extend(applies.then_some(measure));
    add(punctual && conditions.delay.is_some(), Measurement::Delay);
    add(punctual && rated, Measurement::Loaded);
    add(punctual && rated && conditions.duplicate.is_none() && keeps_line_busy(conditions), Measurement::Rate);
    add(punctual && rated, Measurement::Spacing);
    add(direction.forward && both_constant && lossless(conditions) && lossless(reverse), Measurement::Ping);
    add(conditions.jitter.is_some() && conditions.reorder.is_none(), Measurement::Jitter);
    add(
        conditions.loss.is_some() || conditions.duplicate.is_some() || conditions.reorder.is_some(),
        Measurement::Chance,
    );
    add(rated && conditions.queue.is_some() && conditions.access_rate.is_none(), Measurement::Queue);
    measures
}

/// Returns whether an overload keeps the line busy. Queue management other than tail drop may drop more than the
/// excess.
const fn keeps_line_busy(conditions: &Conditions) -> bool {
    matches!(conditions.queue, None | Some(QueueKind::TailDrop(_)))
}

const fn has_constant_delay(conditions: &Conditions) -> bool {
    conditions.jitter.is_none() && conditions.reorder.is_none()
}

/// Returns the path whose throughput is compared with a law: constant delay, one loss in `every` packets, and a
/// congestion control with a law. Returns `None` for any other direction.
fn periodic_loss(
    direction: &CheckedDirection<'_>,
    conditions: &Conditions,
    reverse: &Conditions,
    lab: &Lab,
) -> Option<PeriodicLoss> {
    let law = ThroughputModel::for_congestion_control(lab.hosts.get(direction.from())?.congestion.as_deref()?)?;
    let Some(Loss::Pattern { every, lost, .. }) = &conditions.loss else { return None };
    let is_only_loss =
        lost.len() == 1 && conditions.rate.is_none() && reverse.rate.is_none() && conditions.duplicate.is_none();
    let rtt = (conditions.delay?.0 + reverse.delay?.0).as_secs_f64();
    is_only_loss.then_some(PeriodicLoss { model: law, period: *every, rtt, mtu: direction.link.mtu })
}

/// The amount of traffic of a check.
#[derive(Debug, Clone, Copy)]
pub struct TrafficBudget {
    /// Number of probes for the fixed delay.
    pub delay_probes: usize,
    /// Number of pings for the round trip.
    pub pings: u16,
    /// Duration of the overload that measures a rate.
    pub rate_duration: Nanos,
    /// Number of bursts that measure the spacing.
    pub bursts: usize,
    /// Maximum number of packets that sample the jitter.
    pub jitter_probes: usize,
    /// Number of losses to observe.
    pub expected_losses: f64,
    /// Maximum duration of the measurement of losses.
    pub max_duration: Nanos,
    /// Duration of the traffic through a queue.
    pub queue_duration: Nanos,
    /// Number of cycles of congestion avoidance to compare.
    pub cycles: u64,
}

impl TrafficBudget {
    /// Returns the budget of a check of this size.
    pub const fn for_size(size: CheckSize) -> Self {
        match size {
            CheckSize::Full => Self {
                delay_probes: 10_000,
                pings: 2000,
                rate_duration: 10 * SECOND,
                bursts: 50,
                jitter_probes: 2000,
                expected_losses: 1600.0,
                max_duration: 30 * SECOND,
                queue_duration: 6 * SECOND,
                cycles: 6,
            },
            CheckSize::Quick => Self {
                delay_probes: 1000,
                pings: 500,
                rate_duration: 2 * SECOND,
                bursts: 10,
                jitter_probes: 200,
                expected_losses: 200.0,
                max_duration: 3 * SECOND,
                queue_duration: 2 * SECOND,
                // One cycle more than the minimum: the duration is computed from the law, and the warm-up may take
                // longer.
                cycles: 4,
            },
        }
    }
}

/// Maximum number of send calls per second. A small machine makes this many on time.
const MAX_CALLS_PER_SECOND: u64 = 4000;

/// Returns probes for an idle line: 4,000 per second if the line is fast enough.
pub fn delay_probes(conditions: &Conditions, budget: &TrafficBudget) -> Vec<ProbeSend> {
    let gap = (2 * serialisation_time(conditions, MIN_PROBE_BYTES)).max(SECOND / MAX_CALLS_PER_SECOND);
    regular_probes(budget.delay_probes.min((10 * SECOND / gap) as usize), gap, MIN_PROBE_BYTES)
}

/// Returns packets that load the line to `percent` of its rate for `duration`; empty without a rate. Their size lets
/// about 400 packets per second fill the line, within the minimum size of a probe and `mtu`.
pub fn load_probes(conditions: &Conditions, mtu: u32, percent: u64, duration: Nanos) -> Vec<ProbeSend> {
    let Some(rate) = conditions.rate else { return Vec::new() };
    let bytes = (rate.bits_per_second() / 8 / 400).clamp(u64::from(MIN_PROBE_BYTES), u64::from(mtu)) as u32;
    let gap = serialisation_time(conditions, bytes) * 100 / percent;
    let burst = (SECOND / MAX_CALLS_PER_SECOND).div_ceil(gap.max(1)).min(40);
    let count = (duration / (gap * burst).max(1)).max(600 / burst);
    burst_probes(count as usize, gap * burst, bytes, burst as u16)
}

/// Returns bursts of full packets, each sent after the previous burst has left the line.
pub fn spacing_probes(conditions: &Conditions, mtu: u32, budget: &TrafficBudget) -> Vec<ProbeSend> {
    let packets = u64::from(60_000 / mtu).min(10).min(queue_capacity(conditions, mtu));
    let gap = serialisation_time(conditions, mtu) * packets * 2 + SECOND / 200;
    let count = (budget.bursts as u64).min(5 * SECOND / gap).max(3);
    burst_probes(count as usize, gap, mtu, packets as u16)
}

/// Returns superpackets of small packets: enough for the budgeted number of events of probability `p`, within the
/// budgeted duration.
pub fn random_event_probes(conditions: &Conditions, p: f64, budget: &TrafficBudget) -> Vec<ProbeSend> {
    const PACKETS: u64 = 30;
    const PER_SECOND: u64 = 8000;
    let packets = PACKETS.min(queue_capacity(conditions, MIN_PROBE_BYTES) / 2).max(1);
    let gap = (serialisation_time(conditions, MIN_PROBE_BYTES) * 2).max(SECOND / PER_SECOND) * packets;
    let count = (budget.expected_losses / p).min(1e9) as u64 / packets + 1;
    burst_probes(count.min(budget.max_duration / gap) as usize, gap, MIN_PROBE_BYTES, packets as u16)
}

/// Returns the probability of the rarest random event of this direction; `None` without random events.
pub fn rarest_event_probability(conditions: &Conditions) -> Option<f64> {
    let loss = conditions.loss.as_ref().map(|loss| match loss {
        Loss::Bernoulli { p, .. } => *p,
        Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
            (to_bad * p_bad + to_good * p_good) / (to_bad + to_good)
        }
        // A pattern is deterministic, so a few periods suffice.
        Loss::Pattern { every, .. } => 200.0 / *every as f64,
    });
    let others = [conditions.duplicate.map(|d| d.p), conditions.reorder.map(|r| r.p)];
    others.into_iter().chain([loss]).flatten().filter(|p| *p > 0.0).reduce(f64::min)
}

/// Returns two series: probes so far apart that each samples its own jitter, and probes so close that jitter could
/// reorder them. Both are empty without jitter.
pub fn jitter_probes(conditions: &Conditions, budget: &TrafficBudget) -> (Vec<ProbeSend>, Vec<ProbeSend>) {
    let Some(settings) = conditions.jitter else { return (Vec::new(), Vec::new()) };
    let least = (2 * serialisation_time(conditions, MIN_PROBE_BYTES)).max(SECOND / 1000);
    let wide = if settings.reorder { least } else { jitter::min_spacing(settings).max(least) };
    let narrow = (nanos(settings.scale) / 10).max(least);
    let count = jitter::sample_size(settings, budget.jitter_probes);
    (regular_probes(count, wide, MIN_PROBE_BYTES), regular_probes(budget.jitter_probes, narrow, MIN_PROBE_BYTES))
}

/// Returns the time without arrivals after which no packet can arrive any more: the sum of the delay, the maxima of
/// jitter, reordering and transmission, and a margin of 200 ms.
pub fn silence_timeout(conditions: &Conditions, mtu: u32) -> Nanos {
    let jitter = conditions.jitter.map_or(0, |jitter| 20 * nanos(jitter.scale));
    let held_back = conditions.reorder.map_or(0, |reorder| nanos(reorder.by));
    conditions.delay.map_or(0, nanos) + jitter + held_back + 2 * serialisation_time(conditions, mtu) + SECOND / 5
}

/// Returns the transmission time of a packet of `bytes` on the slowest line, in nanoseconds; 0 without a rate.
fn serialisation_time(conditions: &Conditions, bytes: u32) -> Nanos {
    let slowest = [conditions.rate, conditions.access_rate].into_iter().flatten().min();
    slowest.map_or(0, |rate| transmission_time(bytes + conditions.count.overhead(), rate.bits_per_second()))
}

/// Returns the number of packets of `bytes` that fit into the queue, at least 1.
fn queue_capacity(conditions: &Conditions, bytes: u32) -> u64 {
    let Some(limit) = conditions.queue.as_ref().map(QueueKind::limit) else { return u64::MAX };
    match limit {
        QueueLimit::Packets(packets) => packets.max(1),
        QueueLimit::Bytes(limit) => (limit / u64::from(bytes + conditions.count.overhead())).max(1),
    }
}

#[cfg(test)]
mod tests;

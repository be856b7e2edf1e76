//! Which rows of the table apply to which direction, and with how much traffic each is measured.

use super::expectation::transmission;
use super::jitter;
use super::probe::{SMALLEST, Shot, bursts, regular};
use super::row::Place;
use super::transport::{Law, Periodic};
use crate::Nanos;
use crate::conditions::{Conditions, Limit, Loss, QueueKind};
use crate::nanos;
use crate::topology::Lab;

const SECOND: Nanos = 1_000_000_000;

/// How thorough a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// A few seconds for each link: what a run must not start without.
    Quick,
    /// The published criteria.
    Full,
}

/// One series of traffic, and what is learnt from it.
#[derive(Debug, Clone, Copy)]
pub enum Measure {
    /// Fixed delay, unloaded.
    Delay,
    /// Delay at 80 % of the rate.
    Loaded,
    /// Round trips.
    Ping,
    /// The rate, over seconds and over ten milliseconds.
    Rate,
    /// The spacing of packets sent back to back.
    Spacing,
    /// The law of the jitter, and order.
    Jitter,
    /// Loss, duplicates, packets held back.
    Chance,
    /// The decisions of the queue.
    Queue,
    /// A transfer by TCP.
    Transfer(Periodic),
}

/// What else may run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Nothing: it measures microseconds.
    None,
    /// Others that send a few hundred packets a second.
    Light,
    /// Whatever is on other links.
    Any,
}

impl Measure {
    /// What else may run at the same time.
    pub const fn company(&self) -> Company {
        match self {
            Self::Delay | Self::Loaded | Self::Ping | Self::Rate | Self::Spacing => Company::None,
            Self::Jitter => Company::Light,
            Self::Chance | Self::Queue | Self::Transfer(_) => Company::Any,
        }
    }
}

/// What applies to a direction.
pub fn measures(place: &Place<'_>, lab: &Lab) -> Vec<Measure> {
    let (here, back) = if place.forward {
        (&place.link.forward, &place.link.reverse)
    } else {
        (&place.link.reverse, &place.link.forward)
    };
    if here.down || back.down {
        return Vec::new();
    }
    let mut measures = Vec::new();
    let punctual = is_punctual(here);
    let rated = here.rate.is_some();
    let lossless = |c: &Conditions| c.loss.is_none() && c.duplicate.is_none();
    let both_ways = punctual && is_punctual(back) && here.delay.is_some() && back.delay.is_some();
    let theory = periodic(place, here, back, lab).filter(|_| both_ways && lossless(back));
    measures.extend(theory.map(Measure::Transfer));
    let mut add = |applies: bool, measure| measures.extend(applies.then_some(measure));
    add(punctual && here.delay.is_some(), Measure::Delay);
    add(punctual && rated, Measure::Loaded);
    add(punctual && rated && here.duplicate.is_none() && keeps_line_busy(here), Measure::Rate);
    add(punctual && rated, Measure::Spacing);
    add(place.forward && both_ways && lossless(here) && lossless(back), Measure::Ping);
    add(here.jitter.is_some() && here.reorder.is_none(), Measure::Jitter);
    add(here.loss.is_some() || here.duplicate.is_some() || here.reorder.is_some(), Measure::Chance);
    add(rated && here.queue.is_some() && here.access_rate.is_none(), Measure::Queue);
    measures
}

/// Whether an overload keeps the line busy: queue management may drop more than the excess.
const fn keeps_line_busy(conditions: &Conditions) -> bool {
    matches!(conditions.queue, None | Some(QueueKind::TailDrop { .. }))
}

const fn is_punctual(conditions: &Conditions) -> bool {
    conditions.jitter.is_none() && conditions.reorder.is_none()
}

/// The path that theory is compared with: constant delay, one loss in so many packets, a congestion control with a law.
fn periodic(place: &Place<'_>, here: &Conditions, back: &Conditions, lab: &Lab) -> Option<Periodic> {
    let law = Law::of(lab.hosts.get(place.from())?.congestion.as_deref()?)?;
    let Some(Loss::Pattern { every, lost, .. }) = &here.loss else { return None };
    let free = lost.len() == 1 && here.rate.is_none() && back.rate.is_none() && here.duplicate.is_none();
    let rtt = (here.delay?.0 + back.delay?.0).as_secs_f64();
    free.then_some(Periodic { law, every: *every, rtt, mtu: place.link.mtu })
}

/// How much traffic there is.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Probes of a fixed delay.
    pub delays: usize,
    /// Pings.
    pub pings: u16,
    /// How long a line is overloaded for its rate.
    pub rate: Nanos,
    /// How many bursts show the spacing.
    pub bursts: usize,
    /// How many packets show a law of jitter, at most.
    pub jitter: usize,
    /// How many losses there should be.
    pub losses: f64,
    /// How long that may take.
    pub patience: Nanos,
    /// How long a queue is watched.
    pub queue: Nanos,
    /// How many cycles of congestion avoidance are compared.
    pub cycles: u64,
}

impl Budget {
    /// What is sent for a check of this size.
    pub const fn of(size: Size) -> Self {
        match size {
            Size::Full => Self {
                delays: 10_000,
                pings: 2000,
                rate: 10 * SECOND,
                bursts: 50,
                jitter: 2000,
                losses: 1600.0,
                patience: 30 * SECOND,
                queue: 6 * SECOND,
                cycles: 6,
            },
            Size::Quick => Self {
                delays: 1000,
                pings: 500,
                rate: 2 * SECOND,
                bursts: 10,
                jitter: 200,
                losses: 200.0,
                patience: 3 * SECOND,
                queue: 2 * SECOND,
                cycles: 3,
            },
        }
    }
}

/// No more calls a second than a small machine makes punctually.
const CALLS_PER_SECOND: u64 = 4000;

/// Probes that wait for nothing, four thousand a second where the line is fast enough.
pub fn delays(conditions: &Conditions, budget: &Budget) -> Vec<Shot> {
    let gap = (2 * on_line(conditions, SMALLEST)).max(SECOND / CALLS_PER_SECOND);
    regular(budget.delays.min((10 * SECOND / gap) as usize), gap, SMALLEST)
}

/// Packets that fill the line to `percent`, as full as lets a few hundred of them pass a second, for `lasts`.
pub fn load(conditions: &Conditions, mtu: u32, percent: u64, lasts: Nanos) -> Vec<Shot> {
    let Some(rate) = conditions.rate else { return Vec::new() };
    let bytes = (rate.bits_per_second() / 8 / 400).clamp(u64::from(SMALLEST), u64::from(mtu)) as u32;
    let gap = on_line(conditions, bytes) * 100 / percent;
    let together = (SECOND / CALLS_PER_SECOND).div_ceil(gap.max(1)).min(40);
    let count = (lasts / (gap * together).max(1)).max(600 / together);
    bursts(count as usize, gap * together, bytes, together as u16)
}

/// Bursts of full packets, each after the one before has left.
pub fn spacings(conditions: &Conditions, mtu: u32, budget: &Budget) -> Vec<Shot> {
    let packets = u64::from(60_000 / mtu).min(10).min(room(conditions, mtu));
    let gap = on_line(conditions, mtu) * packets * 2 + SECOND / 200;
    let count = (budget.bursts as u64).min(5 * SECOND / gap).max(3);
    bursts(count as usize, gap, mtu, packets as u16)
}

/// Superpackets of small packets, as many as lead to the budgeted number of events of probability `p` each.
pub fn chances(conditions: &Conditions, p: f64, budget: &Budget) -> Vec<Shot> {
    const PACKETS: u64 = 30;
    const PER_SECOND: u64 = 8000;
    let packets = PACKETS.min(room(conditions, SMALLEST) / 2).max(1);
    let gap = (on_line(conditions, SMALLEST) * 2).max(SECOND / PER_SECOND) * packets;
    let wanted = (budget.losses / p).min(1e9) as u64 / packets + 1;
    bursts(wanted.min(budget.patience / gap) as usize, gap, SMALLEST, packets as u16)
}

/// How often the rarest of what chance does here happens, if anything does.
pub fn rarest(conditions: &Conditions) -> Option<f64> {
    let loss = conditions.loss.as_ref().map(|loss| match loss {
        Loss::Bernoulli { p, .. } => *p,
        Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
            (to_bad * p_bad + to_good * p_good) / (to_bad + to_good)
        }
        // A pattern needs no statistics: a few rounds of it.
        Loss::Pattern { every, .. } => 200.0 / *every as f64,
    });
    let others = [conditions.duplicate.map(|d| d.p), conditions.reorder.map(|r| r.p)];
    others.into_iter().chain([loss]).flatten().filter(|p| *p > 0.0).reduce(f64::min)
}

/// Probes far enough apart that each shows its own jitter, and others so close that they would overtake.
pub fn jitters(conditions: &Conditions, budget: &Budget) -> (Vec<Shot>, Vec<Shot>) {
    let Some(settings) = conditions.jitter else { return (Vec::new(), Vec::new()) };
    let least = (2 * on_line(conditions, SMALLEST)).max(SECOND / 1000);
    let apart = if settings.reorder { least } else { jitter::distance(settings).max(least) };
    let close = (nanos(settings.scale) / 10).max(least);
    let count = jitter::packets(settings, budget.jitter);
    (regular(count, apart, SMALLEST), regular(budget.jitter, close, SMALLEST))
}

/// How much may be silent before nothing more will come: the delay, and what may come on top.
pub fn silence(conditions: &Conditions, mtu: u32) -> Nanos {
    let jitter = conditions.jitter.map_or(0, |jitter| 20 * nanos(jitter.scale));
    let held_back = conditions.reorder.map_or(0, |reorder| nanos(reorder.by));
    conditions.delay.map_or(0, nanos) + jitter + held_back + 2 * on_line(conditions, mtu) + SECOND / 5
}

/// How long the line is busy with a packet of `bytes`.
fn on_line(conditions: &Conditions, bytes: u32) -> Nanos {
    let slowest = [conditions.rate, conditions.access_rate].into_iter().flatten().min();
    slowest.map_or(0, |rate| transmission(bytes + conditions.count.overhead(), rate.bits_per_second()))
}

/// How many packets of `bytes` the queue has room for, with the one on the line.
fn room(conditions: &Conditions, bytes: u32) -> u64 {
    let limit = match &conditions.queue {
        Some(QueueKind::TailDrop { limit }) => *limit,
        Some(QueueKind::Red(settings)) => settings.limit,
        Some(QueueKind::StaticPriority(settings)) => settings.limit,
        Some(QueueKind::DynamicPriority(settings)) => settings.limit,
        Some(QueueKind::Auto(settings)) => settings.limit,
        Some(QueueKind::Codel(settings)) => settings.limit,
        Some(QueueKind::FqCodel(settings)) => settings.limit,
        None => return u64::MAX,
    };
    match limit {
        Limit::Packets(packets) => packets.max(1),
        Limit::Bytes(limit) => (limit / u64::from(bytes + conditions.count.overhead())).max(1),
    }
}

#[cfg(test)]
mod tests;

//! Random early detection: figure 2 of Floyd and Jacobson 1993, in its original variables, with the gentle form of
//! Floyd 2000 and the marks of RFC 3168, and with another factor of the probability for some packets.
//!
//! Numbers are the fixed-point numbers of the specification at the head of the emulator's `queue/red.rs`, computed in
//! 128 bits. As in the paper, `count` begins at -1 and is incremented before use; the specification instead increments
//! it for the next packet.

use ekiden_proto::units::Rate;

use super::{OutcomeLog, QueueModel, amount, fits, limit_value};
use ekiden_emulator::Nanos;
use ekiden_emulator::conditions::RedSettings;
use ekiden_emulator::ledger::DropCause;
use ekiden_emulator::packet::{Ecn, Packet};
use ekiden_emulator::rng::SeededRng;

/// A level or a weight of 1.
const UNIT: u128 = 1 << 24;
/// A probability of 1.
const CERTAIN: u128 = 1 << 32;

pub struct RedModel {
    settings: RedSettings,
    /// For each class, the factor on the probability, and the number of packets since the last hit.
    classes: [(f64, i64); 2],
    rng: SeededRng,
    waiting: Vec<Packet>,
    avg: u128,
    /// Time at which the queue became idle, or of the last arrival.
    q_time: Nanos,
    /// Remainder of the idle time, in nanoseconds, less than `s`.
    idle_remainder: u64,
    /// The transmission time of a typical packet, in nanoseconds.
    s: u64,
}

/// Converts a number to fixed point, in units of 1/`unit`, rounded to nearest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "settings are small and not negative")]
fn fixed(number: f64, unit: u128) -> u128 {
    (number * unit as f64).round() as u128
}

impl RedModel {
    /// Creates a model with two classes of packets; those of class 1 are hit `n` times as often as those of class 0.
    pub fn new(settings: RedSettings, n: f64, rate: Rate, rng: SeededRng) -> Self {
        let s = 1500 * 8_000_000_000 / rate.bits_per_second();
        let classes = [(1.0, -1), (n, -1)];
        Self { settings, classes, rng, waiting: Vec::new(), avg: 0, q_time: 0, idle_remainder: 0, s: s.max(1) }
    }

    /// Updates the average for an arrival at `time`.
    fn update_average(&mut self, time: Nanos) {
        let q = u128::from(amount(&self.waiting, self.settings.limit));
        let wq = fixed(self.settings.wq, UNIT);
        if q > 0 {
            self.avg = self.avg - self.avg * wq / UNIT + q * wq;
            self.idle_remainder = 0;
        } else {
            let idle = self.idle_remainder + (time - self.q_time);
            self.idle_remainder = idle % self.s;
            self.decay_average(idle / self.s);
        }
        self.q_time = time;
    }

    /// Decays the average as `m` arrivals at an empty queue would.
    fn decay_average(&mut self, mut m: u64) {
        if m >= 1 << 24 {
            self.avg = 0;
        }
        let mut factor = 1.0 - self.settings.wq;
        while m > 0 {
            if m % 2 == 1 {
                self.avg = self.avg * fixed(factor, UNIT) / UNIT;
            }
            (factor, m) = (factor * factor, m / 2);
        }
    }

    /// The probability of a hit, without regard to the time since the last hit; `None` below `min`.
    fn probability(&self) -> Option<u128> {
        let [min, max] = [self.settings.min, self.settings.max].map(|level| u128::from(limit_value(level)) * UNIT);
        let max_p = fixed(self.settings.p, CERTAIN);
        if self.avg < min {
            None
        } else if self.avg < max {
            Some(self.progress_from(min, max) * max_p / scaled_distance(min, max))
        } else if self.settings.gentle && self.avg < 2 * max {
            Some(max_p + self.progress_from(max, 2 * max) * (CERTAIN - max_p) / scaled_distance(max, 2 * max))
        } else {
            Some(u128::MAX)
        }
    }

    /// The distance of the average from `from`, in the unit of [`scaled_distance`].
    fn progress_from(&self, from: u128, to: u128) -> u128 {
        (self.avg - from) / step_divisor(from, to)
    }

    /// Decides on the packet, and marks it if the decision is a mark. Returns the cause if the packet is dropped.
    fn decide(&mut self, packet: &mut Packet, class: usize) -> Option<DropCause> {
        let Some(pb) = self.probability() else {
            self.classes.iter_mut().for_each(|(_, count)| *count = -1);
            return None;
        };
        if pb == u128::MAX {
            self.classes.iter_mut().for_each(|(_, count)| *count = 0);
            return Some(DropCause::Forced);
        }
        let (n, count) = &mut self.classes[class];
        let pb = (pb * fixed(*n, 1 << 16) / (1 << 16)).min(CERTAIN);
        *count += 1;
        let used = u128::try_from(*count).unwrap_or(0) * pb;
        let random = u128::from(self.rng.bits(packet.number) >> 32);
        if pb < CERTAIN && used < CERTAIN && random * (CERTAIN - used) >= pb * CERTAIN {
            return None;
        }
        *count = 0;
        if self.settings.ecn && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Marked;
            return None;
        }
        Some(DropCause::Early)
    }

    /// Handles the arrival of a packet of the class `class`.
    pub fn arrive_as(&mut self, class: usize, mut packet: Packet, journal: &mut OutcomeLog) {
        self.update_average(packet.at);
        if let Some(cause) = self.decide(&mut packet, class) {
            journal.record_drop(&packet, packet.at, cause);
        } else if fits(&self.waiting, &packet, self.settings.limit) {
            self.waiting.push(packet);
        } else {
            journal.record_drop(&packet, packet.at, DropCause::Full);
        }
    }
}

/// The smallest power of two that divides a distance into fewer than 2^32 parts.
fn step_divisor(from: u128, to: u128) -> u128 {
    let mut grain = 1;
    while (to - from) / grain >= 1 << 32 {
        grain *= 2;
    }
    grain
}

fn scaled_distance(from: u128, to: u128) -> u128 {
    (to - from) / step_divisor(from, to)
}

impl QueueModel for RedModel {
    fn arrive(&mut self, packet: Packet, journal: &mut OutcomeLog) {
        self.arrive_as(0, packet, journal);
    }

    fn take(&mut self, now: Nanos, _journal: &mut OutcomeLog) -> Option<Packet> {
        if self.waiting.is_empty() {
            return None;
        }
        let packet = self.waiting.remove(0);
        if self.waiting.is_empty() {
            self.q_time = now;
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::super::{ReferenceOutcome, simulate_line};
    use super::*;
    use ekiden_emulator::conditions::{QueueKind, QueueLimit};

    fn rate() -> Rate {
        "12Mbit/s".parse().unwrap()
    }

    fn settings(p: f64, wq: f64) -> RedSettings {
        let [limit, min, max] = [1000, 5, 15].map(QueueLimit::Packets);
        RedSettings { limit, min, max, p, wq, gentle: false, ecn: false }
    }

    /// The outcomes of `count` packets that arrive at once. With a weight of 1, the average is the length of the queue
    /// before each arrival.
    fn burst(settings: RedSettings, count: u64, ecn: Ecn) -> Vec<ReferenceOutcome> {
        let arrivals: Vec<Packet> = (0..count).map(|n| Packet { ecn, ..packet(n, 0, 1500) }).collect();
        simulate_line(&arrivals, rate(), &QueueKind::Red(settings), SeededRng::new(7))
    }

    fn dropped(outcomes: &[ReferenceOutcome], wanted: DropCause) -> usize {
        outcomes
            .iter()
            .filter(|outcome| matches!(outcome, ReferenceOutcome::Dropped { cause, .. } if *cause == wanted))
            .count()
    }

    #[test]
    fn with_a_weight_of_one_the_queue_is_held_at_the_upper_threshold() {
        let outcomes = burst(settings(0.0, 1.0), 100, Ecn::NotCapable);
        assert_eq!(dropped(&outcomes, DropCause::Early), 0, "a probability of 0");
        assert_eq!(dropped(&outcomes, DropCause::Forced), 100 - 16, "one packet on the line, 15 in the queue");
        let outcomes = burst(RedSettings { gentle: true, ..settings(0.0, 1.0) }, 1000, Ecn::NotCapable);
        assert!(dropped(&outcomes, DropCause::Early) > 0, "the probability rises above the upper threshold");
        assert!(outcomes.iter().filter(|outcome| matches!(outcome, ReferenceOutcome::Sent { .. })).count() > 20);
    }

    /// Section 5 of the paper: with the probability `pa` the distance between two hits is uniform. By its figure 2,
    /// which sets `count` to 0 at a hit and increments it before the next packet, the distance is from 1 to 1/pb - 1.
    #[test]
    fn distances_between_hits_are_uniform() {
        let mut red = RedModel::new(settings(0.1, 1.0), 1.0, rate(), SeededRng::new(3));
        red.avg = 10 * UNIT;
        let mut last = 0;
        let mut counts = [0_u64; 19];
        for number in 0..200_000 {
            if red.decide(&mut packet(number, 0, 1500), 0).is_some() {
                counts[usize::try_from(number - last).unwrap() - 1] += 1;
                last = number;
            }
        }
        let expected = [f64::from(u32::try_from(counts.iter().sum::<u64>()).unwrap()) / 19.0; 19];
        assert!(crate::stats::chi_square(&counts, &expected) > 0.001, "{counts:?}");
    }

    /// The average is a tenth of the distance from `min` to `max`: probabilities of 0.01, and of 0.04 for heavy flows.
    #[test]
    fn heavy_flows_are_hit_n_times_as_often() {
        let mut red = RedModel::new(settings(0.1, 1.0), 4.0, rate(), SeededRng::new(3));
        red.avg = 6 * UNIT;
        let mut hits = [0_u64; 2];
        for number in 0..400_000 {
            // Seven of eight packets are heavy.
            let class = usize::from(number % 8 != 0);
            hits[class] += u64::from(red.decide(&mut packet(number, 0, 1500), class).is_some());
        }
        let [others, heavy] = hits.map(|hits| hits as f64);
        let ratio = heavy / 7.0 / others;
        assert!((3.8..4.2).contains(&ratio), "{hits:?}: {ratio}");
    }

    #[test]
    fn marks_replace_early_drops_but_not_forced_drops() {
        let ecn = RedSettings { ecn: true, ..settings(0.9, 1.0) };
        let outcomes = burst(ecn, 300, Ecn::Capable);
        assert_eq!(dropped(&outcomes, DropCause::Early), 0);
        assert!(dropped(&outcomes, DropCause::Forced) > 0);
        assert!(outcomes.iter().any(|outcome| matches!(outcome, ReferenceOutcome::Sent { marked: true, .. })));
        assert!(dropped(&burst(ecn, 300, Ecn::NotCapable), DropCause::Early) > 0);
    }

    /// 1500 bytes take 1 ms. An idle time of three packets decays the average as three arrivals at an empty queue do.
    /// The remainder of half a packet counts at the next arrival.
    #[test]
    fn idle_time_decays_the_average() {
        let mut red = RedModel::new(settings(0.1, 0.5), 1.0, rate(), SeededRng::new(1));
        (red.avg, red.q_time) = (8 * UNIT, 500_000);
        red.update_average(500_000 + 3_500_000);
        assert_eq!(red.avg, UNIT);
        red.update_average(500_000 + 4_000_000);
        assert_eq!(red.avg, UNIT / 2);
        red.update_average(Nanos::MAX);
        assert_eq!(red.avg, 0);
    }
}

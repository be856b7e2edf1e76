//! Random early detection: figure 2 of Floyd and Jacobson 1993, in its original variables, with the gentle form of Floyd
//! 2000 and the marks of RFC 3168.
//!
//! The paper leaves to its reader what a typical packet's time on the line is: here it is that of 1500 bytes, by the last
//! packet that others waited for.

use super::{Journal, Model, amount, fits, number};
use crate::Nanos;
use crate::conditions::RedSettings;
use crate::dice::Dice;
use crate::ledger::Cause;
use crate::packet::{Ecn, Packet};

pub struct Red {
    settings: RedSettings,
    dice: Dice,
    waiting: Vec<Packet>,
    avg: f64,
    count: i64,
    q_time: Nanos,
    /// What went onto the line last, and when.
    on_line: Option<(Packet, Nanos)>,
    /// The time of a typical packet on the line, in nanoseconds.
    s: Option<f64>,
}

impl Red {
    pub const fn new(settings: RedSettings, dice: Dice) -> Self {
        Self { settings, dice, waiting: Vec::new(), avg: 0.0, count: -1, q_time: 0, on_line: None, s: None }
    }

    /// Moves the average on, for an arrival at `time`.
    #[allow(clippy::cast_precision_loss, reason = "spans and queues are far below 2^53")]
    fn average(&mut self, time: Nanos) {
        let (wq, q) = (self.settings.wq, amount(&self.waiting, self.settings.limit) as f64);
        if !self.waiting.is_empty() {
            self.avg = (1.0 - wq) * self.avg + wq * q;
        } else if let Some(s) = self.s {
            let m = (time - self.q_time) as f64 / s;
            self.avg *= (1.0 - wq).powf(m);
        } else {
            self.avg = 0.0;
        }
    }

    /// The probability that the law hits a packet, without regard to how long ago it hit the last. None when it cannot.
    #[allow(clippy::cast_precision_loss, reason = "thresholds are far below 2^53")]
    fn probability(&self) -> Option<f64> {
        let (min, max) = (number(self.settings.min) as f64, number(self.settings.max) as f64);
        let max_p = self.settings.p;
        if self.avg < min {
            None
        } else if self.avg < max {
            Some(max_p * (self.avg - min) / (max - min))
        } else if self.settings.gentle && self.avg < 2.0 * max {
            Some(max_p + (1.0 - max_p) * (self.avg - max) / max)
        } else {
            Some(f64::INFINITY)
        }
    }

    /// What the law does to the packet: it may mark it. The cause, if it drops it.
    #[allow(clippy::cast_precision_loss, reason = "a count of packets")]
    fn judge(&mut self, packet: &mut Packet) -> Option<Cause> {
        let Some(pb) = self.probability() else {
            self.count = -1;
            return None;
        };
        if pb.is_infinite() {
            self.count = 0;
            return Some(Cause::Forced);
        }
        self.count += 1;
        let used = self.count as f64 * pb;
        let pa = if used < 1.0 { pb / (1.0 - used) } else { 1.0 };
        if !self.dice.happens(packet.number, pa) {
            return None;
        }
        self.count = 0;
        if self.settings.ecn && packet.ecn != Ecn::NotCapable {
            packet.ecn = Ecn::Marked;
            return None;
        }
        Some(Cause::Early)
    }
}

impl Model for Red {
    fn arrive(&mut self, mut packet: Packet, journal: &mut Journal) {
        self.average(packet.at);
        if let Some(cause) = self.judge(&mut packet) {
            journal.drop(&packet, packet.at, cause);
        } else if fits(&self.waiting, &packet, self.settings.limit) {
            self.waiting.push(packet);
        } else {
            journal.drop(&packet, packet.at, Cause::Full);
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "spans are far below 2^53")]
    fn take(&mut self, now: Nanos, _journal: &mut Journal) -> Option<Packet> {
        if self.waiting.is_empty() {
            return None;
        }
        let packet = self.waiting.remove(0);
        if packet.at < now
            && let Some((before, since)) = self.on_line
            && since < now
        {
            self.s = Some((now - since) as f64 * 1500.0 / f64::from(before.bytes));
        }
        self.on_line = Some((packet, now));
        if self.waiting.is_empty() {
            self.q_time = now;
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::packet;
    use super::super::{Outcome, line};
    use super::*;
    use crate::conditions::{Limit, QueueKind};

    fn settings(p: f64, wq: f64) -> RedSettings {
        let [limit, min, max] = [1000, 5, 15].map(Limit::Packets);
        RedSettings { limit, min, max, p, wq, gentle: false, ecn: false }
    }

    /// `count` packets at once, all but the first wait: with a weight of 1 the average is the queue before each.
    fn burst(settings: RedSettings, count: u64, ecn: Ecn) -> Vec<Outcome> {
        let arrivals: Vec<Packet> = (0..count).map(|n| Packet { ecn, ..packet(n, 0, 1500) }).collect();
        line(&arrivals, "12Mbit/s".parse().unwrap(), &QueueKind::Red(settings), Dice::new(7))
    }

    fn dropped(outcomes: &[Outcome], wanted: Cause) -> usize {
        outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Dropped { cause, .. } if *cause == wanted)).count()
    }

    #[test]
    fn with_a_weight_of_one_the_queue_is_held_at_the_upper_threshold() {
        let outcomes = burst(settings(0.0, 1.0), 100, Ecn::NotCapable);
        assert_eq!(dropped(&outcomes, Cause::Early), 0, "a probability of 0");
        assert_eq!(dropped(&outcomes, Cause::Forced), 100 - 16, "one on the line, 15 waiting");
        let outcomes = burst(RedSettings { gentle: true, ..settings(0.0, 1.0) }, 1000, Ecn::NotCapable);
        assert!(dropped(&outcomes, Cause::Early) > 0, "the probability rises above the upper threshold");
        assert!(outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Sent { .. })).count() > 20);
    }

    /// Section 5 of the paper: the law of `pa` makes the distance between two hits uniform. By its figure 2, which sets
    /// `count` to 0 at a hit and raises it before the next packet, that is from 1 to 1/pb - 1.
    #[test]
    fn hits_are_evenly_spread() {
        let mut red = Red::new(settings(0.1, 0.0), Dice::new(3));
        red.avg = 10.0;
        let mut last = 0;
        let mut counts = [0_u64; 19];
        for number in 0..200_000 {
            if red.judge(&mut packet(number, 0, 1500)).is_some() {
                counts[usize::try_from(number - last).unwrap() - 1] += 1;
                last = number;
            }
        }
        let expected = [f64::from(u32::try_from(counts.iter().sum::<u64>()).unwrap()) / 19.0; 19];
        assert!(crate::stats::chi_square(&counts, &expected) > 0.001, "{counts:?}");
    }

    #[test]
    fn marks_replace_early_drops_but_not_forced_ones() {
        let ecn = RedSettings { ecn: true, ..settings(0.9, 1.0) };
        let outcomes = burst(ecn, 300, Ecn::Capable);
        assert_eq!(dropped(&outcomes, Cause::Early), 0);
        assert!(dropped(&outcomes, Cause::Forced) > 0);
        assert!(outcomes.iter().any(|outcome| matches!(outcome, Outcome::Sent { marked: true, .. })));
        assert!(dropped(&burst(ecn, 300, Ecn::NotCapable), Cause::Early) > 0);
    }

    /// The line has shown that 1500 bytes take 1 ms; ten of them after the queue was left empty, the average is as if
    /// ten packets had met an empty queue.
    #[test]
    fn an_idle_queue_forgets() {
        let mut red = Red::new(settings(0.1, 0.5), Dice::new(1));
        let mut journal = Journal::default();
        red.arrive(packet(0, 0, 750), &mut journal);
        red.take(0, &mut journal);
        red.arrive(packet(1, 100, 1500), &mut journal);
        red.take(500_000, &mut journal);
        assert_eq!((red.s, red.q_time), (Some(1e6), 500_000));
        red.avg = 8.0;
        red.average(500_000 + 3_000_000);
        assert!((red.avg - 1.0).abs() < 1e-12, "{}", red.avg);
    }
}

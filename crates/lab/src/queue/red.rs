//! Random early detection (Floyd, Jacobson: Random early detection gateways for congestion avoidance, IEEE/ACM
//! Transactions on Networking 1(4), 1993), with the gentle form (Floyd 2000) and with marks (RFC 3168).
//!
//! # Specification
//!
//! State: `avg` = 0.0 and `count` = -1 (the packets since the last that was hit); `emptied` = 0, the time at which the
//! queue was last left empty; `s`, the time of a typical packet on the line, in nanoseconds, unknown at first. All levels
//! are in the unit of `limit`; `min` and `max` are read in that unit.
//!
//! On the arrival of a packet at time `t`, with `q` waiting before it:
//!
//! 1. The average. If `q > 0`: `avg = (1 - wq) * avg + wq * q`. If `q == 0`: `m = (t - emptied) / s` and
//!    `avg = avg * (1 - wq)^m`, with `m` a fraction and the power that of `f64::powf`; while `s` is unknown, `avg = 0`.
//! 2. Where it is. With `gentle`, `top = 2 * max`, otherwise `top = max`.
//!    * `avg < min`: `count = -1`. On to 3.
//!    * `avg >= top`: `count = 0`, and the packet is dropped as [`Cause::Forced`], capable or not (RFC 3168 section 7
//!      recommends drops above the upper threshold).
//!    * Otherwise: `count = count + 1`. If `avg < max`, `pb = p * (avg - min) / (max - min)`, otherwise
//!      `pb = p + (1 - p) * (avg - max) / max`. If `count * pb >= 1`, `pa = 1`, otherwise `pa = pb / (1 - count * pb)`.
//!      The packet is hit if `dice.happens(packet.number, pa)`; then `count = 0`, and it is marked if `ecn` and it is
//!      capable, otherwise dropped as [`Cause::Early`].
//! 3. The room. A packet that is not dropped yet goes to the tail if the limit holds with it; otherwise it is dropped as
//!    [`Cause::Full`], which changes neither `avg` nor `count`.
//!
//! On departure at time `t`: the head is taken. If it had waited (it arrived before `t`), then the line was busy until `t`
//! with the packet that departed before it, of `b` bytes at time `u`; if also `t > u`, then
//! `s = (t - u) * 1500 / b`: the time the line would now take for 1500 bytes. If nothing waits any longer, `emptied = t`.
//!
//! # Differences
//!
//! | | here | the paper | the Linux kernel's red |
//! |---|---|---|---|
//! | what waits | not the packet on the line | the buffer | not the packet on the line |
//! | unit | packets or bytes | packets or bytes | bytes |
//! | average | a double | a shift | fixed point, `wq` a power of two |
//! | idle decay | by `m`, a fraction; `s` measured on the line | by `m`; `s` a setting | a table of powers; packet size and rate are settings |
//! | idle since | the queue was left empty | the same | the line was refused a packet |
//! | randomness | one throw for each packet | the same, or one for each interval | one for each interval |
//! | size of the packet | plays no part (RFC 7141 section 2.2) | in byte mode, scales `pb` | plays no part |
//! | above `max` | drop, or gentle | mark all | capable packets are marked, unless `harddrop` |
//! | gentle | a setting | no | no (`adaptative` moves `p` instead) |

use crate::Nanos;
use crate::conditions::RedSettings;
use crate::dice::Dice;
use crate::ledger::{Cause, Ledger};
use crate::packet::Packet;
use crate::queue::fifo::Fifo;
use crate::queue::{Held, Queue, amount, mark};

#[cfg(test)]
mod tests;

/// What a typical packet measures, in bytes.
const TYPICAL_PACKET: f64 = 1500.0;

/// A queue that drops at random, the more the longer it has been long.
#[derive(Debug)]
pub struct Red {
    settings: RedSettings,
    min: f64,
    max: f64,
    dice: Dice,
    waiting: Fifo,
    average: f64,
    /// Packets since the last one that was hit; -1 below `min`.
    count: i64,
    /// When the queue was last left empty.
    emptied: Nanos,
    /// When the last packet departed, and its size.
    departed: Option<(Nanos, u32)>,
    /// How long the line takes for a typical packet, in nanoseconds.
    typical_time: Option<f64>,
}

/// What the law says about a packet.
enum Verdict {
    Pass,
    Hit,
    Forced,
}

impl Red {
    /// An empty queue. Thresholds are taken as amounts in the unit of the limit.
    #[must_use]
    pub fn new(settings: RedSettings, dice: Dice) -> Self {
        Self {
            settings,
            min: amount(settings.min) as f64,
            max: amount(settings.max) as f64,
            dice,
            waiting: Fifo::default(),
            average: 0.0,
            count: -1,
            emptied: 0,
            departed: None,
            typical_time: None,
        }
    }

    fn update_average(&mut self, now: Nanos) {
        let level = self.held().level(self.settings.limit);
        let keep = 1.0 - self.settings.wq;
        if level > 0 {
            self.average = keep * self.average + self.settings.wq * level as f64;
        } else {
            let idle = (now - self.emptied) as f64;
            self.average = self.typical_time.map_or(0.0, |time| self.average * keep.powf(idle / time));
        }
    }

    /// The probability of a hit without regard to `count`: `pb` of the paper. None where every packet is dropped.
    fn probability(&self) -> Option<f64> {
        let RedSettings { p, gentle, .. } = self.settings;
        if self.average < self.max {
            Some(p * (self.average - self.min) / (self.max - self.min))
        } else if gentle && self.average < 2.0 * self.max {
            Some(p + (1.0 - p) * (self.average - self.max) / self.max)
        } else {
            None
        }
    }

    fn judge(&mut self, packet: &Packet) -> Verdict {
        if self.average < self.min {
            self.count = -1;
            return Verdict::Pass;
        }
        let Some(base) = self.probability() else {
            self.count = 0;
            return Verdict::Forced;
        };
        self.count += 1;
        if self.dice.happens(packet.number, spread(base, self.count)) {
            self.count = 0;
            return Verdict::Hit;
        }
        Verdict::Pass
    }

    /// Learns from a departure at `now` how long the line took for the one before.
    fn observe_line(&mut self, packet: &Packet, now: Nanos) {
        if let Some((since, bytes)) = self.departed
            && packet.at < now
            && since < now
        {
            self.typical_time = Some((now - since) as f64 * TYPICAL_PACKET / f64::from(bytes));
        }
        self.departed = Some((now, packet.bytes));
    }
}

/// Spreads hits evenly: `pa` of the paper, from `pb` and the packets since the last hit.
fn spread(base: f64, count: i64) -> f64 {
    let passed = count as f64 * base;
    if passed >= 1.0 { 1.0 } else { base / (1.0 - passed) }
}

impl Queue for Red {
    fn enqueue(&mut self, packet: Packet, ledger: &mut Ledger) {
        self.update_average(packet.at);
        let mut admitted = packet;
        match self.judge(&packet) {
            Verdict::Forced => ledger.drop(packet, Cause::Forced),
            Verdict::Hit if !(self.settings.ecn && mark(&mut admitted)) => ledger.drop(packet, Cause::Early),
            _ if !self.held().has_room(&packet, self.settings.limit) => ledger.drop(packet, Cause::Full),
            _ => self.waiting.push(admitted),
        }
    }

    fn dequeue(&mut self, now: Nanos, _ledger: &mut Ledger) -> Option<Packet> {
        let packet = self.waiting.pop()?;
        self.observe_line(&packet, now);
        if self.held().packets == 0 {
            self.emptied = now;
        }
        Some(packet)
    }

    fn held(&self) -> Held {
        self.waiting.held()
    }
}

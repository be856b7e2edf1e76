//! Random early detection (Floyd, Jacobson: Random early detection gateways for congestion avoidance, IEEE/ACM
//! Transactions on Networking 1(4), 1993), with the gentle form (Floyd 2000) and with marks (RFC 3168). The arithmetic is
//! [`ekiden_proto::aqm::red`], which the tc programs of `ekiden aqm` mirror.
//!
//! # Specification
//!
//! All numbers are integers; every quotient is rounded down. All levels are in the unit of `limit`, and `min` and `max`
//! are read in that unit. Averages, also `min` and `max` where they are compared with one, are in 2^-24; so is `wq`,
//! rounded to the nearest. Probabilities are in 2^-32: `1` is 2^32, and `p` is rounded to the nearest. `a >> h` is
//! `a / 2^h`.
//!
//! `keep[k]` is `(1 - wq)^(2^k)` for k from 0 to 23: squares of squares of the double `1 - wq`, with the settings' own
//! `wq`, each rounded to the nearest 2^-24 at last. `s` is the time of 1500 bytes on the line, in nanoseconds, and at
//! least 1: also on a line without a rate.
//!
//! State: `avg` = 0; `count` = 0, the packets since the last that was hit; `left` = 0, idle time that has not been counted.
//!
//! On the arrival of a packet, with `q` waiting before it and the queue idle for `i` nanoseconds, since it was left empty or
//! since the last arrival, whichever is later:
//!
//! 1. The average. If `q > 0`: `avg = avg - avg * wq / 2^24 + q * wq` and `left = 0`. If `q == 0`: with
//!    `m = (left + i) / s`, `left` becomes the remainder of that division, and `avg` becomes 0 if `m >= 2^24`; otherwise, for
//!    each bit `k` of `m` that is set, the lowest first, `avg = avg * keep[k] / 2^24`.
//! 2. Where it is. With `gentle`, `top = 2 * max`, otherwise `top = max`.
//!    * `avg < min`: `count = 0`. On to 3.
//!    * `avg >= top`: `count = 1`, and the packet is dropped as [`DropCause::Forced`], capable or not (RFC 3168 section 7
//!      recommends drops above the upper threshold).
//!    * Otherwise: if `avg < max`, `pb = r(min, max, p)`, otherwise `pb = p + r(max, top, 1 - p)`, where
//!      `r(from, to, rise) = ((avg - from) >> h) * rise / ((to - from) >> h)` with the least `h` for which
//!      `(to - from) >> h` is less than 2^32. With the upper 32 of the packet's 64 random bits as `u`, the packet is hit if
//!      `pb >= 1`, or `count * pb >= 1`, or `u * (1 - count * pb) < pb * 2^32`: with the probability
//!      `pb / (1 - count * pb)`. If it is hit, `count = 1`, and it is marked if `ecn` and it is capable, otherwise dropped
//!      as [`DropCause::Early`]. If not, `count = count + 1`, but never above 2^31.
//! 3. The room. A packet that is not dropped yet goes to the tail if the limit holds with it; otherwise it is dropped as
//!    [`DropCause::Full`], which changes neither `avg` nor `count`.
//!
//! # Differences
//!
//! | | here | the paper | the Linux kernel's red |
//! |---|---|---|---|
//! | what waits | not the packet on the line | the buffer | not the packet on the line |
//! | unit | packets or bytes | packets or bytes | bytes |
//! | average | fixed point, any `wq` | a shift | fixed point, `wq` a power of two |
//! | idle decay | by `m`, whole packets, the rest kept; `s` from the rate | by `m`; `s` a setting | a table of powers; packet size and rate are settings |
//! | idle since | the queue was left empty, or an arrival | the queue was left empty | the line was refused a packet |
//! | randomness | one throw for each packet | the same, or one for each interval | one for each interval |
//! | `count` below `min` | 0, for the next packet | -1, raised before use: the same | -1 |
//! | size of the packet | plays no part (RFC 7141 section 2.2) | in byte mode, scales `pb` | plays no part |
//! | above `max` | drop, or gentle | mark all | capable packets are marked, unless `harddrop` |
//! | gentle | a setting | no | no (`adaptative` moves `p` instead) |
//!
//! [`DropCause::Forced`]: crate::ledger::DropCause::Forced
//! [`DropCause::Early`]: crate::ledger::DropCause::Early
//! [`DropCause::Full`]: crate::ledger::DropCause::Full

use ekiden_proto::aqm::red::{self, RedParams, RedState};
use ekiden_proto::aqm::{self, Arrival, MAX_LEVEL, Verdict};
use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::dice::SeededRng;
use crate::queue::Queue;
use crate::queue::kind::{QueueErrors, QueueLimit, QueueSettings};
use crate::queue::managed::{DropPolicy, ManagedQueue};

#[cfg(test)]
mod tests;

/// Settings of RED. Limit and thresholds are all in packets or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedSettings {
    /// Capacity.
    pub limit: QueueLimit,
    /// Average queue length at which early drops begin.
    pub min: QueueLimit,
    /// Average queue length at which the drop probability is `p`.
    pub max: QueueLimit,
    /// Drop probability at `max`.
    pub p: f64,
    /// Weight of a new sample in the average.
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// Whether the probability rises linearly from `p` to 1 between `max` and twice `max`. Otherwise it jumps to 1 at
    /// `max`.
    #[serde(default)]
    pub gentle: bool,
    /// Whether ECN-capable packets are marked instead of dropped early.
    #[serde(default)]
    pub ecn: bool,
}

pub(super) const fn default_wq() -> f64 {
    0.002
}

impl RedSettings {
    /// Reports parameters of RED that are out of range.
    pub(super) fn validate_red(&self, errors: &mut QueueErrors) {
        if !(0.0..=1.0).contains(&self.p) {
            errors.report("p", "expected a probability between 0 and 1");
        }
        if !(1e-7..=1.0).contains(&self.wq) {
            errors.report("wq", "expected a weight from 0.0000001 to 1");
        }
        match (self.limit, self.min, self.max) {
            (QueueLimit::Packets(_), QueueLimit::Packets(min), QueueLimit::Packets(max))
            | (QueueLimit::Bytes(_), QueueLimit::Bytes(min), QueueLimit::Bytes(max)) => {
                if min >= max {
                    errors.report("min", format!("expected less than max, {}", self.max));
                }
            }
            _ => errors.report_table("expected limit, min and max all in packets or all in bytes"),
        }
    }
}

impl QueueSettings for RedSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn validate(&self, errors: &mut QueueErrors) {
        self.validate_red(errors);
    }

    fn build(&self, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
        Box::new(RedQueue::new(self, rate, rng))
    }

    fn replay_check(&self) -> &'static str {
        match self {
            Self { ecn: true, .. } => "RED with ECN: replay",
            Self { gentle: true, .. } => "gentle RED: replay",
            _ => "RED: replay",
        }
    }
}

/// A queue that drops at random, the more the longer it has been long.
pub type RedQueue = ManagedQueue<RedPolicy>;

/// Its law.
#[derive(Debug)]
pub struct RedPolicy {
    pub(super) params: RedParams,
    pub(super) state: RedState,
}

impl RedQueue {
    /// An empty queue. Thresholds are taken as amounts in the unit of the limit.
    #[must_use]
    pub fn new(settings: &RedSettings, rate: Option<Rate>, dice: SeededRng) -> Self {
        let params = red_params(settings, 1.0, rate, dice);
        Self::with_policy(RedPolicy { params, state: RedState::default() })
    }
}

/// What the law is given; the heavy are hit `n` times as often.
pub(super) fn red_params(settings: &RedSettings, n: f64, rate: Option<Rate>, dice: SeededRng) -> RedParams {
    let RedSettings { limit, min, max, p, wq, gentle, ecn } = *settings;
    let (min, max) = (min.amount(), max.amount());
    let settings = red::RedConfig { queue_limit: queue_room(limit), min, max, p, wq, gentle, ecn, n };
    RedParams::new(&settings, rate.map(Rate::bits_per_second), dice.key())
}

/// A limit as the arithmetic has it.
pub(super) fn queue_room(limit: QueueLimit) -> aqm::QueueLimit {
    aqm::QueueLimit { limit: limit.amount().min(MAX_LEVEL), in_bytes: u64::from(matches!(limit, QueueLimit::Bytes(_))) }
}

impl DropPolicy for RedPolicy {
    fn decide(&mut self, arrival: &Arrival) -> Verdict {
        red::judge_any(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}

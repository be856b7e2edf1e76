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
//!    * `avg >= top`: `count = 1`, and the packet is dropped as [`Cause::Forced`], capable or not (RFC 3168 section 7
//!      recommends drops above the upper threshold).
//!    * Otherwise: if `avg < max`, `pb = r(min, max, p)`, otherwise `pb = p + r(max, top, 1 - p)`, where
//!      `r(from, to, rise) = ((avg - from) >> h) * rise / ((to - from) >> h)` with the least `h` for which
//!      `(to - from) >> h` is less than 2^32. With the upper 32 of the packet's 64 random bits as `u`, the packet is hit if
//!      `pb >= 1`, or `count * pb >= 1`, or `u * (1 - count * pb) < pb * 2^32`: with the probability
//!      `pb / (1 - count * pb)`. If it is hit, `count = 1`, and it is marked if `ecn` and it is capable, otherwise dropped
//!      as [`Cause::Early`]. If not, `count = count + 1`, but never above 2^31.
//! 3. The room. A packet that is not dropped yet goes to the tail if the limit holds with it; otherwise it is dropped as
//!    [`Cause::Full`], which changes neither `avg` nor `count`.
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
//! [`Cause::Forced`]: crate::ledger::Cause::Forced
//! [`Cause::Early`]: crate::ledger::Cause::Early
//! [`Cause::Full`]: crate::ledger::Cause::Full

use ekiden_proto::aqm::red::{self, Params, State};
use ekiden_proto::aqm::{Arrival, LARGEST, Room, Verdict};
use ekiden_proto::units::Rate;

use crate::conditions::{Limit, RedSettings};
use crate::dice::Dice;
use crate::queue::amount;
use crate::queue::managed::{Law, Managed};

#[cfg(test)]
mod tests;

/// A queue that drops at random, the more the longer it has been long.
pub type Red = Managed<RedLaw>;

/// Its law.
#[derive(Debug)]
pub struct RedLaw {
    pub(super) params: Params,
    pub(super) state: State,
}

impl Red {
    /// An empty queue. Thresholds are taken as amounts in the unit of the limit.
    #[must_use]
    pub fn new(settings: &RedSettings, rate: Option<Rate>, dice: Dice) -> Self {
        let params = params(settings, 1.0, rate, dice);
        Self::under(RedLaw { params, state: State::default() })
    }
}

/// What the law is given; the heavy are hit `n` times as often.
pub(super) fn params(settings: &RedSettings, n: f64, rate: Option<Rate>, dice: Dice) -> Params {
    let RedSettings { limit, min, max, p, wq, gentle, ecn } = *settings;
    let (min, max) = (amount(min), amount(max));
    let settings = red::Settings { room: room(limit), min, max, p, wq, gentle, ecn, n };
    Params::new(&settings, rate.map(Rate::bits_per_second), dice.key())
}

/// A limit as the arithmetic has it.
pub(super) fn room(limit: Limit) -> Room {
    Room { limit: amount(limit).min(LARGEST), in_bytes: u64::from(matches!(limit, Limit::Bytes(_))) }
}

impl Law for RedLaw {
    fn judge(&mut self, arrival: &Arrival) -> Verdict {
        red::arrive(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.typical_time = red::typical_time(rate.map(Rate::bits_per_second));
    }
}

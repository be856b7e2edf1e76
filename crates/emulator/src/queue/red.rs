//! Random early detection (Floyd, Jacobson: Random early detection gateways for congestion avoidance, IEEE/ACM
//! Transactions on Networking 1(4), 1993), with the gentle variant (Floyd 2000) and ECN marks (RFC 3168). The
//! arithmetic is [`ekiden_proto::aqm::red`], which the tc programs of `ekiden aqm` mirror.
//!
//! # Specification
//!
//! All numbers are integers; quotients are rounded down. All levels are in the unit of `limit`, and `min` and `max` are
//! read in that unit. Averages, and `min` and `max` in comparisons with an average, are in 2^-24; so is `wq`, rounded
//! to the nearest. Probabilities are in 2^-32: `1` is 2^32, and `p` is rounded to the nearest. `a >> h` is `a / 2^h`.
//!
//! `keep[k]` is `(1 - wq)^(2^k)` for k from 0 to 23: repeated squares of the double `1 - wq`, with the unrounded `wq`
//! of the settings, each rounded to the nearest 2^-24 at the end. `s` is the transmission time of 1500 bytes on the
//! line, in nanoseconds, and at least 1, also on a line without a rate.
//!
//! State: `avg` = 0; `count` = 0, the packets since the last hit; `left` = 0, the idle time not yet counted.
//!
//! On the arrival of a packet, with a backlog of `q` before it and the queue idle for `i` nanoseconds, since it was
//! left empty or since the last arrival, the later of the two:
//!
//! 1. Average. If `q > 0`: `avg = avg - avg * wq / 2^24 + q * wq` and `left = 0`. If `q == 0`: with `m = (left + i) /
//!    s`, `left` becomes the remainder of that division, and `avg` becomes 0 if `m >= 2^24`; otherwise, for each bit
//!    `k` of `m` that is set, the lowest first, `avg = avg * keep[k] / 2^24`.
//! 2. Verdict. With `gentle`, `top = 2 * max`, otherwise `top = max`.
//!    * `avg < min`: `count = 0`. Continue with 3.
//!    * `avg >= top`: `count = 1`, and the packet is dropped as [`DropCause::Forced`], capable or not (RFC 3168 section
//!      7 recommends drops above the upper threshold).
//!    * Otherwise: if `avg < max`, `pb = r(min, max, p)`, otherwise `pb = p + r(max, top, 1 - p)`, where `r(from, to,
//!      rise) = ((avg - from) >> h) * rise / ((to - from) >> h)` with the least `h` for which `(to - from) >> h` is
//!      less than 2^32. With the upper 32 of the packet's 64 random bits as `u`, the packet is hit if `pb >= 1`, or
//!      `count * pb >= 1`, or `u * (1 - count * pb) < pb * 2^32`: with the probability `pb / (1 - count * pb)`. If it
//!      is hit, `count = 1`, and it is marked if `ecn` is set and the packet is capable, otherwise dropped as
//!      [`DropCause::Early`]. If not, `count = count + 1`, but never above 2^31.
//! 3. Limit. A packet that is not dropped yet goes to the tail if the limit holds with it; otherwise it is dropped as
//!    [`DropCause::Full`], which changes neither `avg` nor `count`.
//!
//! # Differences
//!
//! | | here | the paper | the Linux kernel's red |
//! |---|---|---|---|
//! | backlog | without the packet on the line | the buffer | without the packet on the line |
//! | unit | packets or bytes | packets or bytes | bytes |
//! | average | fixed point, any `wq` | a shift | fixed point, `wq` a power of two |
//! | idle decay | by `m`, whole packets, with the remainder kept; `s` from the rate | by `m`; `s` a setting | a table of powers; packet size and rate are settings |
//! | idle since | the queue was left empty, or an arrival | the queue was left empty | the line was refused a packet |
//! | randomness | one number per packet | one per packet or per interval | one per interval |
//! | `count` below `min` | 0, for the next packet | -1, incremented before use: equivalent | -1 |
//! | size of the packet | ignored (RFC 7141 section 2.2) | in byte mode, scales `pb` | ignored |
//! | above `max` | drop, or gentle | mark all | capable packets are marked, unless `harddrop` |
//! | gentle | a setting | no | no (`adaptative` moves `p` instead) |
//!
//! [`DropCause::Forced`]: crate::ledger::DropCause::Forced
//! [`DropCause::Early`]: crate::ledger::DropCause::Early
//! [`DropCause::Full`]: crate::ledger::DropCause::Full

use ekiden_proto::aqm::red::{self, RedParams, RedState};
use ekiden_proto::aqm::{self, ArrivingPacket, MAX_LEVEL, Verdict};
use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::queue::Queue;
use crate::queue::kind::{QueueErrors, QueueLimit, QueueSettings};
use crate::queue::managed::{DropPolicy, ManagedQueue};
use crate::rng::SeededRng;

/// Settings of RED. Limit and thresholds are all in packets or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedSettings {
    /// Capacity, in packets or bytes.
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

/// A queue whose drop probability grows with its average length.
pub type RedQueue = ManagedQueue<RedPolicy>;

/// Drop policy of [`RedQueue`].
#[derive(Debug)]
pub struct RedPolicy {
    pub(super) params: RedParams,
    pub(super) state: RedState,
}

impl RedQueue {
    /// Creates an empty queue. Thresholds are read in the unit of the limit.
    #[must_use]
    pub fn new(settings: &RedSettings, rate: Option<Rate>, rng: SeededRng) -> Self {
        let params = red_params(settings, 1.0, rate, rng);
        Self::with_policy(RedPolicy { params, state: RedState::default() })
    }
}

/// Returns the parameters of the RED arithmetic. Heavy packets are hit `n` times as often.
pub(super) fn red_params(settings: &RedSettings, n: f64, rate: Option<Rate>, rng: SeededRng) -> RedParams {
    let RedSettings { limit, min, max, p, wq, gentle, ecn } = *settings;
    let (min, max) = (min.amount(), max.amount());
    let settings = red::RedConfig { queue_limit: queue_room(limit), min, max, p, wq, gentle, ecn, n };
    RedParams::new(&settings, rate.map(Rate::bits_per_second), rng.key())
}

/// Converts a limit to the type of the RED arithmetic.
pub(super) fn queue_room(limit: QueueLimit) -> aqm::QueueLimit {
    aqm::QueueLimit { limit: limit.amount().min(MAX_LEVEL), in_bytes: u64::from(matches!(limit, QueueLimit::Bytes(_))) }
}

impl DropPolicy for RedPolicy {
    fn decide(&mut self, arrival: &ArrivingPacket) -> Verdict {
        red::judge_any(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MS;
    use crate::fixtures::packet;
    use crate::ledger::{DropCause, StageEvents};
    use crate::packet::{Ecn, Packet};
    use crate::queue::Queue;
    use crate::queue::tests::{enqueue_at_level, random, rate, trace_table};

    const SETTINGS: RedSettings = RedSettings {
        limit: QueueLimit::Packets(40),
        min: QueueLimit::Packets(5),
        max: QueueLimit::Packets(15),
        p: 0.2,
        wq: 1.0,
        gentle: false,
        ecn: false,
    };

    /// Returns a queue whose average is `level` at each arrival: with `wq` = 1 the average is the backlog.
    fn at_level(settings: RedSettings, level: u64, seed: u64) -> RedQueue {
        let mut red = RedQueue::new(&settings, Some(rate()), SeededRng::new(seed));
        for number in 0..level {
            red.waiting.push(packet(number, 0, 1000));
        }
        red
    }

    /// Returns the gaps between drops among `arrivals` packets at a constant backlog of 10 packets (`pb` = 0.1).
    fn gaps(seed: u64, arrivals: u64) -> Vec<u64> {
        let mut red = at_level(SETTINGS, 10, seed);
        let mut ledger = StageEvents::default();
        for number in 0..arrivals {
            enqueue_at_level(&mut red, 10, packet(number, number, 1000), &mut ledger);
        }
        let hits: Vec<u64> = ledger.dropped.iter().map(|drop| drop.packet.number).collect();
        let first = hits.first().map(|first| first + 1);
        first.into_iter().chain(hits.windows(2).map(|pair| pair[1] - pair[0])).collect()
    }

    /// Asserts that values are uniform on 1..=top, within 5 standard deviations for each.
    fn assert_uniform(values: impl Iterator<Item = u64>, top: u64) {
        let mut counts = vec![0_u32; top as usize + 1];
        values.for_each(|value| counts[value as usize] += 1);
        let total = f64::from(counts.iter().sum::<u32>());
        let share = 1.0 / top as f64;
        let deviation = (total * share * (1.0 - share)).sqrt();
        assert_eq!(counts[0], 0);
        for count in &counts[1..] {
            assert!((f64::from(*count) - total * share).abs() < 5.0 * deviation, "of {total}: {counts:?}");
        }
    }

    #[test]
    fn gaps_between_hits_are_uniform() {
        // With count = -1 the first packet has pa = pb: the gap is 1 to 1 / pb. After a drop the first packet has
        // pa = pb / (1 - pb): the largest gap is one less.
        assert_uniform((0..4_000).filter_map(|seed| gaps(seed, 12).first().copied()), 10);
        assert_uniform((0..40).flat_map(|seed| gaps(seed, 500).into_iter().skip(1)), 9);
    }

    #[test]
    fn no_packet_is_dropped_below_min_and_every_packet_from_max() {
        for (level, drops) in [(4, 0), (15, 100)] {
            let mut red = at_level(RedSettings { ecn: true, ..SETTINGS }, level, 1);
            let mut ledger = StageEvents::default();
            for number in 0..100 {
                // RFC 3168 section 7 recommends drops above max, also for capable packets.
                let capable = Packet { ecn: Ecn::Capable, ..packet(number, 0, 1000) };
                enqueue_at_level(&mut red, level, capable, &mut ledger);
            }
            assert_eq!(ledger.dropped.iter().filter(|drop| drop.cause == DropCause::Forced).count(), drops);
            assert_eq!(
                (ledger.dropped.len(), red.policy.state.count),
                (drops, if drops == 0 { [0, 0] } else { [1, 1] })
            );
        }
    }

    #[test]
    fn capable_packets_are_marked_and_dropped_unmarked_when_full() {
        let certain = RedSettings {
            p: 1.0,
            min: QueueLimit::Packets(0),
            max: QueueLimit::Packets(1),
            gentle: true,
            ecn: true,
            ..SETTINGS
        };
        let hit = |limit, level, ecn| {
            let limit = QueueLimit::Packets(limit);
            let mut red = at_level(RedSettings { limit, ..certain }, level, 1);
            let mut ledger = StageEvents::default();
            red.enqueue(Packet { ecn, ..packet(9, 0, 1000) }, &mut ledger);
            let kept = red.waiting.backlog().packets > level;
            let kept = kept.then(|| std::iter::from_fn(|| red.waiting.pop()).last().unwrap().ecn);
            (kept, ledger.dropped.first().map(|drop| (drop.cause, drop.packet.ecn)))
        };
        assert_eq!(hit(2, 1, Ecn::Capable), (Some(Ecn::Marked), None));
        assert_eq!(hit(2, 1, Ecn::Marked), (Some(Ecn::Marked), None));
        assert_eq!(hit(2, 1, Ecn::NotCapable), (None, Some((DropCause::Early, Ecn::NotCapable))));
        assert_eq!(hit(1, 1, Ecn::Capable), (None, Some((DropCause::Full, Ecn::Capable))));
    }

    /// Returns the average in packets or bytes.
    fn average_of(red: &RedQueue) -> f64 {
        red.policy.state.average as f64 / f64::from(1 << 24)
    }

    #[test]
    fn average_decays_by_the_packets_an_idle_line_could_send() {
        let mut red = RedQueue::new(&RedSettings { wq: 0.5, ..SETTINGS }, Some(rate()), SeededRng::new(1));
        let mut ledger = StageEvents::default();
        for number in 0..3 {
            red.enqueue(packet(number, 0, 750), &mut ledger);
        }
        assert_eq!(average_of(&red), 0.5 * 0.5 + 0.5 * 2.0);
        for now in [0, 600_000, 1_200_000] {
            red.dequeue(now, &mut ledger);
        }
        // The line is idle since 1.2 ms and sends a typical packet in 1.2 ms: by 4.8 ms it could have sent 3.
        let mut at = |now, wanted| {
            red.enqueue(packet(3, now, 750), &mut ledger);
            red.dequeue(now, &mut ledger);
            assert_eq!(average_of(&red), wanted, "{now}");
        };
        at(4_800_000, 1.25 / 8.0);
        at(5_400_000, 1.25 / 8.0);
        at(6_000_000, 1.25 / 16.0);
    }

    #[test]
    fn idle_decay_follows_a_changed_rate() {
        let mut red = at_level(RedSettings { wq: 0.5, ..SETTINGS }, 1, 1);
        let mut ledger = StageEvents::default();
        red.enqueue(packet(1, 0, 1500), &mut ledger);
        while red.dequeue(0, &mut ledger).is_some() {}
        red.set_rate(Some("20Mbit/s".parse().unwrap()));
        red.enqueue(packet(2, 1_200_000, 1500), &mut ledger);
        assert_eq!(average_of(&red), 0.5 / 4.0);
    }

    #[test]
    fn red_overload_matches_the_recorded_trace() {
        let bytes = |packets: u64| QueueLimit::Bytes(packets * 1500);
        let (limit, min, max) = (bytes(20), bytes(3), bytes(9));
        let settings = RedSettings { limit, min, max, p: 0.1, wq: 0.02, gentle: true, ecn: true };
        let mut red = RedQueue::new(&settings, Some(rate()), SeededRng::new(42));
        let table = trace_table(&mut red, &random(42, 600, MS), 60, |red| format!("average {:.1}", average_of(red)));
        assert_eq!(
            table,
            [
                "28 ms: 16 = 9368 B, average 4902.7; 44 sent, 0+0+0 dropped, 0 marked",
                "60 ms: 19 = 16679 B, average 10581.8; 98 sent, 3+0+0 dropped, 0 marked",
                "91 ms: 20 = 16442 B, average 14559.7; 147 sent, 13+0+0 dropped, 4 marked",
                "121 ms: 14 = 13864 B, average 15934.4; 190 sent, 36+0+0 dropped, 8 marked",
                "153 ms: 16 = 16414 B, average 13253.0; 235 sent, 49+0+0 dropped, 16 marked",
                "177 ms: 24 = 16543 B, average 15733.8; 268 sent, 68+0+0 dropped, 18 marked",
                "212 ms: 8 = 4226 B, average 9333.0; 332 sent, 80+0+0 dropped, 28 marked",
                "239 ms: 14 = 15029 B, average 7861.4; 382 sent, 84+0+0 dropped, 28 marked",
                "265 ms: 25 = 19589 B, average 15375.9; 421 sent, 94+0+0 dropped, 28 marked",
                "295 ms: 16 = 11369 B, average 16211.1; 466 sent, 118+0+0 dropped, 35 marked",
                "304 ms: 0 = 0 B, average 16211.1; 482 sent, 118+0+0 dropped, 40 marked",
            ]
        );
    }
}

//! `auto`: a FIFO queue that shares its line fairly. It hits (drops or marks) packets of the connections that have
//! received more than their share, as often as their response requires. The arithmetic is [`ekiden_proto::aqm::auto`],
//! which the tc program of `ekiden aqm` mirrors.
//!
//! The idea is approximate fairness (Pan, Breslau, Prabhakar, Shenker: Approximate fairness through differential
//! dropping, CCR 33(2), 2003) and priority drop (FIT2013), with a memory. The **lead** of a connection is the excess of
//! its received service over its share, in seconds of its share. A **bar** sinks while the backlog is above the
//! reference, and rises while it is below. Connections above the bar are hit, the largest lead first. Long-term shares
//! thus become equal under every congestion control, and a connection that is behind recovers without drops. After a
//! hit a connection has time to respond. Each hit without a response doubles `n`, the factor of its hit rate. At n = 64
//! the connection is policed: no packet above the bar is let in. Senders that ignore drops (BBR) or marks end in this
//! state and receive their share.
//!
//! # Specification
//!
//! All numbers are integers; quotients are rounded down. Times are in nanoseconds, leads in nanoseconds of a share.
//! `CUBIC_C` is the rate of the line in bytes per second (1.25e11 if transmission takes no time), `B = 2^16 * 10^9 / C`
//! (0 if it takes none), and the *time of* `b` bytes is `min(b * B / 2^16, 2^36)`. `half` is half of the time of a full
//! queue, with 1500 bytes for each packet. Constants: `R = 2^29`, an epoch `2^28`, and in milliseconds `range` 6000,
//! `far` 1200, `start` 500.
//!
//! **Connections.** There are 2048 sets of 8 slots. The set of a connection is `mix(flow) / 2^32` modulo 2048 (`mix`:
//! the finalizer of splitmix64); its tag in the set is `flow` with the lowest bit set. A connection without a slot
//! takes the slot that was seen the longest time ago (an empty slot was seen at 0; of several, the first). If the slot
//! was empty, or not seen for more than 2^30, the connection is new: `lead = mean - start`, all else 0. Otherwise the
//! connection continues with the state of the slot.
//!
//! **Shares.** At the first arrival epoch 1 begins, with `fair = level = C`, `crowd = 256`, and all else 0. The
//! following depend on these and are updated with them: `price = 2^16 * 10^9 / fair` (with `fair` at least 1), `portion
//! = fair * 275 / 1024`, `p = min(2^30, time of 1500 bytes) * crowd / 256`, `reference = max(1, min(half, max(target,
//! min(80 * p, 40 ms), 6 * p)))` and `urgent = max(1, min(4 * reference + 100 ms, half * 3 / 2))`. The first arrival at
//! least an epoch after `began` ends the epoch, after `e` nanoseconds, or `m = min(e / 1000, 10^8)` microseconds:
//!
//! 1. `least = C / max(1, active)`; `left = max(0, C * m / 10^6 - light)`; `most = left / max(1, heavy) * 10^6 / m`,
//!    clamped to `least` and `CUBIC_C`.
//! 2. `d = min(1024, |above - below| / e)`. `level` falls by `level * d / 10240` if `above > below`, otherwise rises by
//!    it, and is clamped to `least` and `most`. If it is less than `fair`, `fair = level`, otherwise `fair += (level -
//!    fair) / 10`.
//! 3. `crowd = (crowd + 256 * max(1, heavy)) / 2`. If `heavy > 0`, `mean += leads / heavy - range`.
//! 4. `busy`, `active`, `heavy`, `light`, `leads`, `above` and `below` become 0; `before = highest`, and `highest`
//!    becomes unknown. The next epoch begins.
//!
//! **On an arrival** at `t`, with `w` the time of the backlog before the packet, and `dt = min(t - last, 2^30)` since
//! the last arrival:
//!
//! 1. The epoch may begin or end, as above.
//! 2. `average` moves towards `w` by `|w - average| * (min(dt, 2^27) / 128) / 2^20`. `q = min(w, average)`.
//! 3. If `q >= reference`: `x = 1024 * min(q - reference, 4 * reference) / reference`, `above += dt * x`, and unless `t
//!    < pause` the bar sinks by `dt * x / 512`. Otherwise `x = 1024 * (reference - q) / reference`, `below += dt * x`,
//!    and the bar rises by `dt * x / 512`. Then the bar is at most 100 ms above the larger of `highest` and `before`
//!    (if one is known), and at least `mean` less 1000 ms.
//! 4. The connection, unseen for `s`: `lead -= s`, clamped to within `range` of `mean`; `recent = recent * R / (R +
//!    min(s, 2^40))`.
//! 5. At the first packet of the connection in this epoch: unless the connection is new, `active += 1`, and its `rate`
//!    becomes `bytes` if it was 0, otherwise the mean of both. The connection is heavy if `2 * rate >= portion`, or if
//!    it was ever hit and `10 * rate >= portion`: then `heavy += 1` and `leads += lead - mean + range`; otherwise
//!    `light += bytes`. Then `bytes = 0`.
//! 6. If `recent > R * 6 / 10`, `highest` is at least `lead`.
//! 7. The packet is judged, as below. If it is not dropped and there is no room, it is dropped as [`DropCause::Full`].
//! 8. If the packet is let in: when `bytes` now reaches 6000, `busy += 1`, and if `average > reference` and `2 * (C /
//!    busy) < fair`, then `fair = level = C / busy` and `crowd = 256 * busy`. With `c = min(2^17, size) * price /
//!    2^16`: `lead += c`, `recent = min(8 * R, recent + c)`, `bytes += size`.
//!
//! **The judgement.** A connection is *deaf* if `doublings >= 3`. A packet passes
//!
//! 1. if `recent <= R * 6 / 10`, or `q <= reference / 2`;
//! 2. unless the connection is deaf, if `20 * w < 19 * average`, or if `t < pause` and `q <= urgent`;
//! 3. with `score = lead + 6 * (recent - R)`: if `q <= reference`, unless `recent > R`, and lead and score are both
//!    more than `far` above `mean`; otherwise unless `score` is above the bar, which is lower by `(range / 1024) *
//!    min(2^14, 1024 * (q - urgent) / urgent)` if `q > urgent`;
//! 4. if the connection has not had time to respond. `patience = min(600 ms + 2 * w, 1500 ms)`, times `2 * R / recent`
//!    if `recent > 2 * R`. With `s` since its last hit (2^64 - 1 if there was none), `doublings` falls by `s / 2^31`,
//!    to 0 at the least. With `wait = patience / 2^doublings`: if `s < wait` and `doublings < 6`.
//!
//! Otherwise the packet is hit. If `s < 2 * wait` and `10 * recent > 9 * recent at its last hit`, the connection has
//! not responded: `doublings` grows by 1, by 2 if `recent > R * 3 / 2`, by 3 if `recent > 4 * R`, to 6 at the most. The
//! time of the hit and `recent` are recorded. If the connection is not deaf, `pause = t + patience * 2^18 / max(2^18,
//! crowd^2)`. If `ecn` is set, the packet is capable, and `doublings < 6`, the packet is marked, otherwise dropped as
//! [`DropCause::Early`].
//!
//! # Limits
//!
//! More connections than slots share them: connections in one slot count as one. With very many connections the queue
//! degrades to tail drop. A burst shorter than about 0.1 s is not punished. The backlog may exceed the reference until
//! senders respond.
//!
//! [`DropCause::Early`]: crate::ledger::DropCause::Early
//! [`DropCause::Full`]: crate::ledger::DropCause::Full

use ekiden_proto::aqm::auto::{self, AutoParams, AutoState, SlotSet};
use ekiden_proto::aqm::{ArrivingPacket, Verdict};
use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

use crate::queue::Queue;
use crate::queue::codel::default_target;
use crate::queue::kind::{QueueLimit, QueueSettings};
use crate::queue::managed::{DropPolicy, ManagedQueue};
use crate::queue::red::queue_room;
use crate::rng::SeededRng;

/// Number of slots in the table of connections.
const TABLE_SLOTS: u64 = 16_384;

/// Settings of the `auto` queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoSettings {
    /// Capacity, in packets or bytes.
    pub limit: QueueLimit,
    /// Queueing delay that is always acceptable.
    #[serde(default = "default_target")]
    pub target: Span,
    /// Whether ECN-capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
}

impl QueueSettings for AutoSettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn build(&self, rate: Option<Rate>, _rng: SeededRng) -> Box<dyn Queue> {
        Box::new(AutoQueue::new(self, rate))
    }

    fn replay_check(&self) -> &'static str {
        "auto: replay"
    }
}

/// A FIFO queue that drops or marks packets of connections with a large lead.
pub type AutoQueue = ManagedQueue<AutoPolicy>;

/// Drop policy of [`AutoQueue`].
#[derive(Debug)]
pub struct AutoPolicy {
    params: AutoParams,
    state: AutoState,
    table: Vec<SlotSet>,
}

impl AutoQueue {
    /// Creates an empty queue in front of a line of `rate`.
    #[must_use]
    pub fn new(settings: &AutoSettings, rate: Option<Rate>) -> Self {
        let target = u64::try_from(settings.target.0.as_nanos()).unwrap_or(u64::MAX);
        let rate = rate.map(Rate::bits_per_second);
        let params = AutoParams::new(queue_room(settings.limit), target, settings.ecn, rate, TABLE_SLOTS);
        Self::with_policy(AutoPolicy {
            params,
            state: AutoState::default(),
            table: vec![SlotSet::default(); params.sets()],
        })
    }
}

impl DropPolicy for AutoPolicy {
    fn decide(&mut self, arrival: &ArrivingPacket) -> Verdict {
        auto::judge_arrival(&self.params, &mut self.state, &mut self.table, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params = self.params.with_rate(rate.map(Rate::bits_per_second));
    }
}

//! Static and dynamic priority drop: RED with an `n` times higher drop probability for heavy senders or connections
//! (FIT2013, 12th Forum on Information Technology, part 4, from page 37 on: fairness between CUBIC and Compound TCP).
//! The arithmetic is [`ekiden_proto::aqm::priority`], which the tc programs of `ekiden aqm` mirror.
//!
//! # Specification
//!
//! The specification of [`super::red`], without `gentle`, and with these changes:
//!
//! * A packet is of one of two classes, heavy and other. There is one `avg`, but a `count` for each class; where
//!   `count` is set without a hit (below `min`, from `top` on), both are set.
//! * With `n` in 2^-16, rounded to the nearest, the `pb` of heavy packets is `min(1, pb * n / 2^16)`.
//!
//! **Static**: a packet is heavy if its source is an address of a host in `heavy`.
//!
//! **Dynamic**: a packet is heavy if its connection (`Packet::flow`) is the heavy connection. Each packet is counted
//! before the verdict, including packets that are then dropped:
//!
//! 1. Every `rec_int`-th packet is recorded: its connection joins a history of the last `hist_len`, after the oldest
//!    entry has left a full history. If 8 other connections of the history have the same lower 8 bits and are counted,
//!    the new entry counts for no connection.
//! 2. At every `sta_int`-th packet the most frequent connection of the history becomes the heavy connection; of
//!    several, the one whose number of entries changed last. There is no heavy connection while no entry counts.
//!
//! # Differences
//!
//! The text of the paper leaves these points open:
//!
//! | | here | the paper |
//! |---|---|---|
//! | `count` | one for each class: heavy packets are hit exactly `n` times as often | not specified |
//! | above `max` | all packets are dropped, heavy or not | as here |
//! | order | recorded, determined, then judged | not specified |
//! | equally frequent connections | the one whose entries changed last | not specified |
//! | many connections | a table of 256 sets of 8 | not specified |

use ekiden_proto::aqm::history::MAX_HISTORY;
use ekiden_proto::aqm::priority::{self, DynamicParams, DynamicState, StaticParams};
use ekiden_proto::aqm::{ArrivingPacket, Verdict, red};
use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::queue::Queue;
use crate::queue::kind::{QueueErrors, QueueLimit, QueueSettings, SenderHosts};
use crate::queue::managed::{DropPolicy, ManagedQueue};
use crate::queue::red::{RedSettings, default_wq, red_params};
use crate::rng::SeededRng;

/// Settings of static priority drop. Limit and thresholds are all in packets or all in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticPrioritySettings {
    /// Capacity, in packets or bytes.
    pub limit: QueueLimit,
    /// Lower threshold, as in [`RedSettings::min`].
    pub min: QueueLimit,
    /// Upper threshold, as in [`RedSettings::max`].
    pub max: QueueLimit,
    /// Drop probability of the other packets at `max`.
    pub p: f64,
    /// Weight of a new sample in the average.
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// Whether ECN-capable packets are marked instead of dropped early.
    #[serde(default)]
    pub ecn: bool,
    /// Factor by which the drop probability of heavy senders is higher.
    pub n: f64,
    /// Heavy senders: all connections of these hosts.
    pub heavy: SenderHosts,
}

impl StaticPrioritySettings {
    /// Returns the RED settings of the packets that are not heavy.
    #[must_use]
    pub const fn red_settings(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, heavy: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

impl QueueSettings for StaticPrioritySettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn validate(&self, errors: &mut QueueErrors) {
        self.red_settings().validate_red(errors);
        validate_factor(self.n, errors);
    }

    fn build(&self, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
        Box::new(StaticPriorityDropQueue::new(self, rate, rng))
    }

    fn replay_check(&self) -> &'static str {
        "static priority drop: replay"
    }

    fn sender_hosts_mut(&mut self) -> Option<&mut SenderHosts> {
        Some(&mut self.heavy)
    }
}

fn validate_factor(n: f64, errors: &mut QueueErrors) {
    if !(1.0..=10_000.0).contains(&n) {
        errors.report("n", "expected a number from 1 to 10000");
    }
}

/// A queue with a higher drop probability for configured senders.
pub type StaticPriorityDropQueue = ManagedQueue<StaticPriorityPolicy>;

/// Drop policy of [`StaticPriorityDropQueue`].
#[derive(Debug)]
pub struct StaticPriorityPolicy {
    params: StaticParams,
    state: red::RedState,
}

impl StaticPriorityDropQueue {
    /// Creates an empty queue in front of a line of `rate`.
    #[must_use]
    pub fn new(settings: &StaticPrioritySettings, rate: Option<Rate>, rng: SeededRng) -> Self {
        let red = red_params(&settings.red_settings(), settings.n, rate, rng);
        Self::with_policy(StaticPriorityPolicy {
            params: StaticParams::new(red, &settings.heavy.sources),
            state: red::RedState::default(),
        })
    }
}

impl DropPolicy for StaticPriorityPolicy {
    fn decide(&mut self, arrival: &ArrivingPacket) -> Verdict {
        priority::judge_static(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.red.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}

/// Settings of dynamic priority drop. Limit and thresholds are all in packets or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicPrioritySettings {
    /// Capacity, in packets or bytes.
    pub limit: QueueLimit,
    /// Lower threshold, as in [`RedSettings::min`].
    pub min: QueueLimit,
    /// Upper threshold, as in [`RedSettings::max`].
    pub max: QueueLimit,
    /// Drop probability of the other packets at `max`.
    pub p: f64,
    /// Weight of a new sample in the average.
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// Whether ECN-capable packets are marked instead of dropped early.
    #[serde(default)]
    pub ecn: bool,
    /// Factor by which the drop probability of the heavy connection is higher.
    pub n: f64,
    /// Recording interval of connections, in packets.
    pub rec_int: u32,
    /// Interval at which the most frequently recorded connection becomes the heavy connection, in packets.
    pub sta_int: u32,
    /// Length of the history, in records.
    pub hist_len: u32,
}

impl DynamicPrioritySettings {
    /// Returns the RED settings of the packets that are not heavy.
    #[must_use]
    pub const fn red_settings(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, rec_int: _, sta_int: _, hist_len: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

impl QueueSettings for DynamicPrioritySettings {
    fn limit(&self) -> QueueLimit {
        self.limit
    }

    fn validate(&self, errors: &mut QueueErrors) {
        self.red_settings().validate_red(errors);
        validate_factor(self.n, errors);
        errors.require_positive("rec_int", u64::from(self.rec_int));
        errors.require_positive("sta_int", u64::from(self.sta_int));
        if !(1..=MAX_HISTORY).contains(&(self.hist_len as usize)) {
            errors.report("hist_len", format!("expected from 1 to {MAX_HISTORY}"));
        }
    }

    fn build(&self, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
        Box::new(DynamicPriorityDropQueue::new(self, rate, rng))
    }

    fn replay_check(&self) -> &'static str {
        "dynamic priority drop: replay"
    }
}

/// A queue with a higher drop probability for the most frequent connection.
pub type DynamicPriorityDropQueue = ManagedQueue<DynamicPriorityPolicy>;

/// Drop policy of [`DynamicPriorityDropQueue`].
#[derive(Debug)]
pub struct DynamicPriorityPolicy {
    params: DynamicParams,
    state: Box<DynamicState>,
}

impl DynamicPriorityDropQueue {
    /// Creates an empty queue in front of a line of `rate`.
    #[must_use]
    pub fn new(settings: &DynamicPrioritySettings, rate: Option<Rate>, rng: SeededRng) -> Self {
        let red = red_params(&settings.red_settings(), settings.n, rate, rng);
        let DynamicPrioritySettings { rec_int, sta_int, hist_len, .. } = *settings;
        Self::with_policy(DynamicPriorityPolicy {
            params: DynamicParams::new(red, rec_int, sta_int, hist_len),
            state: Box::default(),
        })
    }
}

impl DropPolicy for DynamicPriorityPolicy {
    fn decide(&mut self, arrival: &ArrivingPacket) -> Verdict {
        priority::judge_dynamic(&self.params, &mut self.state, arrival)
    }

    fn set_rate(&mut self, rate: Option<Rate>) {
        self.params.red.typical_packet_time = red::typical_packet_time(rate.map(Rate::bits_per_second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::{QueueLimit, SenderHosts};
    use crate::fixtures::packet;
    use crate::ledger::{DropCause, StageEvents};
    use crate::packet::Packet;
    use crate::queue::Queue;
    use crate::queue::tests::{enqueue_at_level, rate};

    const MIN: QueueLimit = QueueLimit::Packets(5);
    const MAX: QueueLimit = QueueLimit::Packets(15);
    const LIMIT: QueueLimit = QueueLimit::Packets(40);

    fn static_settings(n: f64) -> StaticPrioritySettings {
        let heavy = SenderHosts { hosts: vec!["pc1".to_owned()], sources: vec![7, 9] };
        StaticPrioritySettings { limit: LIMIT, min: MIN, max: MAX, p: 0.1, wq: 1.0, ecn: false, n, heavy }
    }

    fn dynamic_settings(n: f64) -> DynamicPrioritySettings {
        let (rec_int, sta_int, hist_len) = (3, 30, 50);
        DynamicPrioritySettings {
            limit: LIMIT,
            min: MIN,
            max: MAX,
            p: 0.1,
            wq: 1.0,
            ecn: false,
            n,
            rec_int,
            sta_int,
            hist_len,
        }
    }

    /// Returns the numbers of early drops of `other` (one packet in `every`) and of `rest` among 400,000 packets, each
    /// of which arrives at a backlog of 6 packets. With `wq` = 1 the average is the backlog, a tenth of the way from
    /// `min` to `max`, so packets that are not heavy are dropped with probability 0.01.
    fn hits<L: DropPolicy>(queue: &mut ManagedQueue<L>, every: u64, rest: Packet, other: Packet) -> [u64; 2] {
        let mut hits = [0; 2];
        let mut ledger = StageEvents::default();
        (0..6).for_each(|number| queue.waiting.push(packet(number, 0, 1000)));
        for number in 0..400_000 {
            let is_rest = number % every != 0;
            let packet = Packet { number, ..if is_rest { rest } else { other } };
            enqueue_at_level(queue, 6, packet, &mut ledger);
            for drop in ledger.dropped.drain(..) {
                assert_eq!(drop.cause, DropCause::Early);
                hits[usize::from(is_rest)] += 1;
            }
        }
        hits
    }

    /// Returns the drop rate of `rest` divided by the drop rate of `other`.
    fn ratio([others, rest]: [u64; 2], every: u64) -> f64 {
        rest as f64 / (every - 1) as f64 / others as f64
    }

    #[test]
    fn packets_of_heavy_senders_are_dropped_n_times_as_often() {
        for n in [1.0, 2.5, 8.0] {
            for (source, every) in [(7, 2), (9, 8)] {
                let mut queue = StaticPriorityDropQueue::new(&static_settings(n), Some(rate()), SeededRng::new(1));
                let rest = Packet { source, ..packet(0, 0, 1000) };
                let ratio = ratio(hits(&mut queue, every, rest, packet(0, 0, 1000)), every);
                assert!((ratio / n - 1.0).abs() < 0.07, "{ratio} instead of {n}");
            }
        }
    }

    #[test]
    fn packets_of_the_heavy_connection_are_dropped_n_times_as_often() {
        for every in [4, 8] {
            let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(4.0), Some(rate()), SeededRng::new(1));
            let [rest, other] = [1, 2].map(|flow| Packet { flow, ..packet(0, 0, 1000) });
            let hits = hits(&mut queue, every, rest, other);
            let ratio = ratio(hits, every);
            assert!((ratio / 4.0 - 1.0).abs() < 0.07, "{hits:?}: {ratio} instead of 4");
        }
    }

    #[test]
    fn heavy_connection_follows_the_history() {
        let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(4.0), None, SeededRng::new(1));
        let mut heavy = |flow| {
            for _ in 0..30 {
                queue.enqueue(Packet { flow, ..packet(0, 0, 1000) }, &mut StageEvents::default());
                queue.dequeue(0, &mut StageEvents::default());
            }
            (queue.policy.state.known == 1).then_some(queue.policy.state.heavy)
        };
        // Each step adds 10 records to a history of 50. The second connection is heavy when it has more than half of
        // the history.
        let found = [5, 5, 5, 6, 6, 6].map(&mut heavy);
        assert_eq!(found, [5, 5, 5, 5, 5, 6].map(Some));
    }

    #[test]
    fn no_connection_is_heavy_before_the_first_determination() {
        let mut queue = DynamicPriorityDropQueue::new(&dynamic_settings(10_000.0), Some(rate()), SeededRng::new(1));
        (0..6).for_each(|number| queue.waiting.push(packet(number, 0, 1000)));
        let mut ledger = StageEvents::default();
        let mut dropped = (0..40).map(|number| {
            enqueue_at_level(&mut queue, 6, packet(number, 0, 1000), &mut ledger);
            ledger.dropped.len()
        });
        assert!(dropped.nth(28) < Some(5));
        assert!(dropped.last() >= Some(10), "all packets from the 30th on");
    }
}

//! A FIFO queue that divides its line fairly: it drops and marks packets at arrival, by the share that each connection
//! has used and by its response to earlier hits.
//!
//! The specification is the head comment of `queue/auto.rs` in the emulator.

use crate::aqm::virtual_queue::TYPICAL_PACKET;
use crate::aqm::{ArrivingPacket, DropReason, QueueLimit, Verdict};

mod fair;
mod table;

pub use table::{FlowSlot, SlotSet, WAYS};

/// Interval at which shares are recomputed, in nanoseconds.
pub const EPOCH: u64 = 1 << 28;
/// Time window of a connection's recent rate, in nanoseconds.
pub const RATE_WINDOW: u64 = 1 << 29;
/// Largest lead of a connection over the mean, and largest lag behind the mean, in nanoseconds of its share.
pub const MAX_LEAD: i64 = 6_000_000_000;
/// Lag of a new connection behind the mean of the leads.
pub const INITIAL_LAG: i64 = 500_000_000;
/// Lower bound of the bar: this far below the mean of the leads.
pub const MAX_BAR_BELOW_MEAN: i64 = 1_000_000_000;
/// Upper bound of the bar: this far above the highest lead.
pub const MAX_BAR_ABOVE_LEAD: i64 = 100_000_000;
/// A connection with a larger lead than this, which still grows, is hit from half of the reference on.
pub const FAR_AHEAD: i64 = 1_200_000_000;
/// Weight of a connection's recent rate, relative to its lead, in the score that is compared with the bar.
const RATE_WEIGHT: i64 = 6;
/// Time constant of the smoothed waiting time, as a power of two of nanoseconds.
const SMOOTHING_SHIFT: u32 = 27;
/// Time in which a connection can respond to a hit, in nanoseconds, to which twice the waiting time is added.
const RESPONSE_TIME: u64 = 600_000_000;
/// Upper bound of the time for a response, in nanoseconds.
const MAX_RESPONSE_TIME: u64 = 1_500_000_000;
/// Time without a hit after which one doubling is undone, as a power of two of nanoseconds.
const DOUBLING_DECAY_SHIFT: u32 = 31;
/// Largest number of doublings of `n`, by which hits become more frequent. A connection at this limit is policed.
pub const MAX_DOUBLINGS: u32 = 6;
/// Number of doublings of `n` from which on hits on a connection no longer pause the bar.
const UNRESPONSIVE: u32 = 3;
/// Upper bound of the packet size that is charged, in bytes.
const MAX_PACKET: u32 = 1 << 17;
/// A connection is busy if it sends this many bytes in an epoch.
const BUSY_BYTES: u64 = 6000;
/// Upper bound of [`FlowSlot::recent`].
const MAX_RECENT: u64 = 8 * RATE_WINDOW;

/// Constant parameters of automatic priority drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct AutoParams {
    /// The limit of the queue.
    pub queue_limit: QueueLimit,
    /// The rate of the line, in bytes per second.
    pub capacity: u64,
    /// The transmission time of a byte, in 2^-16 nanoseconds; 0 for a line of infinite rate.
    pub byte_time: u64,
    /// The waiting time that is always acceptable, in nanoseconds; the smallest reference.
    pub target: u64,
    /// Half of the transmission time of a full queue, in nanoseconds.
    pub half: u64,
    /// 1 if ECN-capable packets are marked, otherwise 0.
    pub ecn: u64,
    /// The number of sets of the table, which is a power of two, minus one.
    pub mask: u64,
}

/// The state, initially all 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct AutoState {
    /// Time of the last arrival, in nanoseconds.
    pub last: u64,
    /// The smoothed waiting time, in nanoseconds.
    pub average: u64,
    /// The score above which connections are hit, in nanoseconds of a share.
    pub bar: i64,
    /// Time until which the bar does not fall, in nanoseconds.
    pub pause: u64,
    /// Number of the current epoch, counted from 1; 0 before the first packet.
    pub epoch: u64,
    /// Start of the current epoch, in nanoseconds.
    pub began: u64,
    /// Connections that have sent at least a few packets in this epoch.
    pub busy: u64,
    /// Connections of this epoch that were also active in an earlier one.
    pub active: u64,
    /// Connections of this epoch whose demand exceeds their share.
    pub heavy: u64,
    /// Bytes of the connections that are not heavy.
    pub light: u64,
    /// Sum of the leads of the heavy connections, each relative to the lowest possible lead.
    pub leads: u64,
    /// Time integral of the waiting time's excess over the reference, in nanoseconds times 2^-10 references.
    pub above: u64,
    /// Time integral of the waiting time's distance below the reference, in the unit of `above`.
    pub below: u64,
    /// The highest lead of a connection that can be hit, in this epoch.
    pub highest: i64,
    /// The value of `highest` at the end of the previous epoch.
    pub highest_before: i64,
    /// The mean lead of the heavy connections.
    pub mean: i64,
    /// The fair rate derived from the waiting time, in bytes per second.
    pub by_queue: u64,
    /// The fair rate in use, in bytes per second.
    pub fair: u64,
    /// The time for a byte at the fair rate, in 2^-16 nanoseconds.
    pub price: u64,
    /// Bytes that a connection at the fair rate sends in an epoch.
    pub portion: u64,
    /// The smoothed number of heavy connections, in 2^-8.
    pub crowd: u64,
    /// The waiting time above which hits begin, in nanoseconds.
    pub reference: u64,
    /// The waiting time above which connections without a lead are hit, too, in nanoseconds.
    pub urgent: u64,
}

/// The highest rate of a line, in bytes per second: 1 Tbit/s.
const MAX_LINE_RATE: u64 = 125_000_000_000;

impl AutoParams {
    /// Computes the parameters for a line with a rate in bits per second, with an acceptable waiting time in
    /// nanoseconds, and a table of at least `connections` slots.
    #[must_use]
    pub fn new(
        queue_limit: QueueLimit,
        target: u64,
        ecn: bool,
        bits_per_second: Option<u64>,
        connections: u64,
    ) -> Self {
        let sets = (connections / WAYS as u64).clamp(1, 1 << 24).next_power_of_two();
        let params =
            Self { queue_limit, capacity: 0, byte_time: 0, target, half: 0, ecn: u64::from(ecn), mask: sets - 1 };
        params.with_rate(bits_per_second)
    }

    /// The parameters for a line with another rate.
    #[must_use]
    pub fn with_rate(self, bits_per_second: Option<u64>) -> Self {
        let capacity = bits_per_second.map_or(MAX_LINE_RATE, |rate| (rate / 8).clamp(1, MAX_LINE_RATE));
        let byte_time = bits_per_second.map_or(0, |_| (1_000_000_000 << 16) / capacity);
        let bytes = if self.queue_limit.in_bytes != 0 {
            self.queue_limit.limit
        } else {
            self.queue_limit.limit.saturating_mul(TYPICAL_PACKET)
        };
        Self { capacity, byte_time, half: waiting_time(byte_time, bytes) / 2, ..self }
    }

    /// Number of sets of the table.
    #[must_use]
    pub const fn sets(&self) -> usize {
        self.mask as usize + 1
    }
}

/// The transmission time of a number of bytes, at most 2^36 nanoseconds.
const fn waiting_time(byte_time: u64, bytes: u64) -> u64 {
    let longest = 1 << 52;
    if byte_time != 0 && bytes > longest / byte_time { longest >> 16 } else { (bytes * byte_time) >> 16 }
}

/// Decides on an arriving packet, and updates the state of its connection.
pub fn judge_arrival(
    params: &AutoParams,
    state: &mut AutoState,
    sets: &mut [SlotSet],
    arrival: &ArrivingPacket,
) -> Verdict {
    let waits = waiting_time(params.byte_time, arrival.backlog.bytes);
    let calm = update_averages(params, state, arrival.now, waits);
    let set = &mut sets[(table::bucket(arrival.flow) & params.mask) as usize];
    let slot = table::find_slot(set, arrival, state.mean - INITIAL_LAG);
    update_slot(state, slot, arrival.now);
    let verdict = judge(
        params,
        state,
        slot,
        &Observation { now: arrival.now, waiting_time: waits, queueing_delay: calm, ecn_capable: arrival.ecn_capable },
    );
    if let Verdict::Drop(_) = verdict {
        return verdict;
    }
    if !params.queue_limit.fits(arrival) {
        return Verdict::Drop(DropReason::Full);
    }
    charge(params, state, slot, arrival.bytes);
    verdict
}

/// Updates the averages, the epoch and the bar. Returns the queueing delay that decisions use: the lower of the current
/// and the smoothed waiting time.
fn update_averages(params: &AutoParams, state: &mut AutoState, now: u64, waits: u64) -> u64 {
    if state.epoch == 0 {
        fair::begin_first_epoch(params, state, now);
    }
    if now.saturating_sub(state.began) >= EPOCH {
        fair::end_epoch(params, state, now);
    }
    let passed = now.saturating_sub(state.last).min(1 << 30);
    state.last = now;
    let part = passed.min(1 << SMOOTHING_SHIFT) >> 7;
    if waits > state.average {
        state.average += ((waits - state.average) * part) >> (SMOOTHING_SHIFT - 7);
    } else {
        state.average -= ((state.average - waits) * part) >> (SMOOTHING_SHIFT - 7);
    }
    let calm = waits.min(state.average);
    move_bar(state, passed, calm);
    calm
}

/// Lowers the bar if the waiting time is above the reference, and raises it otherwise: by twice the elapsed time if the
/// difference equals the reference.
fn move_bar(state: &mut AutoState, passed: u64, calm: u64) {
    let reference = state.reference;
    if calm >= reference {
        let over = ((calm - reference).min(4 * reference) << 10) / reference;
        state.above += passed * over;
        if state.last >= state.pause {
            state.bar -= ((passed * over) >> 9) as i64;
        }
    } else {
        let under = ((reference - calm) << 10) / reference;
        state.below += passed * under;
        state.bar += ((passed * under) >> 9) as i64;
    }
    let highest = state.highest.max(state.highest_before);
    if highest != fair::NO_LEAD {
        state.bar = state.bar.min(highest + MAX_BAR_ABOVE_LEAD);
    }
    state.bar = state.bar.max(state.mean - MAX_BAR_BELOW_MEAN);
}

/// Updates the state of a connection to the time `now`.
fn update_slot(state: &mut AutoState, slot: &mut FlowSlot, now: u64) {
    let passed = now.saturating_sub(slot.seen);
    slot.seen = now;
    slot.lead = (slot.lead - passed.min(1 << 62) as i64).clamp(state.mean - MAX_LEAD, state.mean + MAX_LEAD);
    slot.recent = slot.recent * RATE_WINDOW / (RATE_WINDOW + passed.min(1 << 40));
    if slot.epoch != state.epoch {
        fair::count_flow(state, slot);
    }
    if slot.recent > RATE_WINDOW * 6 / 10 {
        state.highest = state.highest.max(slot.lead);
    }
}

/// The state of the queue at the arrival of a packet.
struct Observation {
    now: u64,
    waiting_time: u64,
    queueing_delay: u64,
    ecn_capable: u32,
}

fn judge(params: &AutoParams, state: &mut AutoState, slot: &mut FlowSlot, finding: &Observation) -> Verdict {
    if !is_due(state, slot, finding) {
        return Verdict::Pass;
    }
    let mut patience = (RESPONSE_TIME + 2 * finding.waiting_time).min(MAX_RESPONSE_TIME);
    if slot.recent > 2 * RATE_WINDOW {
        patience = patience * 2 * RATE_WINDOW / slot.recent;
    }
    let since = if slot.hit_at == 0 { u64::MAX } else { finding.now.saturating_sub(slot.hit_at) };
    slot.doublings -= (since >> DOUBLING_DECAY_SHIFT).min(u64::from(slot.doublings)) as u32;
    let wait = patience >> slot.doublings;
    if since < wait && slot.doublings < MAX_DOUBLINGS {
        return Verdict::Pass;
    }
    if since < 2 * wait && 10 * slot.recent > 9 * slot.hit_recent {
        let steps = 1 + u32::from(slot.recent > RATE_WINDOW * 3 / 2) + u32::from(slot.recent > RATE_WINDOW * 4);
        slot.doublings = (slot.doublings + steps).min(MAX_DOUBLINGS);
    }
    (slot.hit_at, slot.hit_recent) = (finding.now, slot.recent);
    if slot.doublings < UNRESPONSIVE {
        state.pause = finding.now + (patience << 18) / (state.crowd * state.crowd).max(1 << 18);
    }
    let mark = params.ecn != 0 && finding.ecn_capable != 0 && slot.doublings < MAX_DOUBLINGS;
    if mark { Verdict::Mark } else { Verdict::Drop(DropReason::Early) }
}

/// Whether a packet of the connection should be hit, regardless of the connection's earlier hits.
fn is_due(state: &AutoState, slot: &FlowSlot, finding: &Observation) -> bool {
    if slot.recent <= RATE_WINDOW * 6 / 10 || finding.queueing_delay <= state.reference / 2 {
        return false;
    }
    let urgent = finding.queueing_delay > state.urgent;
    // A queue that is already emptying needs no more hits, nor does a queue whose last hit is not answered yet.
    let empties = 20 * finding.waiting_time < 19 * state.average;
    let waits_for_answer = finding.now < state.pause && !urgent;
    if slot.doublings < UNRESPONSIVE && (empties || waits_for_answer) {
        return false;
    }
    let score = slot.lead + RATE_WEIGHT * (slot.recent as i64 - RATE_WINDOW as i64);
    if finding.queueing_delay <= state.reference {
        return slot.recent > RATE_WINDOW && slot.lead > state.mean + FAR_AHEAD && score > state.mean + FAR_AHEAD;
    }
    let mut bar = state.bar;
    if urgent {
        let excess = ((finding.queueing_delay - state.urgent) << 10) / state.urgent;
        bar -= (MAX_LEAD >> 10) * excess.min(1 << 14) as i64;
    }
    score > bar
}

/// Adds a packet to the lead and the recent rate of its connection.
fn charge(params: &AutoParams, state: &mut AutoState, slot: &mut FlowSlot, bytes: u32) {
    if slot.bytes < BUSY_BYTES && slot.bytes + u64::from(bytes) >= BUSY_BYTES {
        fair::count_busy_flow(params, state);
    }
    let time = (u64::from(bytes.min(MAX_PACKET)) * state.price) >> 16;
    slot.lead += time as i64;
    slot.recent = (slot.recent + time).min(MAX_RECENT);
    slot.bytes += u64::from(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::{self, Backlog};

    const LINE: u64 = 100_000_000;
    const ROOM: QueueLimit = QueueLimit { limit: 10_000, in_bytes: 0 };

    /// The policy at a bottleneck of 100 Mbit/s: its parameters, state and table, and the backlog in bytes.
    struct Queue {
        params: AutoParams,
        state: AutoState,
        sets: Vec<SlotSet>,
        waiting: f64,
        now: u64,
    }

    impl Queue {
        fn new(params: AutoParams) -> Self {
            Self {
                params,
                state: AutoState::default(),
                sets: vec![SlotSet::default(); params.sets()],
                waiting: 0.0,
                now: 0,
            }
        }

        /// Records the arrival of a packet of 1500 bytes, `after` nanoseconds after the previous packet.
        fn arrive(&mut self, flow: u32, after: u64, capable: bool) -> Verdict {
            self.now += after;
            self.waiting = (self.waiting - after as f64 * LINE as f64 / 8e9).max(0.0);
            let waiting = Backlog { bytes: self.waiting as u64, packets: (self.waiting / 1500.0) as u64 };
            let capable = u32::from(capable);
            let arrival = ArrivingPacket {
                now: self.now,
                backlog: waiting,
                flow,
                bytes: 1500,
                ecn_capable: capable,
                ..ArrivingPacket::default()
            };
            let verdict = judge_arrival(&self.params, &mut self.state, &mut self.sets, &arrival);
            self.waiting += if matches!(verdict, Verdict::Drop(_)) { 0.0 } else { 1500.0 };
            verdict
        }
    }

    fn params(ecn: bool) -> AutoParams {
        AutoParams::new(ROOM, 5_000_000, ecn, Some(LINE), 1024)
    }

    /// Returns the packets of each of ten connections that pass within `seconds`, and the number of marks. The
    /// connections together send a third more than the rate of the line, and the first sends five times as much as each
    /// of the others. Each of the others sends a fourteenth of 11,111 packets a second, so 1190 of the line's 8333
    /// packets a second are left for the first.
    fn shares(queue: &mut Queue, seconds: u64, capable: bool) -> ([u64; 10], u64) {
        let (mut let_in, mut marked) = ([0; 10], 0);
        let end = queue.now + seconds * 1_000_000_000;
        let mut number = 0_u64;
        while queue.now < end {
            number += 1;
            let flow = aqm::random_bits(3, number) % 14;
            let flow = if flow > 9 { 0 } else { flow };
            match queue.arrive(flow as u32 * 1000, 90_000, capable) {
                Verdict::Drop(_) => continue,
                Verdict::Mark => marked += 1,
                Verdict::Pass => (),
            }
            let_in[flow as usize] += 1;
        }
        (let_in, marked)
    }

    #[test]
    fn unresponsive_flow_is_limited_to_the_residual_rate() {
        let mut queue = Queue::new(params(false));
        shares(&mut queue, 10, false);
        let (let_in, _) = shares(&mut queue, 10, false);
        assert!((11_000..12_500).contains(&let_in[0]), "{let_in:?}");
        assert!(let_in.iter().sum::<u64>() > 82_000, "the line is used: {let_in:?}");
    }

    #[test]
    fn ecn_marks_are_replaced_by_drops_if_ineffective() {
        let mut queue = Queue::new(params(true));
        let (_, marked) = shares(&mut queue, 10, true);
        let (let_in, later) = shares(&mut queue, 10, true);
        assert!(marked > 5, "{marked} were marked");
        assert!(later * 20 < let_in.iter().sum::<u64>(), "{later} marks where only drops help: {let_in:?}");
        assert!(let_in[0] < 12_500, "{let_in:?}");
    }

    #[test]
    fn sparse_flow_is_never_marked_or_dropped() {
        let mut queue = Queue::new(params(false));
        let mut sent = 0;
        for number in 0..200_000_u64 {
            if number % 100 == 0 {
                sent += 1;
                assert_eq!(queue.arrive(7, 0, false), Verdict::Pass, "packet {sent}");
            }
            queue.arrive(1000 * (1 + number as u32 % 5), 100_000, false);
        }
    }

    #[test]
    fn short_queue_passes_all_packets_and_full_queue_drops() {
        let mut queue = Queue::new(params(false));
        for number in 0..20_000 {
            assert_eq!(queue.arrive(number % 3, 121_000, false), Verdict::Pass);
        }
        queue.waiting = 15_000_000.0;
        assert_eq!(queue.arrive(99, 0, false), Verdict::Drop(DropReason::Full));
    }

    #[test]
    fn small_table_counts_untracked_flows_as_a_single_flow() {
        let mut queue = Queue::new(AutoParams::new(ROOM, 5_000_000, false, Some(LINE), 1));
        assert_eq!(queue.sets.len(), 1);
        let dropped = (0..100_000_u32)
            .filter(|flow| matches!(queue.arrive(flow * 2, 90_000, false), Verdict::Drop(DropReason::Early)));
        assert!(dropped.count() > 10_000);
    }

    /// The C mirror of this file must return the same values.
    #[test]
    fn decisions_and_layout_match_recorded_values() {
        let mut queue = Queue::new(params(true));
        let (let_in, marked) = shares(&mut queue, 5, true);
        assert_eq!((let_in, marked), ([7277, 3816, 3807, 3846, 3825, 3854, 3801, 3912, 3834, 3862], 57));
        assert_eq!(std::mem::size_of::<FlowSlot>(), 72);
        assert_eq!(std::mem::size_of::<SlotSet>(), 608);
    }

    #[test]
    fn extreme_params_and_arrivals_cause_no_overflow() {
        let rooms = [1, 1500, 1 << 39].map(|limit| [0, 1].map(|in_bytes| QueueLimit { limit, in_bytes })).concat();
        for rate in [None, Some(0), Some(8), Some(LINE), Some(u64::MAX)] {
            for (room, target) in rooms.iter().flat_map(|room| [0, 1, u64::MAX].map(|target| (*room, target))) {
                let params = AutoParams::new(room, target, true, rate, 8);
                let (mut state, mut sets) = (AutoState::default(), vec![SlotSet::default(); params.sets()]);
                let mut now = 0_u64;
                for number in 0..5000_u64 {
                    let random = aqm::random_bits(rate.unwrap_or(1), number);
                    // Steps of up to 52 days, and one of 36 years in a thousand; the clock overflows after 584 years.
                    now += if number % 1000 == 999 { 1 << 60 } else { random >> (12 + random % 52) };
                    let waiting = Backlog { bytes: random % (1 << 39), packets: random % (1 << 39) };
                    let bytes = if random & 64 == 0 { u32::MAX } else { 1500 };
                    let arrival = ArrivingPacket {
                        now,
                        backlog: waiting,
                        flow: random as u32 % 50,
                        bytes,
                        ecn_capable: 1,
                        ..ArrivingPacket::default()
                    };
                    let verdict = judge_arrival(&params, &mut state, &mut sets, &arrival);
                    let is_dropped = matches!(verdict, Verdict::Drop(_));
                    assert!(is_dropped || room.fits(&arrival), "{arrival:?} beyond {room:?} passed");
                    assert!(state.average <= 1 << 36 && (1..=params.capacity).contains(&state.fair), "{state:?}");
                    let slots = sets.iter().flat_map(|set| &set.slots);
                    let is_bounded = |slot: &FlowSlot| slot.recent <= MAX_RECENT && slot.doublings <= MAX_DOUBLINGS;
                    assert!(slots.clone().all(is_bounded), "{sets:?}");
                }
            }
        }
    }
}

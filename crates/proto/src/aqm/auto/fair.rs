//! The fair rate: the rate of a connection with unlimited demand, from counters, without a pass over the table.

use super::{AutoParams, AutoState, EPOCH, FlowSlot, MAX_LEAD, waiting_time};
use crate::aqm::virtual_queue::TYPICAL_PACKET;

/// The highest lead if no connection had a lead that counts.
pub(super) const NO_LEAD: i64 = i64::MIN;

/// Packets per connection that may wait in the queue, if there are few connections, and if there are many.
const QUEUE_OF_FEW: u64 = 80;
const QUEUE_OF_MANY: u64 = 6;
/// Upper bound of the reference for few connections, in nanoseconds.
const MAX_WAIT_OF_FEW: u64 = 40_000_000;
/// A waiting time is urgent if it exceeds four references by this time, in nanoseconds.
const URGENT_WAIT: u64 = 100_000_000;
/// Upper bound of the transmission time of a packet in the computation of the reference, in nanoseconds.
const MAX_PACKET_TIME: u64 = 1 << 30;
/// Upper bound of the length of an epoch in computations, in microseconds.
const MAX_EPOCH: u64 = 100_000_000;
const MICROSECONDS: u64 = 1_000_000;

/// Begins the first epoch, in which the fair rate is the whole capacity.
pub(super) fn begin_first_epoch(params: &AutoParams, state: &mut AutoState, now: u64) {
    state.epoch = 1;
    (state.began, state.last) = (now, now);
    (state.fair, state.by_queue) = (params.capacity, params.capacity);
    state.crowd = 1 << 8;
    (state.highest, state.highest_before) = (NO_LEAD, NO_LEAD);
    derive_shares(params, state);
}

/// Counts a connection at its first packet of this epoch, by its bytes in its previous epoch.
pub(super) fn count_flow(state: &mut AutoState, slot: &mut FlowSlot) {
    if slot.epoch != 0 {
        state.active += 1;
        slot.rate = if slot.rate == 0 { slot.bytes } else { (slot.rate + slot.bytes) / 2 };
    }
    if 2 * slot.rate >= state.portion || slot.hit_at != 0 && 10 * slot.rate >= state.portion {
        state.heavy += 1;
        state.leads += (slot.lead - state.mean + MAX_LEAD) as u64;
    } else {
        state.light += slot.bytes;
    }
    (slot.bytes, slot.epoch) = (0, state.epoch);
}

/// Counts a connection that sends much in this epoch. If many connections start at once, the fair rate is reduced
/// immediately instead of at the end of the epoch.
pub(super) fn count_busy_flow(params: &AutoParams, state: &mut AutoState) {
    state.busy += 1;
    let equal = params.capacity / state.busy;
    if state.average > state.reference && 2 * equal < state.fair {
        (state.fair, state.by_queue) = (equal, equal);
        state.crowd = state.busy << 8;
        derive_shares(params, state);
    }
}

/// Computes the fair rate from the counters of the epoch, and begins the next epoch.
pub(super) fn end_epoch(params: &AutoParams, state: &mut AutoState, now: u64) {
    let elapsed = now - state.began;
    let micros = (elapsed / 1000).min(MAX_EPOCH);
    let heavy = state.heavy.max(1);
    let least = params.capacity / state.active.max(1);
    let left = (params.capacity * micros / MICROSECONDS).saturating_sub(state.light);
    let most = (left / heavy * MICROSECONDS / micros).clamp(least, params.capacity);
    state.by_queue = rate_by_queue(state, elapsed).clamp(least, most);
    if state.by_queue < state.fair {
        state.fair = state.by_queue;
    } else {
        state.fair += (state.by_queue - state.fair) / 10;
    }
    state.crowd = (state.crowd + (heavy << 8)) / 2;
    if let Some(mean) = state.leads.checked_div(state.heavy) {
        state.mean += mean as i64 - MAX_LEAD;
    }
    (state.busy, state.active, state.heavy, state.light, state.leads, state.above, state.below) = (0, 0, 0, 0, 0, 0, 0);
    (state.highest_before, state.highest) = (state.highest, NO_LEAD);
    state.epoch += 1;
    state.began = now;
    derive_shares(params, state);
}

/// The rate for the next epoch: a tenth lower if the mean waiting time was twice the reference, a tenth higher if it
/// was 0.
const fn rate_by_queue(state: &AutoState, elapsed: u64) -> u64 {
    let difference = state.above.abs_diff(state.below) / elapsed;
    let difference = if difference > 1 << 10 { 1 << 10 } else { difference };
    let change = state.by_queue * difference / (10 << 10);
    if state.above > state.below { state.by_queue - change } else { state.by_queue + change }
}

fn derive_shares(params: &AutoParams, state: &mut AutoState) {
    state.fair = state.fair.max(1);
    state.price = (1_000_000_000 << 16) / state.fair;
    // The length of an epoch is 275/1024 of a second.
    state.portion = (state.fair * 275) >> 10;
    let packets = (waiting_time(params.byte_time, TYPICAL_PACKET).min(MAX_PACKET_TIME) * state.crowd) >> 8;
    let crowded = (QUEUE_OF_FEW * packets).min(MAX_WAIT_OF_FEW).max(QUEUE_OF_MANY * packets);
    state.reference = params.target.max(crowded).min(params.half).max(1);
    state.urgent = (4 * state.reference + URGENT_WAIT).min(params.half * 3 / 2).max(1);
    const { assert!(EPOCH == 1 << 28) };
}

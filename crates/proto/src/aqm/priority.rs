//! Priority drop: RED that hits the packets of heavy connections `n` times as often as others (FIT2013, 12th Forum on
//! Information Technology, part 4, from page 37 on).
//!
//! *Static*: packets are heavy if they are from configured senders. *Dynamic*: one connection is heavy, the most
//! frequent one in a sample of the packets that arrived last. The specification is the head comment of
//! `queue/priority.rs` in the emulator.

use crate::aqm::history::{FlowHistory, MAX_HISTORY};
use crate::aqm::red::{self, HEAVY, OTHERS};
use crate::aqm::{ArrivingPacket, Verdict};

/// Largest number of heavy senders.
pub const MAX_SENDERS: usize = 16;

/// Constant parameters of static priority drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct StaticParams {
    /// The parameters of RED.
    pub red: red::RedParams,
    /// The keys of the heavy senders: [`super::source_key`].
    pub heavy: [u32; MAX_SENDERS],
    /// Number of keys in use.
    pub senders: u64,
}

impl StaticParams {
    /// Creates the parameters for the heavy senders with the keys `heavy`, of which only the first [`MAX_SENDERS`] are
    /// used.
    #[must_use]
    pub fn new(red: red::RedParams, heavy: &[u32]) -> Self {
        let mut padded = [0; MAX_SENDERS];
        let senders = heavy.len().min(MAX_SENDERS);
        padded[..senders].copy_from_slice(&heavy[..senders]);
        Self { red, heavy: padded, senders: senders as u64 }
    }

    fn is_heavy(&self, source: u32) -> bool {
        let mut found = false;
        for index in 0..MAX_SENDERS {
            found |= (index as u64) < self.senders && self.heavy[index] == source;
        }
        found
    }
}

/// The verdict of static priority drop.
pub fn judge_static(params: &StaticParams, state: &mut red::RedState, arrival: &ArrivingPacket) -> Verdict {
    let class = if params.is_heavy(arrival.source) { HEAVY } else { OTHERS };
    red::judge(&params.red, state, arrival, class)
}

/// Constant parameters of dynamic priority drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DynamicParams {
    /// The parameters of RED.
    pub red: red::RedParams,
    /// Interval in packets at which the connection of a packet is recorded; at least 1.
    pub rec_int: u32,
    /// Interval in packets at which the heavy connection is determined; at least 1.
    pub sta_int: u32,
    /// Length of the history in connections, from 1 to [`MAX_HISTORY`].
    pub hist_len: u32,
}

/// The state of dynamic priority drop, initially all 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[repr(C)]
pub struct DynamicState {
    /// The state of RED.
    pub red: red::RedState,
    /// Packets since a connection was last recorded.
    pub unrecorded: u32,
    /// Packets since the heavy connection was last determined.
    pub undetermined: u32,
    /// The hash of the heavy connection.
    pub heavy: u32,
    /// Whether there is a heavy connection: 0 or 1.
    pub known: u32,
    /// The connections recorded last.
    pub history: FlowHistory,
}

impl DynamicParams {
    /// Creates the parameters from two intervals in packets and the length of the history, which is at most
    /// [`MAX_HISTORY`].
    #[must_use]
    pub const fn new(red: red::RedParams, rec_int: u32, sta_int: u32, hist_len: u32) -> Self {
        let longest = MAX_HISTORY as u32;
        Self { red, rec_int, sta_int, hist_len: if hist_len < longest { hist_len } else { longest } }
    }
}

/// The verdict of dynamic priority drop.
pub fn judge_dynamic(params: &DynamicParams, state: &mut DynamicState, arrival: &ArrivingPacket) -> Verdict {
    update_history(params, state, arrival.flow);
    let class = if state.known != 0 && state.heavy == arrival.flow { HEAVY } else { OTHERS };
    red::judge(&params.red, &mut state.red, arrival, class)
}

/// Records the connection of a packet and determines the heavy connection, each at its interval.
fn update_history(params: &DynamicParams, state: &mut DynamicState, flow: u32) {
    state.unrecorded += 1;
    if state.unrecorded >= params.rec_int {
        state.unrecorded = 0;
        state.history.record(flow, params.hist_len);
    }
    state.undetermined += 1;
    if state.undetermined >= params.sta_int {
        state.undetermined = 0;
        let heavy = state.history.most_frequent();
        state.known = u32::from(heavy.is_some());
        state.heavy = heavy.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aqm::{Backlog, QueueLimit};

    fn red(n: f64) -> red::RedParams {
        let room = QueueLimit { limit: 100, in_bytes: 0 };
        let settings =
            red::RedConfig { queue_limit: room, min: 0, max: 50, p: 0.1, wq: 1.0, gentle: false, ecn: false, n };
        red::RedParams::new(&settings, Some(10_000_000), 3)
    }

    fn arrival(number: u64, flow: u32, source: u32) -> ArrivingPacket {
        let waiting = Backlog { bytes: 15_000, packets: 10 };
        ArrivingPacket { number, flow, source, bytes: 1500, backlog: waiting, ..ArrivingPacket::default() }
    }

    #[test]
    fn only_known_senders_are_heavy() {
        let params = StaticParams::new(red(10_000.0), &[4, 9]);
        let mut state = red::RedState::default();
        for number in 0..100 {
            for source in [4, 9] {
                assert_ne!(judge_static(&params, &mut state, &arrival(number, 0, source)), Verdict::Pass, "{source}");
            }
        }
        let others =
            (0..1000).filter(|number| judge_static(&params, &mut state, &arrival(*number, 0, 0)) != Verdict::Pass);
        assert!((20..60).contains(&others.count()), "free places of the list match no sender");
        assert_eq!(StaticParams::new(red(1.0), &[7; MAX_SENDERS + 5]).senders, MAX_SENDERS as u64);
    }

    /// One connection sends every twentieth packet; each other packet belongs to a connection of its own.
    #[test]
    fn the_heavy_connection_is_found_among_a_million() {
        let params = DynamicParams::new(red(2.0), 3, 100, 1024);
        let mut state = Box::<DynamicState>::default();
        let mut found = 0;
        for number in 0..1_000_000_u32 {
            let flow = if number % 20 == 0 { 77 } else { number.wrapping_mul(0x9e37_79b1) };
            judge_dynamic(&params, &mut state, &arrival(u64::from(number), flow, 0));
            found += u32::from(state.heavy == 77);
        }
        assert!(found > 990_000, "{found}");
        assert!(state.history.slots.iter().map(|slot| u32::from(slot.count)).sum::<u32>() <= 1024);
    }
}

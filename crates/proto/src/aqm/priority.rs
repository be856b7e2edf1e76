//! Priority drop: RED that hits the packets of the heavy `n` times as often as others (Dynamic and static priority drop,
//! FIT2013, 12th Forum on Information Technology, part 4, from page 37 on).
//!
//! *Static*: the heavy are senders that are known beforehand. *Dynamic*: the heavy is one connection, the most frequent
//! in a sample of the packets that arrived last. The specification is the head comment of `queue/priority.rs` in the
//! laboratory.

use crate::aqm::history::{History, LONGEST};
use crate::aqm::red::{self, HEAVY, OTHERS};
use crate::aqm::{Arrival, Verdict};

/// How many senders may be heavy.
pub const SENDERS: usize = 16;

/// What is fixed of static priority drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Static {
    /// The law.
    pub red: red::Params,
    /// The heavy senders.
    pub heavy: [u32; SENDERS],
    /// How many there are.
    pub senders: u64,
}

impl Static {
    /// Of heavy senders, of which there are at most [`SENDERS`].
    #[must_use]
    pub fn new(red: red::Params, heavy: &[u32]) -> Self {
        let mut all = [0; SENDERS];
        let senders = heavy.len().min(SENDERS);
        all[..senders].copy_from_slice(&heavy[..senders]);
        Self { red, heavy: all, senders: senders as u64 }
    }

    fn is_heavy(&self, source: u32) -> bool {
        let mut found = false;
        for index in 0..SENDERS {
            found |= (index as u64) < self.senders && self.heavy[index] == source;
        }
        found
    }
}

/// What becomes of a packet under static priority drop.
pub fn by_sender(params: &Static, state: &mut red::State, arrival: &Arrival) -> Verdict {
    let class = if params.is_heavy(arrival.source) { HEAVY } else { OTHERS };
    red::judge(&params.red, state, arrival, class)
}

/// What is fixed of dynamic priority drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Dynamic {
    /// The law.
    pub red: red::Params,
    /// Every so many packets the connection of one is recorded; at least 1.
    pub rec_int: u32,
    /// Every so many packets the heavy connection is determined; at least 1.
    pub sta_int: u32,
    /// How many connections are remembered, from 1 to [`LONGEST`].
    pub hist_len: u32,
}

/// What changes under dynamic priority drop. All of it is 0 at first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// The law's.
    pub red: red::State,
    /// Packets since the last that was recorded.
    pub unrecorded: u32,
    /// Packets since the heavy connection was determined.
    pub undetermined: u32,
    /// The heavy connection.
    pub heavy: u32,
    /// Whether there is one: 0 or 1.
    pub known: u32,
    /// The connections recorded last.
    pub history: History,
}

impl Dynamic {
    /// Of two intervals in packets, and the length of the history.
    #[must_use]
    pub const fn new(red: red::Params, rec_int: u32, sta_int: u32, hist_len: u32) -> Self {
        let longest = LONGEST as u32;
        Self { red, rec_int, sta_int, hist_len: if hist_len < longest { hist_len } else { longest } }
    }
}

/// What becomes of a packet under dynamic priority drop.
pub fn by_history(params: &Dynamic, state: &mut State, arrival: &Arrival) -> Verdict {
    observe(params, state, arrival.flow);
    let class = if state.known != 0 && state.heavy == arrival.flow { HEAVY } else { OTHERS };
    red::judge(&params.red, &mut state.red, arrival, class)
}

/// Records a connection and determines the heavy one, each if it is time.
fn observe(params: &Dynamic, state: &mut State, flow: u32) {
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

//! The table of known connections: a set-associative table, indexed by the hash of the connection. A new connection
//! takes the slot of its set that was not used for the longest time. If even that slot is in use, the table is too
//! small, and the new connection inherits the state of the other one.

use crate::aqm::{self, ArrivingPacket};

/// Number of slots in a set.
pub const WAYS: usize = 8;

/// A slot is in use if a packet of its connection arrived within this time, in nanoseconds.
const IN_USE: u64 = 1 << 30;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FlowSlot {
    /// The bytes that the connection sent minus its share, in nanoseconds of its share.
    pub lead: i64,
    /// The recent bytes of the connection, decaying: `RATE_WINDOW` at the rate of its share.
    pub recent: u64,
    /// Time of the last packet, in nanoseconds.
    pub seen: u64,
    /// Time of the last hit, in nanoseconds; 0 if there was none.
    pub hit_at: u64,
    /// Value of `recent` at the last hit.
    pub hit_recent: u64,
    /// Bytes in the epoch `epoch`.
    pub bytes: u64,
    /// Smoothed number of bytes per epoch.
    pub rate: u64,
    /// Number of the epoch of the last packet; 0 for a new connection.
    pub epoch: u64,
    /// Number of doublings of the connection's `n`.
    pub doublings: u32,
    /// Padding of the slot.
    pub unused: u32,
}

/// The slots with the same index in the table. A tag of 0 is an empty slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SlotSet {
    /// The hashes of the connections, with the lowest bit set.
    pub tags: [u32; WAYS],
    /// The slots, in the order of `tags`.
    pub slots: [FlowSlot; WAYS],
}

/// The hash from which the set of a connection is selected; it has more bits than the index of a set.
pub(super) const fn bucket(flow: u32) -> u64 {
    aqm::mix(flow as u64) >> 32
}

/// Returns the slot of a connection; a new connection begins with the lead `lead`.
pub(super) fn find_slot<'a>(set: &'a mut SlotSet, arrival: &ArrivingPacket, lead: i64) -> &'a mut FlowSlot {
    let tag = arrival.flow | 1;
    let mut stalest = 0;
    for way in 0..WAYS {
        if set.tags[way] == tag {
            return &mut set.slots[way];
        }
        if set.slots[way].seen < set.slots[stalest].seen {
            stalest = way;
        }
    }
    let slot = &mut set.slots[stalest];
    if set.tags[stalest] == 0 || arrival.now.saturating_sub(slot.seen) > IN_USE {
        *slot = FlowSlot { lead, seen: arrival.now, ..FlowSlot::default() };
    }
    set.tags[stalest] = tag;
    slot
}

//! The connections that are known: a table of sets, found by the hash of the connection; a newcomer takes the slot of its
//! set that was not seen for the longest time. If even that is in use, the table is too small, and the two are taken for
//! one connection from now on.

use crate::aqm::{self, ArrivingPacket};

/// Slots of a set.
pub const WAYS: usize = 8;

/// A slot that was seen within this time is in use, in nanoseconds.
const IN_USE: u64 = 1 << 30;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FlowSlot {
    /// Its lead: its bytes less its share, in nanoseconds of its share.
    pub lead: i64,
    /// Its recent bytes: `RATE_WINDOW` if they were its share.
    pub recent: u64,
    /// When it was seen last.
    pub seen: u64,
    /// When it was hit last; 0 if never.
    pub hit_at: u64,
    /// How much `recent` was then.
    pub hit_recent: u64,
    /// Its bytes in the epoch.
    pub bytes: u64,
    /// Its smoothed bytes per epoch.
    pub rate: u64,
    /// Which epoch that is; 0 if it is new.
    pub epoch: u64,
    /// How often its `n` has doubled.
    pub doublings: u32,
    /// Only there to fill the slot.
    pub unused: u32,
}

/// Slots that share a place of the table. A tag of 0 is an empty slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SlotSet {
    /// Whose slots they are: their hashes, made odd.
    pub tags: [u32; WAYS],
    /// The slots, in the order of `tags`.
    pub slots: [FlowSlot; WAYS],
}

/// Where a connection belongs, as more bits than there are sets.
pub(super) const fn bucket(flow: u32) -> u64 {
    aqm::mix(flow as u64) >> 32
}

/// The slot of a connection. A new one begins with `lead`.
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

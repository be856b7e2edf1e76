//! A ring of the last connections that sent packets, and the most frequent of them, at a constant cost per entry.
//!
//! A ring keeps the order of the entries, a hash table the number of entries of each connection, and linked lists the
//! connections with one entry, with two entries and so on. A count changes by one at a time, so the highest count is
//! maintained without a scan.
//!
//! Of equally frequent connections, the one whose count changed last is the first. The table is set-associative: if all
//! slots of its set are in use, a new connection gets an entry in the ring, but is not counted.

/// Largest number of entries in the ring.
pub const MAX_HISTORY: usize = 1024;

/// Number of slots in a set of the hash table.
pub const WAYS: usize = 8;

/// Number of sets of the hash table.
pub const SETS: usize = 256;

/// The number of ring entries of one connection. References to slots are indices plus one; 0 means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct HistorySlot {
    /// The hash of the connection.
    pub flow: u32,
    /// Number of ring entries of the connection; 0 if the slot is free.
    pub count: u16,
    /// The previous slot in the list of those with the same count.
    pub prev: u16,
    /// The next slot in the list of those with the same count.
    pub next: u16,
}

/// The history of connections, initially all 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct FlowHistory {
    /// The slots of the last connections; 0 for a connection that is not counted.
    pub ring: [u16; MAX_HISTORY],
    /// Heads of the lists of slots, indexed by their count.
    pub first: [u16; MAX_HISTORY + 1],
    /// The hash table of slots, in sets of `WAYS`.
    pub slots: [HistorySlot; SETS * WAYS],
    /// Index of the oldest entry in the ring, which is replaced next.
    pub position: u32,
    /// The highest count of all connections in the ring.
    pub max_count: u32,
}

impl Default for FlowHistory {
    fn default() -> Self {
        Self {
            ring: [0; MAX_HISTORY],
            first: [0; MAX_HISTORY + 1],
            slots: [HistorySlot::default(); SETS * WAYS],
            position: 0,
            max_count: 0,
        }
    }
}

impl FlowHistory {
    /// Records a connection in place of the one recorded `length` calls before; `length` is from 1 to [`MAX_HISTORY`].
    pub fn record(&mut self, flow: u32, length: u32) {
        let position = self.position as usize;
        self.decrement(self.ring[position]);
        let slot = self.find(flow);
        self.ring[position] = slot;
        self.increment(slot);
        self.position = if self.position + 1 < length { self.position + 1 } else { 0 };
    }

    /// The most frequent connection; `None` if no connection is counted.
    #[must_use]
    pub fn most_frequent(&self) -> Option<u32> {
        let slot = self.first[self.max_count as usize];
        (slot != 0).then(|| self.slots[usize::from(slot) - 1].flow)
    }

    /// Returns the slot of a connection, or a free slot of its set, which then belongs to the connection; 0 if there is
    /// none.
    fn find(&mut self, flow: u32) -> u16 {
        let set = flow as usize % SETS * WAYS;
        let mut free_slot = 0;
        for index in set..set + WAYS {
            let slot = &self.slots[index];
            if slot.count != 0 && slot.flow == flow {
                return index as u16 + 1;
            }
            if slot.count == 0 && free_slot == 0 {
                free_slot = index as u16 + 1;
            }
        }
        if free_slot != 0 {
            self.slots[usize::from(free_slot) - 1].flow = flow;
        }
        free_slot
    }

    fn increment(&mut self, slot: u16) {
        if slot == 0 {
            return;
        }
        self.unlink(slot);
        self.slots[usize::from(slot) - 1].count += 1;
        self.link(slot);
        self.max_count = self.max_count.max(u32::from(self.slots[usize::from(slot) - 1].count));
    }

    fn decrement(&mut self, slot: u16) {
        if slot == 0 {
            return;
        }
        self.unlink(slot);
        self.slots[usize::from(slot) - 1].count -= 1;
        self.link(slot);
        if self.first[self.max_count as usize] == 0 {
            self.max_count -= 1;
        }
    }

    /// Removes a slot from the list of its count.
    fn unlink(&mut self, slot: u16) {
        let HistorySlot { count, prev: prev_slot, next: next_slot, .. } = self.slots[usize::from(slot) - 1];
        if count == 0 {
            return;
        }
        if prev_slot == 0 {
            self.first[usize::from(count)] = next_slot;
        } else {
            self.slots[usize::from(prev_slot) - 1].next = next_slot;
        }
        if next_slot != 0 {
            self.slots[usize::from(next_slot) - 1].prev = prev_slot;
        }
    }

    /// Inserts a slot at the head of the list of its count.
    fn link(&mut self, slot: u16) {
        let count = self.slots[usize::from(slot) - 1].count;
        if count == 0 {
            return;
        }
        let next_slot = self.first[usize::from(count)];
        self.slots[usize::from(slot) - 1].prev = 0;
        self.slots[usize::from(slot) - 1].next = next_slot;
        if next_slot != 0 {
            self.slots[usize::from(next_slot) - 1].prev = slot;
        }
        self.first[usize::from(count)] = slot;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn most_frequent_flow_matches_exact_counts() {
        for length in [1, 2, 7, 100, MAX_HISTORY] {
            let mut history = FlowHistory::default();
            assert_eq!(history.most_frequent(), None);
            let mut recorded: Vec<u32> = Vec::new();
            for number in 0..3000 {
                let bits = crate::aqm::random_bits(9, number);
                // A third of the packets belongs to 500 rare connections, the rest to one frequent connection, which
                // changes every 700 packets.
                let flow = if bits.is_multiple_of(3) { (bits >> 32) as u32 % 500 } else { (number / 700) as u32 };
                history.record(flow, length as u32);
                recorded.push(flow);
                let mut counts = BTreeMap::<u32, u32>::new();
                for flow in recorded.iter().rev().take(length) {
                    *counts.entry(*flow).or_default() += 1;
                }
                let leader = history.most_frequent().unwrap();
                assert_eq!(counts.get(&leader), counts.values().max(), "{number}, {leader}");
                assert_eq!(history.max_count, counts[&leader]);
            }
        }
    }

    #[test]
    fn tie_is_won_by_the_flow_with_the_latest_count_change() {
        let mut history = FlowHistory::default();
        let seen = [1, 2, 2, 1, 3].map(|flow| {
            history.record(flow, 4);
            history.most_frequent()
        });
        // The last record evicts the oldest record of flow 1, so only flow 2 has two records left.
        assert_eq!(seen, [1, 2, 2, 1, 2].map(Some));
        let seen = [3, 4, 4].map(|flow| {
            history.record(flow, 4);
            history.most_frequent()
        });
        assert_eq!(seen, [3, 3, 4].map(Some));
    }

    #[test]
    fn flows_beyond_the_ways_of_a_set_are_not_counted() {
        let mut history = FlowHistory::default();
        let same_set = |number: u32| number * SETS as u32;
        for number in 0..9 {
            history.record(same_set(number), 20);
        }
        for _ in 0..5 {
            history.record(same_set(8), 20);
        }
        assert_ne!(history.most_frequent(), Some(same_set(8)), "the set is full");
        (0..20).for_each(|_| history.record(same_set(8), 20));
        assert_eq!(history.most_frequent(), Some(same_set(8)), "the earlier connections are evicted");
        assert_eq!(history.first[1..].iter().filter(|slot| **slot != 0).count(), 1);
    }
}

//! The lane in which each address was last seen as a source. Answers are sent in the lane of their request.
//!
//! A lane takes over an address from another lane only when the other lane has ended, or has carried no packet from the
//! address for the timeout of a UDP flow in connection tracking.
//!
//! The table is bounded, because a sender may use any number of addresses. It has two generations: when the young
//! generation is full, it replaces the old one, and the addresses of the old one are removed. An address that is seen
//! again moves to the young generation.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::lane::Lane;

/// Largest number of addresses in each generation.
const MAX_PER_GENERATION: usize = 2048;

/// Lifetime of an address after its last packet, as `nf_conntrack_udp_timeout`.
const LIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// The address table of all tunnels.
#[derive(Debug, Default)]
pub struct AddressTable(Mutex<AddressGenerations>);

#[derive(Debug, Default)]
struct AddressGenerations {
    young: HashMap<IpAddr, AddressEntry>,
    old: HashMap<IpAddr, AddressEntry>,
}

/// The last packet from an address.
#[derive(Debug)]
struct AddressEntry {
    lane: Weak<Lane>,
    last_seen: Instant,
}

impl AddressEntry {
    /// Returns the lane, unless it has ended or is about to end.
    fn lane(&self) -> Option<Arc<Lane>> {
        self.lane.upgrade().filter(|lane| !lane.is_retired())
    }

    fn is_live_elsewhere(&self, lane: &Arc<Lane>, now: Instant) -> bool {
        let is_other = |own| !Arc::ptr_eq(&own, lane);
        now.duration_since(self.last_seen) < LIVE_TIMEOUT && self.lane().is_some_and(is_other)
    }
}

impl AddressGenerations {
    fn get(&self, address: &IpAddr) -> Option<&AddressEntry> {
        self.young.get(address).or_else(|| self.old.get(address))
    }
}

impl AddressTable {
    /// Records that `lane` has carried a packet from `source`, unless `source` is live in another lane.
    pub fn record(&self, source: IpAddr, lane: &Arc<Lane>, now: Instant) {
        let mut generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.get(&source).is_some_and(|entry| entry.is_live_elsewhere(lane, now)) {
            return;
        }
        if generations.young.len() >= MAX_PER_GENERATION && !generations.young.contains_key(&source) {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(source, AddressEntry { lane: Arc::downgrade(lane), last_seen: now });
    }

    /// Returns the lane in which `address` was last seen, if the lane still exists.
    pub fn lane(&self, address: IpAddr) -> Option<Arc<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&address)?.lane()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::metrics::tunnels::PacketCounters;
    use crate::tunnel::sources::LaneRemote;
    use ekiden_proto::direction::Direction;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn lane(counters: &Arc<PacketCounters>, name: &str) -> Arc<Lane> {
        Lane::new(counters, LaneRemote::Path { name: name.into(), key: None }, Direction::Down)
    }

    /// Regression: the lane of the last packet took over the address.
    #[test]
    fn live_address_stays_in_its_lane() {
        let (seen, counters, now) = (AddressTable::default(), Arc::new(PacketCounters::default()), Instant::now());
        let (one, other) = (lane(&counters, "one"), lane(&counters, "other"));
        let leads_to = |lane: &Arc<Lane>| seen.lane(address(1)).is_some_and(|seen| Arc::ptr_eq(&seen, lane));
        seen.record(address(1), &one, now);
        seen.record(address(1), &other, now + LIVE_TIMEOUT / 2);
        assert!(leads_to(&one), "live in one lane");
        seen.record(address(1), &one, now + LIVE_TIMEOUT / 2);
        seen.record(address(1), &other, now + LIVE_TIMEOUT);
        assert!(leads_to(&one), "live since the last packet");
        seen.record(address(1), &other, now + LIVE_TIMEOUT / 2 + LIVE_TIMEOUT);
        assert!(leads_to(&other), "not live any more");
        seen.record(address(1), &one, now + LIVE_TIMEOUT / 2 + LIVE_TIMEOUT);
        assert!(leads_to(&other), "live in the other lane");
        assert!(seen.lane(address(2)).is_none());
        other.retire();
        assert!(seen.lane(address(1)).is_none(), "a retired lane accepts no packets");
        seen.record(address(1), &one, now + 2 * LIVE_TIMEOUT);
        assert!(leads_to(&one), "the other lane has ended");
        drop((one, other));
        assert!(seen.lane(address(1)).is_none(), "the lane was dropped");
    }

    #[test]
    fn inactive_addresses_are_forgotten_and_active_addresses_kept() {
        let (seen, counters, now) = (AddressTable::default(), Arc::new(PacketCounters::default()), Instant::now());
        let lane = lane(&counters, "peer");
        for number in 0..20_000 {
            seen.record(address(number), &lane, now);
            seen.record(address(1 << 31), &lane, now);
        }
        let halves = seen.0.lock().unwrap();
        assert!(halves.young.len() + halves.old.len() <= 2 * MAX_PER_GENERATION);
        drop(halves);
        assert!(seen.lane(address(1 << 31)).is_some() && seen.lane(address(19_999)).is_some());
        assert!(seen.lane(address(0)).is_none());
    }
}

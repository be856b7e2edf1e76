//! Where addresses were last seen: answers go into the lane that their question came from.
//!
//! A lane takes over an address from another lane only when that lane has ended, or has brought no packet from the address
//! for as long as connection tracking keeps a flow of UDP.
//!
//! A sender with ever more addresses must not make it grow. So it has two halves, and when the young one is full it
//! becomes the old one, whose addresses are forgotten. An address that is seen again is young again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::lane::Lane;

/// Most addresses in each half.
const HALF: usize = 2048;

/// How long after its last packet an address is live: as `nf_conntrack_udp_timeout`.
const LIVE: Duration = Duration::from_secs(30);

/// The addresses of all tunnels.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<IpAddr, Sighting>,
    old: HashMap<IpAddr, Sighting>,
}

/// The last packet from an address.
#[derive(Debug)]
struct Sighting {
    lane: Weak<Lane>,
    at: Instant,
}

impl Sighting {
    /// Its lane, if that goes on.
    fn lane(&self) -> Option<Arc<Lane>> {
        self.lane.upgrade().filter(|lane| !lane.is_retired())
    }

    fn is_live_elsewhere(&self, lane: &Arc<Lane>, now: Instant) -> bool {
        let elsewhere = |own| !Arc::ptr_eq(&own, lane);
        now.duration_since(self.at) < LIVE && self.lane().is_some_and(elsewhere)
    }
}

impl Halves {
    fn get(&self, address: &IpAddr) -> Option<&Sighting> {
        self.young.get(address).or_else(|| self.old.get(address))
    }
}

impl Seen {
    /// Notes that `lane` has brought a packet from `source`, unless `source` is live in another lane.
    pub fn note(&self, source: IpAddr, lane: &Arc<Lane>, now: Instant) {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.get(&source).is_some_and(|sighting| sighting.is_live_elsewhere(lane, now)) {
            return;
        }
        if halves.young.len() >= HALF && !halves.young.contains_key(&source) {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(source, Sighting { lane: Arc::downgrade(lane), at: now });
    }

    /// The lane that leads to `address`, if there is one still.
    pub fn lane(&self, address: IpAddr) -> Option<Arc<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&address)?.lane()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::Crossing;
    use crate::tun::sources::Remote;
    use ekiden_proto::direction::Direction;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    fn lane(crossing: &Arc<Crossing>, name: &str) -> Arc<Lane> {
        Lane::new(crossing, Remote::Path { name: name.into(), key: None }, Direction::Down)
    }

    /// The last lane that had brought a packet took the address over before.
    #[test]
    fn an_address_stays_in_its_lane_while_it_is_live() {
        let (seen, crossing, now) = (Seen::default(), Arc::new(Crossing::default()), Instant::now());
        let (one, other) = (lane(&crossing, "one"), lane(&crossing, "other"));
        let leads_to = |lane: &Arc<Lane>| seen.lane(address(1)).is_some_and(|seen| Arc::ptr_eq(&seen, lane));
        seen.note(address(1), &one, now);
        seen.note(address(1), &other, now + LIVE / 2);
        assert!(leads_to(&one), "live in one lane");
        seen.note(address(1), &one, now + LIVE / 2);
        seen.note(address(1), &other, now + LIVE);
        assert!(leads_to(&one), "live since the last packet");
        seen.note(address(1), &other, now + LIVE / 2 + LIVE);
        assert!(leads_to(&other), "not live any more");
        seen.note(address(1), &one, now + LIVE / 2 + LIVE);
        assert!(leads_to(&other), "live in the other lane");
        assert!(seen.lane(address(2)).is_none());
        other.retire();
        assert!(seen.lane(address(1)).is_none(), "it takes nothing more");
        seen.note(address(1), &one, now + 2 * LIVE);
        assert!(leads_to(&one), "the other lane has ended");
        drop((one, other));
        assert!(seen.lane(address(1)).is_none(), "it is gone");
    }

    #[test]
    fn many_addresses_are_forgotten_and_those_that_go_on_are_not() {
        let (seen, crossing, now) = (Seen::default(), Arc::new(Crossing::default()), Instant::now());
        let lane = lane(&crossing, "peer");
        for number in 0..20_000 {
            seen.note(address(number), &lane, now);
            seen.note(address(1 << 31), &lane, now);
        }
        let halves = seen.0.lock().unwrap();
        assert!(halves.young.len() + halves.old.len() <= 2 * HALF);
        drop(halves);
        assert!(seen.lane(address(1 << 31)).is_some() && seen.lane(address(19_999)).is_some());
        assert!(seen.lane(address(0)).is_none());
    }
}

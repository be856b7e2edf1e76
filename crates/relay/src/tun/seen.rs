//! Where addresses were last seen: answers go into the lane that their question came from.
//!
//! Whoever sends from ever more addresses must not make it grow. So it has two halves, and when the young one is full it
//! becomes the old one, whose addresses are forgotten. An address that is seen again is young again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::lane::Lane;

/// Most addresses in each half.
const HALF: usize = 2048;

/// The addresses of all tunnels.
#[derive(Debug, Default)]
pub struct Seen(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<IpAddr, Weak<Lane>>,
    old: HashMap<IpAddr, Weak<Lane>>,
}

impl Seen {
    /// Notes that `lane` has brought a packet from `source`.
    pub fn note(&self, source: IpAddr, lane: &Arc<Lane>) {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if halves.young.len() >= HALF && !halves.young.contains_key(&source) {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(source, Arc::downgrade(lane));
    }

    /// The lane that leads to `address`, if there is one still.
    pub fn lane(&self, address: IpAddr) -> Option<Arc<Lane>> {
        let halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = halves.young.get(&address).or_else(|| halves.old.get(&address))?;
        lane.upgrade().filter(|lane| !lane.is_retired())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::Crossing;
    use ekiden_proto::limiting::Direction;

    fn address(number: u32) -> IpAddr {
        IpAddr::from(number.to_be_bytes())
    }

    #[test]
    fn the_last_lane_of_an_address_counts_while_it_lasts() {
        let (seen, crossing) = (Seen::default(), Arc::new(Crossing::default()));
        let lane = |by: &str| Lane::new(&crossing, by, Direction::Down);
        let (one, other) = (lane("one"), lane("other"));
        seen.note(address(1), &one);
        seen.note(address(1), &other);
        assert!(Arc::ptr_eq(&seen.lane(address(1)).unwrap(), &other));
        assert!(seen.lane(address(2)).is_none());
        other.retire();
        assert!(seen.lane(address(1)).is_none(), "it takes nothing more");
        seen.note(address(1), &one);
        drop((one, other));
        assert!(seen.lane(address(1)).is_none(), "it is gone");
    }

    #[test]
    fn many_addresses_are_forgotten_and_those_that_go_on_are_not() {
        let (seen, crossing) = (Seen::default(), Arc::new(Crossing::default()));
        let lane = Lane::new(&crossing, "peer", Direction::Down);
        for number in 0..20_000 {
            seen.note(address(number), &lane);
            seen.note(address(1 << 31), &lane);
        }
        let halves = seen.0.lock().unwrap();
        assert!(halves.young.len() + halves.old.len() <= 2 * HALF);
        drop(halves);
        assert!(seen.lane(address(1 << 31)).is_some() && seen.lane(address(19_999)).is_some());
        assert!(seen.lane(address(0)).is_none());
    }
}

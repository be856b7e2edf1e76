//! What the program's maps are called, and what is in them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::report::{Connection, Counters};

pub(super) const QUEUE: &str = "aqm_queue";
pub(super) const SLOTS: &str = "aqm_slots";
pub(super) const SETTINGS: &str = ".rodata.settings";

/// Slots of a set.
pub(super) const WAYS: u32 = 4;

/// Length of `struct slot`.
const SLOT: usize = 64;

/// Reads numbers one after another.
struct Memory<'a>(&'a [u8]);

impl<'a> Memory<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn port(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn address(&mut self) -> Option<IpAddr> {
        self.take::<16>().map(|bytes| Ipv6Addr::from(bytes).to_canonical())
    }
}

/// `struct queue`.
pub(super) fn counters(memory: &[u8]) -> Option<Counters> {
    let mut memory = Memory(memory);
    // The lock, the number of the next packet, and the counted queue.
    memory.take::<32>()?;
    Some(Counters {
        own: memory.u64()?,
        other: memory.u64()?,
        passed: memory.u64()?,
        marked: memory.u64()?,
        full: memory.u64()?,
        early: memory.u64()?,
        forced: memory.u64()?,
        packets: memory.u64()?,
        bytes: memory.u64()?,
        waited: memory.u64()?,
        waiting: memory.u64()?,
    })
}

/// The slots of a `struct set` that are in use.
pub(super) fn connections(set: &[u8]) -> impl Iterator<Item = Connection> + '_ {
    set.chunks_exact(SLOT).filter_map(connection)
}

fn connection(slot: &[u8]) -> Option<Connection> {
    let mut memory = Memory(slot);
    let bytes = memory.u64()?;
    let packets = memory.u32()?;
    let hits = memory.u32()?;
    let last = memory.u32()?;
    if last == 0 {
        return None;
    }
    memory.u32()?;
    let (source, destination) = (memory.address()?, memory.address()?);
    let source = SocketAddr::new(source, memory.port()?);
    let destination = SocketAddr::new(destination, memory.port()?);
    let [protocol] = memory.take()?;
    Some(Connection { source, destination, protocol, bytes, packets, hits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_read_and_a_free_one_is_not() {
        let mut slot = vec![0; SLOT];
        slot[..8].copy_from_slice(&1500_u64.to_ne_bytes());
        slot[16..20].copy_from_slice(&7_u32.to_ne_bytes());
        slot[34..40].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        slot[55] = 1;
        slot[56..58].copy_from_slice(&[0x1f, 0x90]);
        slot[60] = 6;
        let read: Vec<_> = connections(&[slot, vec![0; SLOT]].concat()).collect();
        let [one] = &read[..] else { panic!("{read:?}") };
        assert_eq!((one.source.to_string().as_str(), one.bytes, one.protocol), ("10.0.0.1:8080", 1500, 6));
        assert_eq!(one.destination.to_string(), "[::1]:0");
    }
}

//! The names of the program's maps, and their contents.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::reading::{Connection, Counters};

/// The counters, and the virtual queue.
pub const QUEUE: &str = "aqm_queue";
/// The connections, by hash.
pub const SLOTS: &str = "aqm_slots";
/// The addresses and ports of the connections in [`SLOTS`].
pub const NAMES: &str = "aqm_names";
pub(super) const SHARES: &str = "aqm_shares";
pub(super) const SETTINGS: &str = ".rodata.settings";

/// Slots of a set.
pub(super) const WAYS: u32 = 4;

/// Lengths of `struct slot` and `struct name`.
const SLOT_SIZE: usize = 16;
const NAME_SIZE: usize = 40;

/// Reads numbers one after another.
struct MapReader<'a>(&'a [u8]);

impl<'a> MapReader<'a> {
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

/// Reads the counters of `struct queue` of the BPF program.
#[must_use]
pub fn parse_counters(memory: &[u8]) -> Option<Counters> {
    let mut memory = MapReader(memory);
    // Whether it is locked, the number of the next packet, and the counted queue.
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
        missed: memory.u64()?,
    })
}

/// The connections of a `struct set` and its `struct names`.
pub fn parse_connections<'a>(set: &'a [u8], names: &'a [u8]) -> impl Iterator<Item = Connection> + 'a {
    set.chunks_exact(SLOT_SIZE)
        .zip(names.chunks_exact(NAME_SIZE))
        .filter_map(|(slot, name)| parse_connection(slot, name))
}

fn parse_connection(slot: &[u8], name: &[u8]) -> Option<Connection> {
    let (mut slot, mut name) = (MapReader(slot), MapReader(name));
    slot.u32()?;
    if slot.u32()? == 0 {
        return None;
    }
    let (bytes, hit) = (slot.u32()?, slot.u32()?);
    let (source, destination) = (name.address()?, name.address()?);
    let source = SocketAddr::new(source, name.port()?);
    let destination = SocketAddr::new(destination, name.port()?);
    let [protocol] = name.take()?;
    Some(Connection { source, destination, protocol, bytes, hit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_slots_are_parsed_and_free_slots_are_skipped() {
        let slot: Vec<u8> = [9, 7, 1500, 3_u32].iter().flat_map(|number| number.to_ne_bytes()).collect();
        let mut name = vec![0; NAME_SIZE];
        name[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        name[31] = 1;
        name[32..34].copy_from_slice(&[0x1f, 0x90]);
        name[36] = 6;
        let read: Vec<_> =
            parse_connections(&[slot, vec![0; SLOT_SIZE]].concat(), &[name, vec![0; NAME_SIZE]].concat()).collect();
        let [one] = &read[..] else { panic!("{read:?}") };
        assert_eq!((one.source.to_string().as_str(), one.bytes, one.hit, one.protocol), ("10.0.0.1:8080", 1500, 3, 6));
        assert_eq!(one.destination.to_string(), "[::1]:0");
    }
}

//! Who a packet belongs to, as 32 bits: tables of queue management know connections and senders by these.

use std::net::Ipv4Addr;

/// The basis of FNV-1a with 32 bits (Fowler, Noll, Vo).
const FNV_BASIS: u32 = 0x811c_9dc5;

/// FNV-1a of `bytes`, going on from `hash`.
const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// A hash of what makes a connection: source and destination address as they are in the IP header, the four bytes of the
/// ports (none in fragments, or where the protocol has no ports), and the protocol.
#[must_use]
pub const fn connection_hash(addresses: &[u8], ports: &[u8], protocol: u8) -> u32 {
    fnv(fnv(fnv(FNV_BASIS, addresses), ports), &[protocol])
}

/// The sender of a packet: an IPv4 address as a number, or a hash of an IPv6 address. 0 for anything else.
#[must_use]
pub const fn source_key(address: &[u8]) -> u32 {
    match *address {
        [a, b, c, d] => Ipv4Addr::new(a, b, c, d).to_bits(),
        [] => 0,
        _ => fnv(FNV_BASIS, address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_told_apart_by_each_of_their_parts() {
        let one = connection_hash(&[10, 0, 0, 1, 10, 0, 0, 2], &[0, 80, 1, 2], 6);
        assert_eq!(one, 0xeaaa_c90f, "a mirror of this file has to find this");
        for other in [
            connection_hash(&[10, 0, 0, 2, 10, 0, 0, 1], &[0, 80, 1, 2], 6),
            connection_hash(&[10, 0, 0, 1, 10, 0, 0, 2], &[0, 81, 1, 2], 6),
            connection_hash(&[10, 0, 0, 1, 10, 0, 0, 2], &[0, 80, 1, 2], 17),
            connection_hash(&[10, 0, 0, 1, 10, 0, 0, 2], &[], 6),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_sender_of_ipv4_is_its_address() {
        assert_eq!(source_key(&[10, 1, 2, 3]), 0x0a01_0203);
        assert_eq!(source_key(&[]), 0);
        assert_ne!(source_key(&[0; 16]), source_key(&[1; 16]));
    }
}

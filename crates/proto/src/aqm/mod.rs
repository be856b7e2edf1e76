//! Active queue management in integer arithmetic: the decision to pass, mark or drop a packet, with its reason.
//!
//! The queues of the laboratory and the tc programs of `ekiden aqm` compute the same numbers: this arithmetic is
//! mirrored line by line in C, and a replay of the same arrivals yields the same decision for each packet. That
//! requires plain code: integers of 64 bits, no signed division, no allocation, loops with small bounds. Powers and
//! floating-point numbers are computed once, from the settings, and stored as integers in a `Params`, which is passed
//! to the C program unchanged; a `State` has integer fields, too.
//!
//! A *hit* on a packet or its connection is a mark or an early drop.
//!
//! This module stores no packets. The caller has the queue: a real one, or a [`virtual_queue`].

pub mod auto;
pub mod history;
pub mod priority;
pub mod red;
pub mod virtual_queue;

use std::net::Ipv4Addr;

/// The number of bytes and packets that wait in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Backlog {
    /// Number of waiting bytes.
    pub bytes: u64,
    /// Number of waiting packets.
    pub packets: u64,
}

/// An arriving packet, and the state of the queue at its arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct ArrivingPacket {
    /// Time of arrival, in nanoseconds; not before the previous arrival.
    pub now: u64,
    /// Number of the packet, counted from 0; selects its random bits.
    pub number: u64,
    /// The backlog before this packet, without the packet being sent.
    pub backlog: Backlog,
    /// Time since the queue became empty, in nanoseconds, counted from the previous arrival at the earliest; 0 if a packet
    /// waits.
    pub idle: u64,
    /// The hash of the connection: [`connection_hash`].
    pub flow: u32,
    /// The key of the sender: [`source_key`].
    pub source: u32,
    /// The packet's size, in bytes.
    pub bytes: u32,
    /// Whether the packet is ECN-capable, so that it can be marked instead of dropped (RFC 3168 section 5); 0 or 1.
    pub ecn_capable: u32,
}

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is enqueued.
    Pass,
    /// The packet is enqueued and marked "congestion experienced".
    Mark,
    /// The packet is dropped for this reason.
    Drop(DropReason),
}

/// Why a packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The limit of the queue is reached.
    Full,
    /// The drop probability of the algorithm applied.
    Early,
    /// The average is above the highest threshold: every packet is dropped.
    Forced,
}

/// The limit of a queue, and the unit of the limit and of all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct QueueLimit {
    /// The limit, at most [`MAX_LEVEL`].
    pub limit: u64,
    /// Whether the unit is bytes (1) or packets (0).
    pub in_bytes: u64,
}

/// The highest permitted level, in bytes or packets: 512 GiB. Products of levels and fractions fit in 64 bits up to
/// this value.
pub const MAX_LEVEL: u64 = 1 << 39;

impl QueueLimit {
    /// The backlog, in the unit of the limit.
    #[must_use]
    pub const fn level(&self, waiting: Backlog) -> u64 {
        if self.in_bytes != 0 { waiting.bytes } else { waiting.packets }
    }

    /// Whether the packet can be enqueued without exceeding the limit.
    #[must_use]
    pub const fn fits(&self, arrival: &ArrivingPacket) -> bool {
        let size = if self.in_bytes != 0 { arrival.bytes as u64 } else { 1 };
        self.level(arrival.backlog) + size <= self.limit
    }
}

/// Number of fraction bits of averages and of shares.
pub const FRACTION_BITS: u32 = 24;

/// A probability of 1.
pub const ONE: u64 = 1 << 32;

/// `value` times `part`, rounded down; `part` is in units of 2^-24 and at most 1.
#[must_use]
pub const fn scale(value: u64, part: u64) -> u64 {
    let (whole, rest) = (value >> FRACTION_BITS, value & ((1 << FRACTION_BITS) - 1));
    whole * part + ((rest * part) >> FRACTION_BITS)
}

/// Converts a number of a settings file, which is not negative, to units of 2^-`bits`, rounded to nearest.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and not negative")]
pub fn to_fixed(number: f64, bits: u32) -> u64 {
    (number * (1_u64 << bits) as f64).round() as u64
}

/// Converts a probability of a settings file to units of 2^-32.
#[must_use]
pub fn to_probability(p: f64) -> u64 {
    to_fixed(p, 32)
}

/// The fraction of the golden ratio, times 2^64.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[must_use]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The 64 random bits of packet `number` with the random key `key`.
#[must_use]
pub const fn random_bits(key: u64, number: u64) -> u64 {
    mix(key ^ mix(number.wrapping_mul(GOLDEN).wrapping_add(key)))
}

/// The 32-bit offset basis of FNV-1a (Fowler, Noll, Vo).
const FNV_BASIS: u32 = 0x811c_9dc5;

/// FNV-1a of `bytes`, continued from `hash`.
const fn fnv(mut hash: u32, bytes: &[u8]) -> u32 {
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
        at += 1;
    }
    hash
}

/// A hash of a connection: source and destination address as they are in the IP header, the four bytes of the ports
/// (absent in fragments, and in protocols without ports), and the protocol.
#[must_use]
pub const fn connection_hash(addresses: &[u8], ports: &[u8], protocol: u8) -> u32 {
    fnv(fnv(fnv(FNV_BASIS, addresses), ports), &[protocol])
}

/// The key of a packet's sender: an IPv4 address as a number, a hash of an IPv6 address, or 0 without an address.
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

    /// The C mirror of this file must return the same values.
    #[test]
    fn random_bits_match_recorded_values() {
        assert_eq!(mix(1), 0x5692_161d_100b_05e5);
        let wanted = [0x83ec_686c_1600_460a, 0x819d_6f08_fdfc_3c1b, 0xeecd_2736_9f7e_c29a];
        assert_eq!([random_bits(1, 0), random_bits(42, 7), random_bits(u64::MAX, u64::MAX)], wanted);
    }

    #[test]
    fn connection_hash_depends_on_every_field() {
        let one = connection_hash(&[10, 0, 0, 1, 10, 0, 0, 2], &[0, 80, 1, 2], 6);
        assert_eq!(one, 0xeaaa_c90f, "the C mirror of this file must return the same value");
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
    fn source_key_of_ipv4_is_the_address() {
        assert_eq!(source_key(&[10, 1, 2, 3]), 0x0a01_0203);
        assert_eq!(source_key(&[]), 0);
        assert_ne!(source_key(&[0; 16]), source_key(&[1; 16]));
    }
}

//! The contract of all parsers of ekiden, as assertions for the fuzz targets in `src/bin`.
//!
//! A result is final: more input never changes a value or an error. Input in pieces has the same result as the whole
//! input.

pub mod chunks;
pub mod lax;

use std::fmt::Debug;
use std::net::IpAddr;

use ekiden_proto::wire::{Parsed, WireError};

/// The default of `limits.head` in bytes.
pub const HEAD_LIMIT: usize = 64 << 10;

/// Writes an IP header without options, in front of a payload of `length` bytes.
///
/// # Panics
/// Panics if the addresses are of two families.
#[must_use]
pub fn write_ip_header(source: IpAddr, destination: IpAddr, protocol: u8, length: u8) -> Vec<u8> {
    match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start: &[u8] = &[0x45, 0, 0, 20 + length, 0, 0, 0, 0, 64, protocol, 0, 0];
            [start, &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let start: &[u8] = &[0x60, 0, 0, 0, 0, length, protocol, 64];
            [start, &from.octets(), &to.octets()].concat()
        }
        _ => panic!("{source} and {destination} are of two families"),
    }
}

/// Parses `bytes`, compares the result with those of shorter and longer inputs, and returns the value and the number of
/// bytes used, or `None` without a value.
///
/// # Panics
/// Panics if more bytes change a value or an error, or if fewer bytes give a value or an error other than `Incomplete`.
pub fn check_prefixes<T: PartialEq + Debug>(bytes: &[u8], parse: impl Fn(&[u8]) -> Parsed<T>) -> Option<(T, usize)> {
    let answer = parse(bytes);
    let needed = match &answer {
        Ok((_, used)) => *used,
        Err(_) => bytes.len(),
    };
    assert!(needed <= bytes.len(), "used {needed} of {} bytes", bytes.len());
    if answer.is_ok() {
        assert_eq!(parse(&bytes[..needed]), answer, "the bytes used are not enough");
    }
    if !matches!(answer, Err(WireError::Invalid(_) | WireError::TooLarge)) {
        for end in [0, needed / 2, needed.saturating_sub(1)].into_iter().filter(|end| *end < needed) {
            assert_eq!(parse(&bytes[..end]), Err(WireError::Incomplete), "the first {end} bytes");
        }
    }
    if answer != Err(WireError::Incomplete) {
        for tail in [b"\r\n\r\n".as_slice(), b"\0", b"0"] {
            // An error stays an error, but its kind may change: input that is too large may turn out to be invalid.
            let longer = parse(&[bytes, tail].concat());
            let is_final =
                if answer.is_ok() { longer == answer } else { !matches!(longer, Ok(_) | Err(WireError::Incomplete)) };
            assert!(is_final, "{answer:?} became {longer:?} with {tail:?}");
        }
    }
    answer.ok()
}

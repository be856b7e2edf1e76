//! What every parser of ekiden promises, as assertions for the fuzz targets in `src/bin`.
//!
//! The one idea: an answer, once given, stands. Whoever feeds a parser in pieces gets what he would have got at once.

pub mod chunks;
pub mod lax;

use std::fmt::Debug;

use ekiden_proto::wire::{Parsed, WireError};

/// Parses `bytes` and checks the answer against shorter and longer inputs; the value when there is one.
///
/// # Panics
/// When more bytes change a value or a refusal, or when fewer bytes already were refused or enough.
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
            // A refusal stands, though not for the same reason: what is too large may turn out invalid.
            let longer = parse(&[bytes, tail].concat());
            let stands =
                if answer.is_ok() { longer == answer } else { !matches!(longer, Ok(_) | Err(WireError::Incomplete)) };
            assert!(stands, "{answer:?} became {longer:?} with {tail:?}");
        }
    }
    answer.ok()
}

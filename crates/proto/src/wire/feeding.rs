//! Test helper: parses a message byte by byte, as it arrives from a slow client.

use std::fmt::Debug;

use super::{Parsed, WireError};

/// Parses a whole message and returns its value. Asserts that every strict prefix is incomplete, and that bytes after
/// the message do not change the value.
pub(super) fn feed<T: PartialEq + Debug>(message: &[u8], parse: impl Fn(&[u8]) -> Parsed<T>) -> T {
    let shown = String::from_utf8_lossy(message);
    for end in 0..message.len() {
        assert_eq!(parse(&message[..end]), Err(WireError::Incomplete), "{end} bytes of {shown:?}");
    }
    let (value, used) = parse(message).unwrap_or_else(|error| panic!("{shown:?}: {error}"));
    assert_eq!(used, message.len(), "{shown:?}");
    for tail in [b"\0".as_slice(), b"\r\n", b"\n", b" x", b"\xff\x05\x04"] {
        let (again, used) =
            parse(&[message, tail].concat()).unwrap_or_else(|error| panic!("{shown:?} + tail: {error}"));
        assert_eq!((&again, used), (&value, message.len()), "{shown:?}");
    }
    value
}

//! Recognises and declines TLS. No listener speaks TLS; clients try TLS by mistake.

use super::{Parsed, WireError};

/// Answers a ClientHello: a record with the fatal alert handshake_failure (RFC 8446, 5.1 and 6.2). Its version is TLS 1.0,
/// which clients of all versions read.
pub const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 1, 0, 2, 2, 40];

/// Whether the bytes are the beginning of a TLS handshake record: content type 22, major version 3 (RFC 8446, 5.1). No byte
/// counts as used.
///
/// # Errors
/// [`WireError::Incomplete`] while the version has not arrived.
pub fn detect_handshake(bytes: &[u8]) -> Parsed<bool> {
    match bytes {
        [] | [22] => Err(WireError::Incomplete),
        [22, 3, ..] => Ok((true, 0)),
        _ => Ok((false, 0)),
    }
}

//! The protocols as bytes and values: every parser takes the bytes received so far and returns "incomplete", "invalid"
//! or a value.
//!
//! A parser is a pure function of a prefix: it keeps no state and performs no I/O. More bytes never change a result
//! other than "incomplete", so a session, or a fuzzer, parses again after each read until there is a result. A parser
//! refuses ambiguous input, because two readings of the same bytes permit request smuggling.

mod address;
mod cursor;
#[cfg(test)]
mod feeding;
mod headers;
pub mod http;
pub mod ip;
pub mod proxy_protocol;
pub mod section;
pub mod server_name;
pub mod socks4;
pub mod socks5;
pub mod syn;
pub mod x509;

/// The reason why the bytes have not yielded a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// All bytes so far are valid, and more are needed. Not a failure.
    #[error("more bytes are needed")]
    Incomplete,
    /// No further bytes can make this a valid message; the text is the reason.
    #[error("{0}")]
    Invalid(&'static str),
    /// The message does not end within its limit.
    #[error("larger than the limit")]
    TooLarge,
}

/// A value and the number of bytes that it was read from.
pub type Parsed<T> = Result<(T, usize), WireError>;

/// The answer to a ClientHello that is refused: a record with the fatal alert handshake_failure (RFC 8446, 5.1 and
/// 6.2). The record's version is TLS 1.0, which clients of all versions accept.
pub const HANDSHAKE_FAILURE: [u8; 7] = [21, 3, 1, 0, 2, 2, 40];

/// Whether the bytes begin a TLS handshake record: content type 22, major version 3 (RFC 8446, 5.1). The number of
/// bytes read is always 0.
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

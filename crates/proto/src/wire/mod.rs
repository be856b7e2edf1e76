//! The protocols as bytes and values: every parser takes the bytes so far and answers "incomplete", "invalid" or a
//! value.
//!
//! A parser is a pure function of a prefix. More bytes never change an answer that was given, so a session reads, asks,
//! and reads again, and a fuzzer can do so as well. Nothing here keeps state or performs I/O. A parser refuses
//! ambiguous input: two readings of one byte string are how requests are smuggled.

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

/// Why there is no value yet, or never will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not a failure: all bytes so far are right, and more are needed.
    #[error("more bytes are needed")]
    Incomplete,
    /// No bytes that follow can make this a message; the text is the reason.
    #[error("{0}")]
    Invalid(&'static str),
    /// The message does not end within its limit.
    #[error("larger than the limit")]
    TooLarge,
}

/// A value and the number of bytes it took.
pub type Parsed<T> = Result<(T, usize), WireError>;

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

//! The protocols as bytes and values: every parser takes what has arrived so far and says "more", "no" or "this".
//!
//! The one idea: a parser is a pure function of a prefix. Feeding more bytes never changes an answer that was given,
//! so a session reads, asks, and reads again, and a fuzzer can do the same. Nothing here keeps state or performs I/O.
//! What a parser is not sure about it refuses: two readings of the same bytes are how requests get smuggled.

mod address;
mod cursor;
#[cfg(test)]
mod feeding;
mod headers;
pub mod http;
pub mod ip;
pub mod section;
pub mod socks4;
pub mod socks5;
pub mod syn;
pub mod tls;

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

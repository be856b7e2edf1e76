//! The head of a message: start line and header fields up to the empty line (RFC 9112, 2 to 6).
//!
//! Three steps, each in its file: `scan` looks at every byte and refuses what two parsers could read differently,
//! `httparse` cuts the head into tokens, and `request` or `response` give them a meaning, with `form` for the
//! request's target and `body` for where the message ends.

mod body;
mod form;
mod headers;
mod request;
mod response;
pub(super) mod scan;
#[cfg(test)]
mod tests;

pub use body::BodyFraming;
pub use form::{RequestTarget, Scheme};
pub use headers::Headers;
pub(super) use headers::split_list;
pub use request::RequestHead;
pub use response::ResponseHead;

use crate::wire::WireError;

/// The version of a message; it speaks of the next neighbour only (RFC 9110, 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    fn from_minor(minor: Option<u8>) -> Result<Self, WireError> {
        match minor {
            Some(0) => Ok(Self::Http10),
            Some(1) => Ok(Self::Http11),
            _ => Err(WireError::Invalid("neither HTTP/1.0 nor HTTP/1.1")),
        }
    }
}

/// `httparse` must find the end of a head where `scan` found it.
fn check_complete(parsed: httparse::Result<usize>, head: &[u8]) -> Result<(), WireError> {
    match parsed {
        Ok(httparse::Status::Complete(used)) if used == head.len() => Ok(()),
        _ => Err(WireError::Invalid("not the head of an HTTP message")),
    }
}

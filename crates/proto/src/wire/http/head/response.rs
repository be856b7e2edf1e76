//! The head of a response (RFC 9112, 4).

use super::body::{BodyFraming, framing};
use super::scan::{self, MAX_FIELDS, Start};
use super::{Headers, Version, check_complete};
use crate::wire::Parsed;

/// A status line and its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// The words behind the status; empty when there are none, or none in ASCII.
    pub reason: String,
    /// The server's version.
    pub version: Version,
    /// All fields, hop-by-hop ones included, but no framing that `body` contradicts.
    pub headers: Headers,
    /// What follows the head.
    pub body: BodyFraming,
}

impl ResponseHead {
    /// Reads a head of at most `limit` bytes, the answer to a request with `request_method`.
    ///
    /// # Errors
    /// [`Invalid`](crate::wire::WireError::Invalid) for what is no HTTP/1 response or could end in two places;
    /// [`TooLarge`](crate::wire::WireError::TooLarge) when there is no end within `limit`.
    pub fn parse(bytes: &[u8], limit: usize, request_method: &str) -> Parsed<Self> {
        let range = scan::find_head(bytes, limit, Start::StatusLine)?;
        let head = &bytes[range.clone()];
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Response::new(&mut fields);
        check_complete(parsed.parse(head), head)?;
        let status = parsed.code.unwrap_or_default();
        let reason = parsed.reason.unwrap_or_default().to_owned();
        let version = Version::from_minor(parsed.version)?;
        let mut headers = Headers::from_parsed(parsed.headers);
        let tunnel = request_method == "CONNECT" && (200..300).contains(&status);
        if tunnel || matches!(status, 100..200 | 204) {
            // "A client MUST ignore any Content-Length or Transfer-Encoding header fields received in a successful
            // response to CONNECT" (RFC 9110, 9.3.6), and none may come with 1xx and 204 (8.6; RFC 9112, 6.1).
            headers.remove("Content-Length");
            headers.remove("Transfer-Encoding");
        }
        let framed = framing(version, &headers)?;
        let empty = tunnel || request_method == "HEAD" || matches!(status, 100..200 | 204 | 304);
        let body = if empty { BodyFraming::Empty } else { framed.unwrap_or(BodyFraming::UntilClose) };
        Ok((Self { status, reason, version, headers, body }, range.end))
    }
}

//! The head of a message: start line and header fields up to the empty line (RFC 9112, 2 to 6).
//!
//! `scan` checks every byte and refuses ambiguous heads, `httparse` splits the head into tokens, and [`RequestHead`]
//! and [`ResponseHead`] interpret them: `form` for the request target, [`BodyFraming`] for the end of the message.

mod form;
mod headers;
pub(super) mod scan;

use crate::addr::Target;
use crate::wire::{Parsed, WireError};
use scan::{MAX_FIELDS, Start};

pub use form::{RequestTarget, Scheme};
pub use headers::Headers;
pub(super) use headers::split_list;

/// The version of a message, which applies only to the connection it was received on (RFC 9110, 2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// HTTP/1.0, specified in RFC 1945.
    Http10,
    /// HTTP/1.1, specified in RFC 9112.
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

/// Checks that `httparse` and `scan` find the same end of a head.
fn check_complete(parsed: httparse::Result<usize>, head: &[u8]) -> Result<(), WireError> {
    match parsed {
        Ok(httparse::Status::Complete(used)) if used == head.len() => Ok(()),
        _ => Err(WireError::Invalid("not the head of an HTTP message")),
    }
}

/// The length of the body after a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// No body, even if the fields declare one.
    Empty,
    /// A body of this many bytes.
    Length(u64),
    /// A body in chunks, with a trailer section.
    Chunked,
    /// All bytes until the connection is closed; only in responses.
    UntilClose,
}

/// The framing by the header fields; `None` without framing fields.
///
/// RFC 9112, 6.1 and 6.3 let a recipient repair some of the heads that are refused here (equal duplicates, a length
/// beside chunks, further codings). Each repair has been used for request smuggling.
fn framing(version: Version, headers: &Headers) -> Result<Option<BodyFraming>, WireError> {
    let length = single_value(headers, "Content-Length", "more than one Content-Length")?;
    let coding = single_value(headers, "Transfer-Encoding", "more than one Transfer-Encoding")?;
    match (length, coding) {
        (Some(_), Some(_)) => Err(WireError::Invalid("both Content-Length and Transfer-Encoding")),
        (Some(length), None) => content_length(length).map(|length| Some(BodyFraming::Length(length))),
        (None, Some(_)) if version == Version::Http10 => Err(WireError::Invalid("Transfer-Encoding in HTTP/1.0")),
        (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(BodyFraming::Chunked)),
        (None, Some(_)) => Err(WireError::Invalid("a Transfer-Encoding other than chunked")),
        (None, None) => Ok(None),
    }
}

/// The value of the only field called `name`.
fn single_value<'a>(
    headers: &'a Headers,
    name: &'a str,
    otherwise: &'static str,
) -> Result<Option<&'a [u8]>, WireError> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { Err(WireError::Invalid(otherwise)) } else { Ok(first) }
}

/// Parses a length of digits only, within the range of a signed 64-bit integer, which every server can represent.
fn content_length(value: &[u8]) -> Result<u64, WireError> {
    const WRONG: WireError = WireError::Invalid("Content-Length is not a number below 2^63");
    // `u64::from_str` accepts a sign.
    if !value.iter().all(u8::is_ascii_digit) || value.len() > 19 {
        return Err(WRONG);
    }
    let length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    length.filter(|length| i64::try_from(*length).is_ok()).ok_or(WRONG)
}

/// The request line and header fields of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method: a token of at most 32 bytes, in the case as received.
    pub method: String,
    /// The target of the request (RFC 9112 section 3.2).
    pub target: RequestTarget,
    /// The HTTP version of the client.
    pub version: Version,
    /// All fields, including hop-by-hop fields.
    pub headers: Headers,
    /// The framing of the body; never [`BodyFraming::UntilClose`].
    pub body: BodyFraming,
}

impl RequestHead {
    /// Reads a head of at most `limit` bytes. One empty line before it is skipped and counted as used.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for every violation of RFC 9112, also those that a recipient may repair;
    /// [`WireError::TooLarge`] if the head does not end within `limit`.
    pub fn parse(bytes: &[u8], limit: usize) -> Parsed<Self> {
        let range = scan::find_head(bytes, limit, Start::RequestLine)?;
        let head = &bytes[range.clone()];
        let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Request::new(&mut fields);
        check_complete(parsed.parse(head), head)?;
        let method = parsed.method.unwrap_or_default().to_owned();
        let form = RequestTarget::parse(&method, parsed.path.unwrap_or_default())?;
        let version = Version::from_minor(parsed.version)?;
        let headers = Headers::from_parsed(parsed.headers);
        check_host(&form, version, &headers)?;
        let body = match (framing(version, &headers)?, &form) {
            (None | Some(BodyFraming::Length(0)), RequestTarget::Authority(_)) | (None, _) => BodyFraming::Empty,
            // RFC 9110, 9.3.6: "A CONNECT request message does not have content". The bytes after it belong to the
            // tunnel.
            (Some(_), RequestTarget::Authority(_)) => return Err(WireError::Invalid("CONNECT with a body")),
            (Some(body), _) => body,
        };
        Ok((Self { method, target: form, version, headers, body }, range.end))
    }
}

/// Checks that there is at most one `Host`, that it is valid, and that HTTP/1.1 has one where the target does not name
/// the host.
fn check_host(form: &RequestTarget, version: Version, headers: &Headers) -> Result<(), WireError> {
    let names_host = matches!(form, RequestTarget::Authority(_) | RequestTarget::Absolute { .. });
    match single_value(headers, "Host", "more than one Host")? {
        None if version == Version::Http11 && !names_host => Err(WireError::Invalid("no Host")),
        // "If the authority component is missing or undefined for the target URI, [...] an empty field value".
        None | Some([]) => Ok(()),
        Some(host) => {
            let target = std::str::from_utf8(host).ok().and_then(|host| Target::parse(host, Some(80)).ok());
            target.map(|_| ()).ok_or(WireError::Invalid("Host is not a host"))
        }
    }
}

/// The status line and header fields of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, from 100 to 999.
    pub status: u16,
    /// The reason phrase; empty if there is none, or if it is not ASCII.
    pub reason: String,
    /// The HTTP version of the server.
    pub version: Version,
    /// All fields, including hop-by-hop fields, except framing fields that contradict `body`.
    pub headers: Headers,
    /// The framing of the body.
    pub body: BodyFraming,
}

impl ResponseHead {
    /// Reads a head of at most `limit` bytes, the answer to a request with `request_method`.
    ///
    /// # Errors
    /// [`Invalid`](crate::wire::WireError::Invalid) for a malformed HTTP/1 response, and for one with ambiguous
    /// framing; [`TooLarge`](crate::wire::WireError::TooLarge) when there is no end within `limit`.
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

#[cfg(test)]
mod tests;

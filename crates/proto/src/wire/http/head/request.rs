//! The head of a request (RFC 9112, 3).

use super::body::{BodyFraming, framing, single_value};
use super::scan::{self, MAX_FIELDS, Start};
use super::{Headers, RequestTarget, Version, check_complete};
use crate::addr::Target;
use crate::wire::{Parsed, WireError};

/// A request line and its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// A token of at most 32 bytes, in the case it came.
    pub method: String,
    /// What is asked for.
    pub target: RequestTarget,
    /// The client's version.
    pub version: Version,
    /// All fields, hop-by-hop ones included.
    pub headers: Headers,
    /// What follows the head; never [`BodyFraming::UntilClose`].
    pub body: BodyFraming,
}

impl RequestHead {
    /// Reads a head of at most `limit` bytes. One empty line before it is skipped and counted as used.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for everything that RFC 9112 forbids, and for what it would let a recipient repair;
    /// [`WireError::TooLarge`] when there is no end within `limit`.
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
            // RFC 9110, 9.3.6: "A CONNECT request message does not have content". What follows it is the tunnel's.
            (Some(_), RequestTarget::Authority(_)) => return Err(WireError::Invalid("CONNECT with a body")),
            (Some(body), _) => body,
        };
        Ok((Self { method, target: form, version, headers, body }, range.end))
    }
}

/// At most one `Host`, a good one, and in HTTP/1.1 one at least where nothing else names the host.
fn check_host(form: &RequestTarget, version: Version, headers: &Headers) -> Result<(), WireError> {
    let names_host = matches!(form, RequestTarget::Authority(_) | RequestTarget::Absolute { .. });
    match single_value(headers, "Host", "more than one Host")? {
        None if version == Version::Http11 && !names_host => Err(WireError::Invalid("no Host")),
        // "If the authority component is missing or undefined for the target URI, [...] an empty field value".
        None | Some([]) => Ok(()),
        Some(host) => {
            let target = std::str::from_utf8(host).ok().and_then(|host| Target::parse(host, Some(80)).ok());
            target.map(|_| ()).ok_or(WireError::Invalid("Host is no host"))
        }
    }
}

//! Where a message ends (RFC 9112, 6): decided once, here, from fields that leave no second reading.

use super::{Headers, Version};
use crate::wire::WireError;

/// How long the body behind a head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none, whatever the fields say.
    Empty,
    /// So many bytes.
    Length(u64),
    /// Chunks and trailers.
    Chunked,
    /// All that comes until the connection closes; responses only.
    UntilClose,
}

/// What the framing fields say; nothing when there are none.
///
/// RFC 9112, 6.1 and 6.3 let a recipient repair some of what is refused here (equal duplicates, a length beside
/// chunks, further codings). Each repair has been somebody's smuggled request.
pub(super) fn framing(version: Version, headers: &Headers) -> Result<Option<BodyFraming>, WireError> {
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

/// The only field called `name`.
pub(super) fn single_value<'a>(
    headers: &'a Headers,
    name: &'a str,
    otherwise: &'static str,
) -> Result<Option<&'a [u8]>, WireError> {
    let mut values = headers.get_all(name);
    let first = values.next();
    if values.next().is_some() { Err(WireError::Invalid(otherwise)) } else { Ok(first) }
}

/// Digits only, and within what every server can count, signed or not.
fn content_length(value: &[u8]) -> Result<u64, WireError> {
    const WRONG: WireError = WireError::Invalid("Content-Length is not a number below 2^63");
    // `u64::from_str` would take a sign.
    if !value.iter().all(u8::is_ascii_digit) || value.len() > 19 {
        return Err(WRONG);
    }
    let length = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
    length.filter(|length| i64::try_from(*length).is_ok()).ok_or(WRONG)
}

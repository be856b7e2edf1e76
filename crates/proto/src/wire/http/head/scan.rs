//! A strict scan of every byte of a head before it is interpreted (RFC 9112, 2.2, 3, 4 and 5).
//!
//! Lines end in CR LF only, no control byte but HTAB occurs, no white space precedes a colon, and no line is folded. A
//! violation is refused as soon as it has arrived, so no connection waits for further bytes of a message that is not
//! HTTP. The cost is linear in the bytes received so far, so a caller should scan again only after further bytes.

use std::ops::Range;

use crate::wire::WireError;

/// Maximum number of header fields in a message.
pub(crate) const MAX_FIELDS: usize = 100;

/// Maximum length of a method; the longest method registered with IANA has 17 bytes.
pub(crate) const MAX_METHOD: usize = 32;

const VERSIONS: [&[u8]; 2] = [b"HTTP/1.0", b"HTTP/1.1"];

/// The kind of the start line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    RequestLine,
    StatusLine,
    /// No start line: only fields, as in trailers.
    Nothing,
}

/// Returns the range of the head, including its final empty line, in the bytes received so far.
pub(crate) fn find_head(bytes: &[u8], limit: usize, start: Start) -> Result<Range<usize>, WireError> {
    let within = &bytes[..bytes.len().min(limit)];
    match scan_lines(within, start) {
        Err(WireError::Incomplete) if within.len() == limit => Err(WireError::TooLarge),
        found => found,
    }
}

/// A byte of a method or field name (RFC 9110, 5.6.2).
pub(crate) const fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        )
}

/// A byte of a field value or reason phrase: VCHAR, SP, HTAB or obs-text (RFC 9110, 5.5).
pub(crate) const fn is_text_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

fn scan_lines(bytes: &[u8], start: Start) -> Result<Range<usize>, WireError> {
    // "a server [...] SHOULD ignore at least one empty line (CRLF) received prior to the request-line": one is ignored.
    let begin = if start == Start::RequestLine && bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let mut at = begin;
    let mut fields = 0;
    let mut in_start_line = start != Start::Nothing;
    loop {
        let line = FieldLine::read(&bytes[at..])?;
        match start {
            Start::RequestLine if in_start_line => line.check_request_line()?,
            Start::StatusLine if in_start_line => line.check_status_line()?,
            _ if line.complete && line.text.is_empty() => return Ok(begin..at + 2),
            _ => line.check_field()?,
        }
        fields += usize::from(!in_start_line && !line.text.is_empty());
        if fields > MAX_FIELDS {
            return Err(WireError::Invalid("more than 100 header fields"));
        }
        if !line.complete {
            return Err(WireError::Incomplete);
        }
        in_start_line = false;
        at += line.text.len() + 2;
    }
}

/// A line without its CR LF; `complete` if the CR LF has arrived.
struct FieldLine<'a> {
    text: &'a [u8],
    complete: bool,
}

impl<'a> FieldLine<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        let end = bytes.iter().position(|byte| !is_text_byte(*byte)).unwrap_or(bytes.len());
        let complete = match bytes[end..] {
            [] | [b'\r'] => false,
            [b'\r', b'\n', ..] => true,
            [b'\r', ..] => return Err(WireError::Invalid("CR without LF")),
            [b'\n', ..] => return Err(WireError::Invalid("LF without CR")),
            [..] => return Err(WireError::Invalid("control byte")),
        };
        Ok(Self { text: &bytes[..end], complete })
    }

    /// Checks `method SP target SP version`, or the part of it that has arrived.
    fn check_request_line(&self) -> Result<(), WireError> {
        let mut parts = self.text.splitn(3, |byte| *byte == b' ');
        let method = parts.next().unwrap_or_default();
        let (target, version) = (parts.next(), parts.next());
        if !method.iter().all(|byte| is_token_byte(*byte)) || (method.is_empty() && !self.text.is_empty()) {
            return Err(WireError::Invalid("method is not a token"));
        }
        if method.len() > MAX_METHOD {
            return Err(WireError::Invalid("method longer than 32 bytes"));
        }
        let visible = target.is_none_or(|target| target.iter().all(u8::is_ascii_graphic));
        if !visible || (target.is_some_and(<[u8]>::is_empty) && version.is_some()) {
            return Err(WireError::Invalid("request target with a byte that is invalid in a URI"));
        }
        let version = version.unwrap_or_default();
        let known = VERSIONS.iter().any(|known| known.starts_with(version));
        if !known || (self.complete && version.len() < VERSIONS[0].len()) {
            return Err(WireError::Invalid("request line does not end in HTTP/1.0 or HTTP/1.1"));
        }
        Ok(())
    }

    /// Checks `version SP three digits`, then nothing or SP and a reason; or the part of it that has arrived.
    fn check_status_line(&self) -> Result<(), WireError> {
        let version = &self.text[..self.text.len().min(8)];
        let rest = &self.text[version.len()..];
        let is_version = rest.iter().take(5).enumerate().all(|(at, byte)| match at {
            0 | 4 => *byte == b' ',
            1 => matches!(byte, b'1'..=b'9'),
            _ => byte.is_ascii_digit(),
        });
        let known = VERSIONS.iter().any(|known| known.starts_with(version));
        if !known || !is_version || (self.complete && rest.len() < 4) {
            return Err(WireError::Invalid("not a status line of HTTP/1.0 or HTTP/1.1"));
        }
        Ok(())
    }

    /// Checks `name: value`, or the part of it that has arrived.
    fn check_field(&self) -> Result<(), WireError> {
        if matches!(self.text, [b' ' | b'\t', ..]) {
            return Err(WireError::Invalid("folded header line"));
        }
        let colon = self.text.iter().position(|byte| *byte == b':');
        let name = &self.text[..colon.unwrap_or(self.text.len())];
        if !name.iter().all(|byte| is_token_byte(*byte)) || colon == Some(0) {
            return Err(WireError::Invalid("header name is not a token"));
        }
        if colon.is_none() && self.complete {
            return Err(WireError::Invalid("header line without a colon"));
        }
        Ok(())
    }
}

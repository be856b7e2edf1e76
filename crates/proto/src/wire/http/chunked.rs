//! The chunked coding (RFC 9112, 7.1): `SIZE CRLF data CRLF`, repeated, then size 0, trailers and an empty line.
//!
//! Only the framing is parsed here; the caller counts the data. Chunk extensions are dropped: they are hop-by-hop, and
//! have no legitimate use.

use super::head::Headers;
use super::head::scan::{self, MAX_FIELDS, Start};
use crate::wire::{Parsed, WireError};

/// Maximum number of hexadecimal digits in a size, and maximum length of the extensions after them, in bytes.
const MAX_DIGITS: usize = 16;
const MAX_EXTENSIONS: usize = 256;

/// Fields that are dropped from trailers: fields that frame, route, authenticate or describe a message must not be in
/// trailers (RFC 9110, 6.5.1).
const FORBIDDEN_TRAILERS: [&str; 24] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// The line before a chunk's data.
pub struct ChunkHead;

impl ChunkHead {
    /// Reads a size and its CR LF, with the extensions between them; after size 0, trailers follow.
    ///
    /// # Errors
    /// [`WireError::Invalid`] for anything but 1 to 16 hexadecimal digits below 2^63, for extensions that do not begin
    /// with `;` or are too long, and for a line that does not end in CR LF.
    pub fn parse(bytes: &[u8]) -> Parsed<u64> {
        let digits = bytes.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(bytes.len());
        if digits > MAX_DIGITS || (digits == 0 && !bytes.is_empty()) {
            return Err(WireError::Invalid("chunk size is not 1 to 16 hexadecimal digits"));
        }
        let extensions = extensions(&bytes[digits..])?;
        let size = std::str::from_utf8(&bytes[..digits]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let size = size.filter(|size| i64::try_from(*size).is_ok());
        Ok((size.ok_or(WireError::Invalid("chunk size is not below 2^63"))?, digits + extensions + 2))
    }
}

/// Returns the length of the extensions, `;...`, before CR LF. White space is accepted only before a `;`, where
/// recipients "MUST parse" it (RFC 9110, 5.6.3).
fn extensions(rest: &[u8]) -> Result<usize, WireError> {
    let end = rest.iter().position(|byte| !scan::is_text_byte(*byte)).unwrap_or(rest.len());
    if end > MAX_EXTENSIONS {
        return Err(WireError::Invalid("chunk extensions longer than 256 bytes"));
    }
    let extension = rest[..end].trim_ascii_start();
    if extension.first().is_some_and(|byte| *byte != b';') {
        return Err(WireError::Invalid("chunk size followed by other bytes"));
    }
    match rest[end..] {
        [] | [b'\r'] => Err(WireError::Incomplete),
        [b'\r', b'\n', ..] if extension.is_empty() && end > 0 => {
            Err(WireError::Invalid("white space after a chunk size"))
        }
        [b'\r', b'\n', ..] => Ok(end),
        [..] => Err(WireError::Invalid("chunk line does not end in CR LF")),
    }
}

/// Reads the CR LF after a chunk's data.
///
/// # Errors
/// [`WireError::Invalid`] for other bytes, such as more data than the chunk's size.
pub fn parse_chunk_end(bytes: &[u8]) -> Parsed<()> {
    match bytes {
        [b'\r', b'\n', ..] => Ok(((), 2)),
        [] | [b'\r'] => Err(WireError::Incomplete),
        [..] => Err(WireError::Invalid("chunk data does not end in CR LF")),
    }
}

/// Reads the trailers after a chunk of size 0: fields of at most `limit` bytes, and an empty line. Fields that are not
/// permitted in trailers are dropped (RFC 9110, 6.5.1).
///
/// # Errors
/// [`WireError::Invalid`] for a malformed header field; [`WireError::TooLarge`] if the section does not end within
/// `limit`.
pub fn parse_trailers(bytes: &[u8], limit: usize) -> Parsed<Headers> {
    let range = scan::find_head(bytes, limit, Start::Nothing)?;
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let Ok(httparse::Status::Complete((used, fields))) = httparse::parse_headers(&bytes[range.clone()], &mut fields)
    else {
        return Err(WireError::Invalid("trailers are not header fields"));
    };
    if used != range.end {
        return Err(WireError::Invalid("trailers with two ends"));
    }
    let mut headers = Headers::from_parsed(fields);
    FORBIDDEN_TRAILERS.iter().for_each(|name| headers.remove(name));
    Ok((headers, used))
}

/// Encodes the line before a chunk's data.
#[must_use]
pub fn write_chunk_head(size: u64) -> String {
    format!("{size:x}\r\n")
}

/// Encodes the trailer section after the last chunk (RFC 9112 section 7.1.2).
#[must_use]
pub fn write_trailers(trailers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    trailers.write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::feeding::feed;

    #[test]
    fn chunk_lines_round_trip() {
        for size in [0, 1, 10, 0xffff, i64::MAX as u64] {
            assert_eq!(feed(write_chunk_head(size).as_bytes(), ChunkHead::parse), size);
        }
        for (line, size) in [
            ("0000000000000005\r\n", 5),
            ("fF\r\n", 255),
            ("5;a=b;c=\"d;e\"\r\n", 5),
            ("5 ;a\r\n", 5),
            ("5\t ; a = b \r\n", 5),
            ("5;\r\n", 5),
        ] {
            assert_eq!(feed(line.as_bytes(), ChunkHead::parse), size, "{line:?}");
        }
        feed(format!("5;{}\r\n", "x".repeat(255)).as_bytes(), ChunkHead::parse);
    }

    #[test]
    fn bad_chunk_lines_are_refused() {
        let long = format!("5;{}", "x".repeat(256));
        for line in [
            "\r\n",
            "\n",
            " 5\r\n",
            "+5\r\n",
            "-5\r\n",
            "0x5\r\n",
            "5h\r\n",
            "g\r\n",
            "5 \r\n",
            "5\t\r\n",
            "5 5\r\n",
            "5,5\r\n",
            "5\n",
            "5\rX",
            "5\r\r\n",
            "5;a\n",
            "5;a\rb",
            "5;a\0",
            "5;\u{7f}",
            "00000000000000005",
            "ffffffffffffffff\r\n",
            "8000000000000000\r\n",
            ";5\r\n",
            &long,
        ] {
            assert!(matches!(ChunkHead::parse(line.as_bytes()), Err(WireError::Invalid(_))), "{line:?}");
        }
    }

    #[test]
    fn data_ends_in_cr_lf() {
        feed(b"\r\n", parse_chunk_end);
        for wrong in [b"\n".as_slice(), b"x", b"\rx", b"0\r\n"] {
            assert!(matches!(parse_chunk_end(wrong), Err(WireError::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn trailers_round_trip_without_framing_and_host_fields() {
        assert!(feed(b"\r\n", |bytes| parse_trailers(bytes, 100)).is_empty());
        let text = b"Digest: x\r\nContent-Length: 5\r\nhost: a\r\nTransfer-Encoding: chunked\r\nX-Sum: \xff\r\n\r\n";
        let trailers = feed(text, |bytes| parse_trailers(bytes, 100));
        assert_eq!(trailers.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["Digest", "X-Sum"]);
        assert_eq!(feed(&write_trailers(&trailers), |bytes| parse_trailers(bytes, 100)), trailers);
    }

    #[test]
    fn bad_trailers_are_refused() {
        for text in [
            "\n",
            "X: a\n\r\n",
            " X: a\r\n\r\n",
            "X : a\r\n\r\n",
            "X\r\n\r\n",
            ":\r\n\r\n",
            "X: a\r\n b\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
        ] {
            assert!(matches!(parse_trailers(text.as_bytes(), 100), Err(WireError::Invalid(_))), "{text:?}");
        }
        assert_eq!(parse_trailers(b"X: aaaaaaaa", 10), Err(WireError::TooLarge));
    }
}

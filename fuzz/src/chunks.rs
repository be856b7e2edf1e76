//! A minimal decoder of the chunked transfer coding (RFC 9112, 7.1), as a reference for the fuzz targets.

use ekiden_proto::wire::http::Headers;
use ekiden_proto::wire::http::chunked::{ChunkHead, parse_chunk_end, parse_trailers};

/// Returns the data, the trailers and the number of bytes used of a complete body, or `None` for an incomplete or
/// invalid body. `limit` is the maximum length of the trailer section in bytes.
#[must_use]
pub fn decode(bytes: &[u8], limit: usize) -> Option<(Vec<u8>, Headers, usize)> {
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let (size, used) = ChunkHead::parse(&bytes[at..]).ok()?;
        at += used;
        if size == 0 {
            let (trailers, used) = parse_trailers(&bytes[at..], limit).ok()?;
            return Some((data, trailers, at + used));
        }
        let end = at.checked_add(usize::try_from(size).ok()?)?;
        data.extend(bytes.get(at..end)?);
        at = end + parse_chunk_end(&bytes[end..]).ok()?.1;
    }
}

//! The chunked transfer coding: single lines, and a complete body that is decoded, encoded and decoded again.
#![no_main]

use ekiden_fuzz::check_prefixes;
use ekiden_fuzz::chunks::decode;
use ekiden_proto::wire::http::Headers;
use ekiden_proto::wire::http::chunked::{ChunkHead, parse_chunk_end, parse_trailers, write_chunk_head, write_trailers};

const LIMIT: usize = 1024;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check_prefixes(bytes, ChunkHead::parse);
    check_prefixes(bytes, parse_chunk_end);
    check_prefixes(bytes, |bytes| parse_trailers(bytes, LIMIT));
    if let Some((data, trailers, used)) = decode(bytes, LIMIT) {
        assert_eq!(decode(&bytes[..used], LIMIT), Some((data.clone(), trailers.clone(), used)));
        let coded = encode(&data, &trailers);
        // The encoder writes a space after each colon, so trailers may grow beyond the limit.
        assert_eq!(decode(&coded, usize::MAX), Some((data, trailers, coded.len())));
    }
});

fn encode(data: &[u8], trailers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in data.chunks(7) {
        let size = u64::try_from(chunk.len()).expect("seven at most");
        out.extend([write_chunk_head(size).as_bytes(), chunk, b"\r\n"].concat());
    }
    out.extend(write_chunk_head(0).as_bytes());
    out.extend(write_trailers(trailers));
    out
}

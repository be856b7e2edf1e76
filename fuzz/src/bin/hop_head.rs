//! The head of a proxy's response to CONNECT, as the relay reads it from a socket: bytes after the head stay in the
//! socket, for any size of the arriving pieces. The first byte of the input is the size of a piece minus 1. There may
//! be several heads, because interim responses (1xx) precede the final one.
#![no_main]

use ekiden_proto::wire::http::ResponseHead;
use ekiden_proto::wire::http::connect::{MAX_DETAILS, append_head, cause_of, refusal_details};
use ekiden_proto::wire::{Parsed, WireError};

/// Maximum length of the head of a hop's response in bytes.
const LIMIT: usize = 16 * 1024;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, stream)) = bytes.split_first() else { return };
    let whole = answer(stream, stream.len());
    assert_eq!(answer(stream, 1 + usize::from(*piece)), whole, "in pieces");
    if stream.len() <= 512 {
        assert_eq!(answer(stream, 1), whole, "byte by byte");
    }
});

/// Reads `stream` in pieces of at most `most` bytes. Returns the status of the final response and the number of bytes
/// taken, `Err(true)` for an invalid head and `Err(false)` for an incomplete one.
fn answer(stream: &[u8], most: usize) -> Result<(u16, usize), bool> {
    let (mut head, mut taken) = (Vec::new(), 0);
    while taken < stream.len() {
        let arrived = &stream[taken..stream.len().min(taken + most)];
        let (before, count) = (head.len(), append_head(&mut head, arrived));
        assert!((1..=arrived.len()).contains(&count) && head.len() == before + count);
        assert_eq!(head[before..], arrived[..count]);
        taken += count;
        match parse(&head) {
            Ok((answer, used)) => {
                assert_eq!(used, head.len(), "bytes after the head were taken");
                if !(100..200).contains(&answer.status) {
                    let _ = cause_of(answer.status, &answer.headers);
                    let details = refusal_details(&answer.headers).unwrap_or_default();
                    assert!(details.len() <= MAX_DETAILS && details.bytes().all(|byte| matches!(byte, b' '..=b'~')));
                    return Ok((answer.status, taken));
                }
                head.clear();
            }
            Err(WireError::Incomplete) => {}
            Err(_) => return Err(true),
        }
    }
    Err(false)
}

fn parse(head: &[u8]) -> Parsed<ResponseHead> {
    ResponseHead::parse(head, LIMIT, "CONNECT")
}

//! The head of a proxy's answer to CONNECT, as the relay reads it from a socket: the bytes behind the head stay in the socket,
//! in whatever pieces the bytes arrive. The first byte of the input is the number of bytes that arrive at once; more than one
//! head may have to be read.
#![no_main]

use ekiden_proto::wire::http::ResponseHead;
use ekiden_proto::wire::http::connect::{MAX_DETAILS, append_head, cause_of, refusal_details};
use ekiden_proto::wire::{Parsed, WireError};

/// The longest head of a hop's answer.
const LIMIT: usize = 16 * 1024;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, stream)) = bytes.split_first() else { return };
    let whole = answer(stream, stream.len());
    assert_eq!(answer(stream, 1 + usize::from(*piece)), whole, "in pieces");
    if stream.len() <= 512 {
        assert_eq!(answer(stream, 1), whole, "byte by byte");
    }
});

/// The status of the final answer and the number of bytes taken from `stream`, which arrives in pieces of `most` bytes.
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
                assert_eq!(used, head.len(), "bytes behind the head were taken");
                if !(100..200).contains(&answer.status) {
                    let _ = cause_of(answer.status, &answer.headers);
                    let said = refusal_details(&answer.headers).unwrap_or_default();
                    assert!(said.len() <= MAX_DETAILS && said.bytes().all(|byte| matches!(byte, b' '..=b'~')));
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

//! Forwarding of a chunked body that arrives in pieces of any size: the receiver gets the data and the trailers of the
//! body.
#![no_main]

use ekiden_fuzz::chunks::decode;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::http::forward::{BodyCoding, ChunkForwarder, MAX_TRAILERS};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((pieces, body)) = bytes.split_first_chunk::<4>() else { return };
    let sizes = pieces.map(|size| usize::from(size) % 32 + 1);
    let whole = decode(body, MAX_TRAILERS);
    for coding in [BodyCoding::Chunks, BodyCoding::Plain] {
        let at_once = forward(body, coding, [usize::MAX; 4]).ok();
        // An error stays an error, but its kind may change.
        assert_eq!(forward(body, coding, sizes).ok(), at_once, "pieces of {sizes:?}");
        match (&whole, at_once) {
            (Some((data, trailers, used)), Some((out, taken))) => {
                assert_eq!(taken, *used);
                match coding {
                    BodyCoding::Plain => assert_eq!(out, *data),
                    // The encoder writes a space after each colon, so trailers may grow beyond the limit.
                    BodyCoding::Chunks => {
                        assert_eq!(decode(&out, usize::MAX), Some((data.clone(), trailers.clone(), out.len())));
                    }
                }
            }
            (None, None) => {}
            (whole, at_once) => panic!("{whole:?} became {at_once:?}"),
        }
    }
});

/// Forwards `body` in pieces of these sizes, used cyclically. Returns the bytes for the receiver and the number of
/// bytes used. Output is sent before each wait for input, as in the relay.
fn forward(body: &[u8], coding: BodyCoding, sizes: [usize; 4]) -> Result<(Vec<u8>, usize), WireError> {
    let mut chunks = ChunkForwarder::new(coding);
    let mut arriving = ArrivingBody { body, sizes: sizes.into_iter().cycle(), end: 0 };
    let (mut out, mut at) = (Vec::new(), 0);
    while !chunks.is_complete() {
        let (piece, used) = loop {
            match chunks.parse(&body[at..arriving.end]) {
                Err(WireError::Incomplete) => {
                    out.append(&mut chunks.output);
                    arriving.arrive()?;
                }
                other => break other?,
            }
        };
        at += used;
        let mut size = usize::try_from(chunks.on_framing(&piece)).expect("64 bits");
        while size > 0 {
            if at == arriving.end {
                out.append(&mut chunks.output);
                arriving.arrive()?;
            }
            let here = size.min(arriving.end - at);
            chunks.output.extend_from_slice(&body[at..at + here]);
            (at, size) = (at + here, size - here);
        }
    }
    out.append(&mut chunks.output);
    Ok((out, at))
}

/// A body whose first `end` bytes have arrived.
struct ArrivingBody<'a> {
    body: &'a [u8],
    sizes: std::iter::Cycle<std::array::IntoIter<usize, 4>>,
    end: usize,
}

impl ArrivingBody<'_> {
    fn arrive(&mut self) -> Result<(), WireError> {
        if self.end == self.body.len() {
            return Err(WireError::Incomplete);
        }
        let size = self.sizes.next().expect("a cycle has no end");
        self.end = self.end.saturating_add(size).min(self.body.len());
        Ok(())
    }
}

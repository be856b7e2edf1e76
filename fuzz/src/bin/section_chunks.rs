//! A stream of chunks in reads of any size: the reader never requests a byte after the end, the payload is that of the
//! chunks, and the end record is accepted only with the length of the payload.
//!
//! Input: the number of reads (1 byte), the size of each read, then the stream.
#![no_main]

use ekiden_proto::wire::section::chunk::{ChunkReader, MAX_LENGTH, end_plaintext};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((count, rest)) = bytes.split_first() else { return };
    let (sizes, stream) = rest.split_at(usize::from(*count).min(rest.len()));
    let mut sizes = sizes.iter().map(|size| usize::from(*size) + 1);
    let (mut reader, mut at, mut payload) = (ChunkReader::default(), 0, 0);
    loop {
        let most = if reader.left() > 0 { reader.left() } else { reader.missing_header() };
        assert_eq!(most == 0, reader.is_ended());
        let read = most.min(sizes.next().unwrap_or(usize::MAX)).min(stream.len() - at);
        if read == 0 {
            break;
        }
        if reader.left() > 0 {
            reader.on_payload(read);
            payload += read as u64;
        } else if reader.on_header(&stream[at..at + read]).is_err() {
            let length = u32::from_be_bytes(stream[at + read - 4..at + read].try_into().expect("a whole header"));
            assert!(length > MAX_LENGTH, "a chunk of {length} bytes was refused");
            return;
        }
        at += read;
    }
    assert!(reader.check_end(&end_plaintext(payload)).is_ok());
    assert!(reader.check_end(&end_plaintext(payload + 1)).is_err());
});

//! A reader of pcapng files, written from draft-ietf-opsawg-pcapng independently of the writer.

use std::path::Path;

/// An enhanced packet block.
#[derive(Debug)]
pub struct Packet {
    /// Nanoseconds since the Unix epoch.
    pub at: u64,
    pub id: u64,
    pub length: u32,
    pub bytes: Vec<u8>,
    pub comments: Vec<String>,
}

/// The contents of a file with one interface.
#[derive(Debug)]
pub struct Capture {
    pub link_type: u16,
    pub snaplen: u32,
    pub packets: Vec<Packet>,
    /// The values of `isb_ifrecv` and `isb_ifdrop`.
    pub statistics: [u64; 2],
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns code and value of each option; panics if the list has no end.
fn options(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut all = Vec::new();
    loop {
        let (code, length) = (number(&bytes[..2]), number(&bytes[2..4]) as usize);
        if code == 0 {
            assert_eq!(bytes, [0; 4], "nothing follows the end of options");
            return all;
        }
        all.push((code, &bytes[4..4 + length]));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

fn option<'a>(all: &[(u64, &'a [u8])], code: u64) -> Option<&'a [u8]> {
    all.iter().find(|(found, _)| *found == code).map(|(_, value)| *value)
}

pub fn read(path: &Path) -> Capture {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rest = file.as_slice();
    let mut capture = Capture { link_type: 0, snaplen: 0, packets: Vec::new(), statistics: [u64::MAX; 2] };
    while !rest.is_empty() {
        let (kind, length) = (number(&rest[..4]), number(&rest[4..8]) as usize);
        let (block, behind) = rest.split_at(length);
        assert_eq!(number(&block[length - 4..]) as usize, length, "both lengths of a block are equal");
        let body = &block[8..length - 4];
        match kind {
            0x0a0d_0d0a => assert_eq!(number(&body[..8]), 0x1_1a2b_3c4d, "byte order and version 1.0"),
            1 => {
                capture.link_type = number(&body[..2]) as u16;
                capture.snaplen = number(&body[4..8]) as u32;
                assert_eq!(option(&options(&body[8..]), 9), Some(&[9][..]), "times are in nanoseconds");
            }
            6 => {
                let captured = number(&body[12..16]) as usize;
                let options = options(&body[20 + captured.next_multiple_of(4)..]);
                let comments = options.iter().filter(|(code, _)| *code == 1);
                capture.packets.push(Packet {
                    at: number(&body[4..8]) << 32 | number(&body[8..12]),
                    id: number(option(&options, 5).unwrap()),
                    length: number(&body[16..20]) as u32,
                    bytes: body[20..20 + captured].to_vec(),
                    comments: comments.map(|(_, text)| String::from_utf8(text.to_vec()).unwrap()).collect(),
                });
            }
            5 => {
                let options = options(&body[12..]);
                capture.statistics = [4, 5].map(|code| number(option(&options, code).unwrap()));
            }
            other => panic!("block of type {other}"),
        }
        rest = behind;
    }
    capture
}

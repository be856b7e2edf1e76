//! Records of associations: an address has exactly one encoding, and the rest is the payload.
#![no_main]

use ekiden_proto::wire::section::datagram::{read_destination, read_source, write_destination};
use ekiden_proto::wire::socks5::DatagramHeader;

libfuzzer_sys::fuzz_target!(|record: &[u8]| {
    if let Ok((target, payload)) = read_destination(record) {
        let mut written = Vec::new();
        write_destination(&target, &mut written);
        assert_eq!([&written, payload].concat(), record);
    }
    if let Ok((source, payload)) = read_source(record) {
        let mut written = Vec::new();
        DatagramHeader::write(source, &mut written);
        assert_eq!([&written[3..], payload].concat(), record);
    }
});

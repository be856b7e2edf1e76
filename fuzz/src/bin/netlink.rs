//! Messages and attributes of the kernel (netlink(7)): no panic, no access beyond the input, and termination.
#![no_main]

use ekiden_sys::netlink::{Message, attribute, attributes, messages};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    assert!(messages(bytes).count() <= bytes.len() / 16);
    for message in messages(bytes) {
        let Message::Other(body) = message else { continue };
        // Attributes follow the header of the family. The sizes of these headers, and 0 for none.
        for at in [0, 4, 12, 16, 20] {
            check(body.get(at..).unwrap_or_default(), 4);
        }
    }
    check(bytes, 4);
});

/// Checks that attributes survive a round trip, also nested ones.
fn check(bytes: &[u8], depth: u8) {
    let read: Vec<_> = attributes(bytes).collect();
    assert!(read.len() <= bytes.len().div_ceil(4));
    let written: Vec<u8> = read.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
    assert!(attributes(&written).eq(read.iter().copied()));
    if depth > 0 {
        read.iter().for_each(|(_, value)| check(value, depth - 1));
    }
}

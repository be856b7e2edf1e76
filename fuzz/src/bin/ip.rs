//! Packets of a tunnel: one has one length, and what is read can be written plainly.
#![no_main]

use std::net::IpAddr;

use ekiden_proto::wire::ip::{IpHeader, TCP};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(head) = IpHeader::parse(bytes) else { return };
    assert_eq!(head.source.is_ipv4(), head.destination.is_ipv4());
    assert!(head.protocol != TCP || head.port.is_some() || is_fragment(bytes), "TCP without a port");
    assert!(IpHeader::parse(&[bytes, b"\0"].concat()).is_err(), "one byte more");
    assert!(IpHeader::parse(&bytes[..bytes.len() - 1]).is_err(), "one byte less");
    let mut plain = bytes.to_vec();
    match &mut plain[..] {
        [_, service, ..] if head.source.is_ipv4() => *service = !*service,
        // The class is in both, and the version beside it.
        [_, label, ..] => *label = !*label,
        _ => unreachable!("a header has more"),
    }
    assert_eq!(IpHeader::parse(&plain), Ok(head), "what nobody looks at has changed it");
    // Extension headers and fragments cannot be written so plainly.
    if head.port.is_some() {
        assert_eq!(IpHeader::parse(&write(&head)), Ok(head));
    }
});

/// Whether it may be a later fragment: in IPv6, whether there is any extension header.
fn is_fragment(bytes: &[u8]) -> bool {
    if bytes[0] >> 4 == 4 { bytes[6] & 0x1f | bytes[7] != 0 } else { bytes[6] != TCP }
}

/// The shortest packet that says the same.
fn write(head: &IpHeader) -> Vec<u8> {
    let mut packet = match (head.source, head.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let start: &[u8] = &[0x45, 0, 0, 24, 0, 0, 0, 0, 64, head.protocol, 0, 0];
            [start, &from.octets(), &to.octets()].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let start: &[u8] = &[0x60, 0, 0, 0, 0, 4, head.protocol, 64];
            [start, &from.octets(), &to.octets()].concat()
        }
        _ => unreachable!("addresses of two families"),
    };
    packet.extend([0, 0]);
    packet.extend(head.port.expect("asked only for those with one").to_be_bytes());
    packet
}

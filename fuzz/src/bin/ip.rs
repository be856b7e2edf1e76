//! IP packets of a tunnel: a packet has exactly one valid length, a parsed header survives a round trip, and
//! each packet that is not ICMP has a flow.
#![no_main]

use ekiden_fuzz::write_ip_header;
use ekiden_proto::wire::ip::{IpHeader, PacketFlow, TCP};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (own, answered) = (PacketFlow::of(bytes), PacketFlow::answered_by(bytes));
    let Ok(head) = IpHeader::parse(bytes) else { return };
    assert!(matches!(head.protocol, 1 | 58) || own.is_some() && answered.is_some(), "no flow");
    assert_eq!(head.source.is_ipv4(), head.destination.is_ipv4());
    assert!(head.protocol != TCP || head.port.is_some() || is_fragment(bytes), "TCP without a port");
    assert!(IpHeader::parse(&[bytes, b"\0"].concat()).is_err(), "one byte more");
    assert!(IpHeader::parse(&bytes[..bytes.len() - 1]).is_err(), "one byte less");
    let mut plain = bytes.to_vec();
    match &mut plain[..] {
        [_, service, ..] if head.source.is_ipv4() => *service = !*service,
        // IPv6: byte 1 has bits of the traffic class and of the flow label. The version is in byte 0.
        [_, label, ..] => *label = !*label,
        _ => unreachable!("a header has at least two bytes"),
    }
    assert_eq!(IpHeader::parse(&plain), Ok(head), "an ignored field changed the result");
    // `write` writes no extension headers and no fragments.
    if head.port.is_some() {
        assert_eq!(IpHeader::parse(&write(&head)), Ok(head));
    }
});

/// Returns whether the packet may be a fragment other than the first. For IPv6: whether it has an extension header.
fn is_fragment(bytes: &[u8]) -> bool {
    if bytes[0] >> 4 == 4 { bytes[6] & 0x1f | bytes[7] != 0 } else { bytes[6] != TCP }
}

/// Writes the shortest packet with this header.
fn write(head: &IpHeader) -> Vec<u8> {
    let mut packet = write_ip_header(head.source, head.destination, head.protocol, 4);
    packet.extend([0, 0]);
    packet.extend(head.port.expect("the caller checks for a port").to_be_bytes());
    packet
}

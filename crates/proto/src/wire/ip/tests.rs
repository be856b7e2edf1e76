use super::super::headers::{AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING, packets};
use super::*;

/// UDP from 192.168.1.7:4000 to 192.168.2.9:53, with 3 bytes.
const V4: [u8; 31] = [
    0x45, 0, 0, 31, 0, 1, 0, 0, 64, UDP, 0, 0, 192, 168, 1, 7, 192, 168, 2, 9, //
    0x0f, 0xa0, 0, 53, 0, 11, 0, 0, 1, 2, 3,
];

/// The same datagram from [fd00:1::7]:4000 to [fd00:2::9]:53.
const V6: [u8; 51] = [
    0x60, 0, 0, 0, 0, 11, UDP, 64, //
    0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
    0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, //
    0x0f, 0xa0, 0, 53, 0, 11, 0, 0, 1, 2, 3,
];

fn changed(packet: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    for (at, to) in changes {
        packet[*at] = *to;
    }
    packet
}

fn extended(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    packets::extended(&V6, extensions)
}

fn v4(protocol: u8, port: Option<u16>) -> IpHeader {
    IpHeader { source: "192.168.1.7".parse().unwrap(), destination: "192.168.2.9".parse().unwrap(), protocol, port }
}

fn v6(protocol: u8, port: Option<u16>) -> IpHeader {
    IpHeader { source: "fd00:1::7".parse().unwrap(), destination: "fd00:2::9".parse().unwrap(), protocol, port }
}

fn assert_refused(packet: &[u8], why: &'static str) {
    assert_eq!(IpHeader::parse(packet), Err(WireError::Invalid(why)), "{packet:?}");
}

#[test]
fn ipv4_headers_are_parsed_with_and_without_options() {
    assert_eq!(IpHeader::parse(&V4), Ok(v4(UDP, Some(53))));
    let mut options = changed(&V4, &[(0, 0x46), (3, 35)]);
    options.splice(20..20, [1; 4]);
    assert_eq!(IpHeader::parse(&options), Ok(v4(UDP, Some(53))));
    assert_eq!(IpHeader::parse(&changed(&V4, &[(9, TCP)])), Ok(v4(TCP, Some(53))));
    assert_eq!(IpHeader::parse(&changed(&V4, &[(9, 1)])), Ok(v4(1, None)), "ICMP has no ports");
    assert_eq!(IpHeader::parse(&changed(&V4[..20], &[(3, 20), (9, 59)])), Ok(v4(59, None)), "no payload");
}

#[test]
fn only_the_first_ipv4_fragment_has_a_port() {
    assert_eq!(IpHeader::parse(&changed(&V4, &[(6, 0x20)])), Ok(v4(UDP, Some(53))), "first fragment");
    assert_eq!(IpHeader::parse(&changed(&V4, &[(6, 0x20), (7, 1)])), Ok(v4(UDP, None)), "later fragment");
    assert_eq!(
        IpHeader::parse(&changed(&V4[..21], &[(3, 21), (7, 185)])),
        Ok(v4(UDP, None)),
        "last fragment, of one byte"
    );
}

#[test]
fn ipv6_headers_are_parsed_with_and_without_extensions() {
    assert_eq!(IpHeader::parse(&V6), Ok(v6(UDP, Some(53))));
    assert_eq!(IpHeader::parse(&changed(&V6, &[(6, 58)])), Ok(v6(58, None)), "ICMPv6 has no ports");
    let (options, longer): (&[u8], &[u8]) = (&[0, 1, 4, 0, 0, 0, 0], &[1; 15]);
    let (authentication, first): (&[u8], &[u8]) = (&[4; 23], &[0, 0, 1, 0, 0, 0, 7]);
    for extensions in [
        &[(HOP_BY_HOP, options)][..],
        &[(DESTINATION_OPTIONS, longer)],
        &[(ROUTING, &[0, 1, 0, 0, 0, 0, 0])],
        &[(AUTHENTICATION, authentication)],
        &[(FRAGMENT, first)],
        &[(HOP_BY_HOP, longer), (ROUTING, &[0, 1, 0, 0, 0, 0, 0]), (FRAGMENT, first), (AUTHENTICATION, authentication)],
    ] {
        assert_eq!(IpHeader::parse(&extended(extensions)), Ok(v6(UDP, Some(53))), "{extensions:?}");
    }
    // The content of a later fragment is not a header, even if its bytes could be one.
    let later: &[u8] = &[0, 5, 0xa9, 0, 0, 0, 7];
    assert_eq!(IpHeader::parse(&extended(&[(HOP_BY_HOP, options), (FRAGMENT, later)])), Ok(v6(UDP, None)));
}

/// Rules judge the destination in the header, but a packet with a source route is forwarded to another destination.
#[test]
fn source_routes_are_refused() {
    let with = |options: &[u8]| {
        let words = 5 + u8::try_from(options.len() / 4).unwrap();
        let mut packet = changed(&V4, &[(0, 0x40 | words), (3, 31 + u8::try_from(options.len()).unwrap())]);
        packet.splice(20..20, options.iter().copied());
        packet
    };
    for kind in [131, 137] {
        assert_refused(&with(&[kind, 7, 4, 203, 0, 113, 9, 0]), "a packet with a source route");
        assert_refused(&with(&[1, kind, 7, 8, 203, 0, 113, 9]), "a packet with a source route");
        assert_refused(&with(&[7, 4, 4, 0, kind, 3, 4, 0]), "a packet with a source route");
        assert_eq!(IpHeader::parse(&with(&[0, kind, 7, 4])), Ok(v4(UDP, Some(53))), "after the end of the options");
        assert_eq!(IpHeader::parse(&with(&[7, 4, kind, kind])), Ok(v4(UDP, Some(53))), "data of another option");
    }
    for options in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
        assert_refused(&with(&options), "an IPv4 option of a wrong length");
    }
    let (left, arrived): (&[u8], &[u8]) = (&[0, 0, 1, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0]);
    assert_refused(&extended(&[(ROUTING, left)]), "a packet with a source route");
    assert_refused(&extended(&[(HOP_BY_HOP, arrived), (ROUTING, left)]), "a packet with a source route");
    assert_eq!(IpHeader::parse(&extended(&[(ROUTING, arrived)])), Ok(v6(UDP, Some(53))), "no segments left");
}

/// The protocol is that of the last header, not only that of the IPv6 header.
#[test]
fn tcp_is_found_after_extension_headers() {
    let mut packet = extended(&[(DESTINATION_OPTIONS, &[0, 1, 4, 0, 0, 0, 0])]);
    packet[IPV6_HEADER] = TCP;
    assert_eq!(IpHeader::parse(&packet), Ok(v6(TCP, Some(53))));
}

#[test]
fn length_field_must_match_the_packet() {
    for packet in [V4.as_slice(), &V6] {
        for end in 1..packet.len() {
            assert!(matches!(IpHeader::parse(&packet[..end]), Err(WireError::Invalid(_))), "{end} bytes");
        }
        assert_refused(&[packet, b"x"].concat(), "a packet whose length differs from its length field");
    }
    assert_refused(b"", "a truncated packet");
    assert_refused(&changed(&V4, &[(2, 1)]), "a packet whose length differs from its length field");
    assert_refused(&changed(&V6, &[(5, 0)]), "a packet whose length differs from its length field");
    let largest = [&[0x45, 0, 0xff, 0xff], &V4[4..], &[0; 65_535 - 31]].concat();
    assert_eq!(IpHeader::parse(&largest), Ok(v4(UDP, Some(53))));
}

#[test]
fn malformed_headers_are_refused() {
    assert_refused(&changed(&V4, &[(0, 0x44)]), "an IPv4 header shorter than 20 bytes");
    assert_refused(&changed(&V4, &[(0, 0x4f)]), "a truncated packet");
    assert_refused(&changed(&V4, &[(0, 0x55)]), "neither IPv4 nor IPv6");
    assert_refused(&changed(&V4[..23], &[(3, 23)]), "a truncated packet");
    assert_refused(&changed(&V6, &[(6, HOP_BY_HOP), (41, 9)]), "a truncated packet");
    assert_refused(&changed(&V6, &[(6, AUTHENTICATION), (41, 9)]), "a truncated packet");
    assert_refused(&changed(&V6[..47], &[(5, 7), (6, FRAGMENT)]), "a truncated packet");
}

#[test]
fn special_purpose_addresses_are_not_routable() {
    for (ip, routable) in [
        ("192.168.1.7", true),
        ("10.0.0.0", true),
        ("8.8.8.8", true),
        ("100.64.0.1", true),
        ("0.0.0.0", false),
        ("0.1.2.3", false),
        ("127.0.0.1", false),
        ("169.254.1.1", false),
        ("224.0.0.251", false),
        ("240.0.0.1", false),
        ("255.255.255.255", false),
        ("fd00::1", true),
        ("2001:db8::1", true),
        ("::", false),
        ("::1", false),
        ("fe80::1", false),
        ("ff02::1", false),
        ("::ffff:192.168.1.7", false),
    ] {
        assert_eq!(is_routable(ip.parse().unwrap()), routable, "{ip}");
    }
}

use super::super::headers::{DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ROUTING, packets};
use super::*;

/// A SYN from 198.51.100.7:40000 to 192.0.2.1:80, without options.
const V4: [u8; 40] = [
    0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 198, 51, 100, 7, 192, 0, 2, 1, //
    0x9c, 0x40, 0, 80, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0,
];

/// A SYN from [2001:db8::7]:40000 to [2001:db8::1]:80.
const V6: [u8; 60] = [
    0x60, 0, 0, 0, 0, 20, 6, 64, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x9c, 0x40, 0, 80, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0,
];

fn changed<const N: usize>(packet: [u8; N], at: usize, to: u8) -> [u8; N] {
    let mut packet = packet;
    packet[at] = to;
    packet
}

fn extended(extensions: &[(u8, &[u8])]) -> Vec<u8> {
    packets::extended(&V6, extensions)
}

fn parsed_fields(packet: &[u8]) -> (String, String, u32) {
    let syn = Syn::parse(packet).unwrap_or_else(|error| panic!("{packet:?}: {error}"));
    (syn.client.to_string(), syn.server.to_string(), syn.sequence)
}

fn assert_refused(packet: &[u8], why: &'static str) {
    assert_eq!(Syn::parse(packet), Err(WireError::Invalid(why)), "{packet:?}");
}

#[test]
fn ipv4_syns_are_parsed_with_and_without_options() {
    let plain = ("198.51.100.7:40000".to_owned(), "192.0.2.1:80".to_owned(), 0xdead_beef);
    assert_eq!(parsed_fields(&V4), plain);
    let mut options = changed(V4, 0, 0x47).to_vec();
    options.splice(20..20, [1; 8]);
    assert_eq!(parsed_fields(&options), plain);
    // The flags request ECN, the first fragment has the ports, and the kernel has cut off the rest.
    assert_eq!(parsed_fields(&changed(V4, 33, 0xc2)), plain);
    assert_eq!(parsed_fields(&changed(V4, 6, 0x20)), plain);
    assert_eq!(parsed_fields(&V4[..34]), plain);
}

#[test]
fn ipv6_syns_are_parsed_with_and_without_extensions() {
    let plain = ("[2001:db8::7]:40000".to_owned(), "[2001:db8::1]:80".to_owned(), 0xdead_beef);
    assert_eq!(parsed_fields(&V6), plain);
    let options: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
    let longer: &[u8] = &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let arrived: &[u8] = &[0, 4, 0, 0, 0, 0, 0];
    // The second byte of a fragment header is reserved, not a length.
    let fragment: &[u8] = &[9, 0, 1, 0, 0, 0, 7];
    for extensions in [
        &[(HOP_BY_HOP, options)][..],
        &[(DESTINATION_OPTIONS, longer)],
        &[(ROUTING, arrived)],
        &[(FRAGMENT, fragment)],
        &[(HOP_BY_HOP, longer), (ROUTING, arrived), (FRAGMENT, fragment), (DESTINATION_OPTIONS, options)],
    ] {
        assert_eq!(parsed_fields(&extended(extensions)), plain, "{extensions:?}");
    }
}

#[test]
fn truncated_packets_are_incomplete() {
    for end in 0..34 {
        assert_eq!(Syn::parse(&V4[..end]), Err(WireError::Incomplete), "{end}");
    }
    let extended = extended(&[(HOP_BY_HOP, &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])]);
    for end in 0..extended.len() - 6 {
        assert_eq!(Syn::parse(&extended[..end]), Err(WireError::Incomplete), "{end}");
    }
}

#[test]
fn packets_that_are_no_valid_syn_are_refused() {
    for flags in [0x00, 0x10, 0x12, 0x06, 0x03, 0x14, 0xc0, 0xff] {
        assert_refused(&changed(V4, 33, flags), "not a SYN");
    }
    assert_refused(&changed(V4, 9, 17), "not TCP");
    assert_refused(&changed(V6, 6, 17), "not TCP");
    assert_refused(&changed(V6, 6, 59), "not TCP");
    assert_refused(&changed(V4, 0, 0x55), "neither IPv4 nor IPv6");
    assert_refused(&changed(V4, 0, 0x44), "an IPv4 header shorter than 20 bytes");
    assert_refused(&changed(V4, 32, 0x40), "a TCP header shorter than 20 bytes");
    assert_refused(&changed(V4, 23, 0), "port 0");
    assert_refused(&changed(changed(V6, 40, 0), 41, 0), "port 0");
}

#[test]
fn later_fragments_and_unfinished_routes_are_refused() {
    assert_refused(&changed(V4, 7, 1), "a fragment without the TCP header");
    assert_refused(&changed(V4, 6, 0x10), "a fragment without the TCP header");
    assert_refused(&extended(&[(FRAGMENT, &[0, 0, 8, 0, 0, 0, 7])]), "a fragment without the TCP header");
    assert_refused(&extended(&[(ROUTING, &[0, 4, 1, 0, 0, 0, 0])]), "a packet with a source route");
}

#[test]
fn source_routes_of_ipv4_are_refused() {
    for kind in [131, 137] {
        let mut packet = changed(V4, 0, 0x47).to_vec();
        packet.splice(20..20, [kind, 7, 8, 203, 0, 113, 9, 0]);
        assert_refused(&packet, "a packet with a source route");
    }
    let mut packet = changed(V4, 0, 0x46).to_vec();
    packet.splice(20..20, [7, 5, 0, 0]);
    assert_refused(&packet, "an IPv4 option of a wrong length");
}

/// A connection that is authenticated to the client's own key cannot be relayed.
#[test]
fn packets_with_authentication_headers_are_refused() {
    assert_refused(&extended(&[(51, &[4; 23])]), "not TCP");
}

/// A relay that bound to such a source would dial from an address of its own instead.
#[test]
fn addresses_that_no_host_has_are_refused() {
    let why = "not the address of one host";
    for octets in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        for at in [12, 16] {
            let mut packet = V4;
            packet[at..at + 4].copy_from_slice(&octets);
            assert_refused(&packet, why);
        }
    }
    for text in ["::", "ff02::1", "::ffff:192.0.2.1"] {
        for at in [8, 24] {
            let mut packet = V6;
            packet[at..at + 16].copy_from_slice(&text.parse::<Ipv6Addr>().unwrap().octets());
            assert_refused(&packet, why);
        }
    }
}

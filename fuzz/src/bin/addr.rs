//! Targets, networks and quantities: a parsed value survives a round trip through its text.
#![no_main]

use std::fmt::{Debug, Display};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ekiden_proto::addr::{Host, MAX_NAME, Nat64Prefix, Network, Target, embedded_ipv4, is_private};
use ekiden_proto::units::{Bytes, Rate, Span};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Some(octets) = bytes.first_chunk::<16>() {
        check_embedded(Ipv6Addr::from(*octets));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(host) = Host::parse(text) {
        assert!(host.to_string().len() <= MAX_NAME);
        assert_eq!(Host::parse(&host.to_string()), Ok(host));
    }
    if let Ok(target) = Target::parse(text, Some(80)) {
        assert_ne!(target.port, 0);
        assert!(target.to_string().bytes().all(|byte| byte.is_ascii_graphic()));
        assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
    }
    round_trip::<Target>(text);
    round_trip::<Network>(text);
    round_trip::<Nat64Prefix>(text);
    round_trip::<Bytes>(text);
    round_trip::<Rate>(text);
    round_trip::<Span>(text);
});

fn round_trip<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse().ok(), Some(value), "{text:?}");
    }
}

/// Checks that the IPv4-mapped form of an address is private exactly if the address is, and that an IPv6 address that
/// embeds a private IPv4 address is private.
fn check_embedded(v6: Ipv6Addr) {
    let v4 = Ipv4Addr::from_bits(v6.to_bits() as u32);
    assert_eq!(is_private(IpAddr::V4(v4), &[]), is_private(IpAddr::V6(v4.to_ipv6_mapped()), &[]));
    let contains_private = embedded_ipv4(IpAddr::V6(v6), &[]).any(|v4| is_private(IpAddr::V4(v4), &[]));
    assert!(!contains_private || is_private(IpAddr::V6(v6), &[]), "{v6}");
}

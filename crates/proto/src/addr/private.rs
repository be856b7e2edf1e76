//! Private addresses, and IPv4 addresses embedded in IPv6 addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::{AddrError, Network};

/// The prefix of a NAT64 translator (RFC 6052, 2.2). An address with this prefix contains the IPv4 address to which the
/// translator sends packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64Prefix(Network);

/// Index of the octet (bits 64 to 71) that RFC 6052 excludes from the embedded IPv4 address.
const RESERVED_OCTET: usize = 8;

impl Nat64Prefix {
    /// The IPv4 address embedded in `ip`; `None` if `ip` does not have this prefix.
    #[must_use]
    pub fn embedded_ipv4(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.0.contains(ip.into()) {
            return None;
        }
        let (octets, mut v4) = (ip.octets(), [0; 4]);
        let places = (usize::from(self.0.prefix_len() / 8)..octets.len()).filter(|at| *at != RESERVED_OCTET);
        for (to, from) in v4.iter_mut().zip(places) {
            *to = octets[from];
        }
        Some(v4.into())
    }
}

impl FromStr for Nat64Prefix {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        let network: Network = text.parse()?;
        let IpAddr::V6(first) = network.address() else { return Err(AddrError::Network) };
        let is_valid_length = [32, 40, 48, 56, 64, 96].contains(&network.prefix_len());
        if is_valid_length && first.octets()[RESERVED_OCTET] == 0 { Ok(Self(network)) } else { Err(AddrError::Network) }
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether `ip` leads back into this host or its own site rather than to the Internet: loopback, unspecified,
/// link-local, private, CGNAT, unique local, multicast and reserved (RFC 6890, RFC 6598), and the IPv6 addresses that
/// contain such an IPv4 address, see [`embedded_ipv4`].
///
/// An address with one of the `nat64` prefixes counts as the embedded IPv4 address, for every length of the prefix.
#[must_use]
pub fn is_private(ip: IpAddr, nat64: &[Nat64Prefix]) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => {
            let is_translated = nat64.iter().any(|prefix| prefix.embedded_ipv4(v6).is_some());
            !is_translated && is_private_v6(v6) || embedded_ipv4(ip, nat64).any(is_private_v4)
        }
    }
}

/// The IPv4 addresses in an IPv6 address: NAT64 (RFC 6052), by the well-known prefix and by those of `nat64`; 6to4 (RFC
/// 3056); Teredo server and client (RFC 4380); ISATAP (RFC 5214); IPv4-translated (RFC 2765) and IPv4-compatible (RFC
/// 4291).
pub fn embedded_ipv4(ip: IpAddr, nat64: &[Nat64Prefix]) -> impl Iterator<Item = Ipv4Addr> {
    let v6 = match ip.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(v6),
    };
    let translated = nat64.iter().filter_map(move |prefix| prefix.embedded_ipv4(v6?));
    v6.into_iter().flat_map(well_known_embedded).flatten().chain(translated)
}

fn well_known_embedded(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    let (first, second) = match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
            (Some(join(high, low)), None)
        }
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            (Some(join(server_high, server_low)), Some(join(!high, !low)))
        }
        // :: and ::1 do not contain IPv4 addresses.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => (Some(join(high, low)), None),
        _ => (None, None),
    };
    // An ISATAP interface identifier can have any prefix. Its bits "u" and "g" may be set.
    let isatap = match ip.segments() {
        [_, _, _, _, flags, 0x5efe, high, low] if flags & !0x0300 == 0 => Some(join(high, low)),
        _ => None,
    };
    [first, second, isatap]
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let cgnat = a == 100 && (64..128).contains(&b);
    let protocol_assignments = a == 192 && b == 0 && c == 0;
    let benchmarking = a == 198 && (b == 18 || b == 19);
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || cgnat
        || protocol_assignments
        || benchmarking
        || a == 0
        || a >= 224
}

/// Checks the address itself, regardless of an embedded IPv4 address.
fn is_private_v6(ip: Ipv6Addr) -> bool {
    let [a, b, c, ..] = ip.segments();
    // RFC 8215.
    let nat64_local = (a, b, c) == (0x64, 0xff9b, 1);
    ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || a & 0xfe00 == 0xfc00
        || a & 0xffc0 == 0xfe80
        || a & 0xffc0 == 0xfec0
        || nat64_local
}

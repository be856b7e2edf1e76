//! Networks in CIDR notation (RFC 4632), and membership of addresses in them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::AddrError;

/// A network in CIDR notation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Creates the network of all addresses with the first `prefix` bits of `address`; `None` if the address has fewer
    /// bits, or if other bits are set.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        Self::around(address, prefix).filter(|network| network.address == address)
    }

    /// Creates the network of all addresses with the first `prefix` bits of `address`; `None` if the address has fewer
    /// bits.
    #[must_use]
    pub fn around(address: IpAddr, prefix: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if prefix <= 32 => IpAddr::V4(masked_v4(v4, prefix)),
            IpAddr::V6(v6) if prefix <= 128 => IpAddr::V6(masked_v6(v6, prefix)),
            _ => return None,
        };
        Some(Self { address, prefix })
    }

    /// Whether `ip` lies in this network. IPv4-mapped IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.address, ip.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => masked_v4(ip, self.prefix) == net,
            (IpAddr::V6(net), IpAddr::V6(ip)) => masked_v6(ip, self.prefix) == net,
            _ => false,
        }
    }

    /// Whether all of `other` lies in this network.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Whether the networks have an address in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// The first address of the network.
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix in bits.
    #[must_use]
    pub const fn prefix_len(&self) -> u8 {
        self.prefix
    }
}

fn masked_v4(ip: Ipv4Addr, prefix: u8) -> Ipv4Addr {
    let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
    Ipv4Addr::from_bits(ip.to_bits() & mask)
}

fn masked_v6(ip: Ipv6Addr, prefix: u8) -> Ipv6Addr {
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    Ipv6Addr::from_bits(ip.to_bits() & mask)
}

/// The part of an address that its owner cannot choose: a whole IPv4 address, and the first 64 bits of an IPv6 address,
/// whose other bits the host sets itself (RFC 4291, 2.5.1). Limits for unknown clients count by this part.
#[must_use]
pub fn source_prefix(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(v6) => masked_v6(v6, 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The network of a single address.
impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Network {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| AddrError::Network)?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(text) => {
                // `u8::from_str` would accept a sign.
                let digits = text.bytes().all(|b| b.is_ascii_digit());
                text.parse::<u8>().ok().filter(|p| digits && *p <= widest).ok_or(AddrError::Network)?
            }
            None => widest,
        };
        Self::new(address, prefix).ok_or(AddrError::Network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

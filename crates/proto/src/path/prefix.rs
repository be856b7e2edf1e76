//! Networks of targets: last sections are stored per network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network of targets that are treated as one location: a /24 of IPv4, a /48 of IPv6. These are the longest prefixes
/// that are announced separately, so all addresses of one network have the same path through the Internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix(IpAddr);

/// The error for a text that is not a valid [`Prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a network like 192.0.2.0/24 or 2001:db8:1::/48")]
pub struct PrefixError;

impl Prefix {
    /// The first address of the network.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.0
    }

    /// The length of the prefix in bits.
    #[must_use]
    pub const fn prefix_len(self) -> u8 {
        match self.0 {
            IpAddr::V4(_) => 24,
            IpAddr::V6(_) => 48,
        }
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !0xff).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 80)).into(),
        })
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0, self.prefix_len())
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').ok_or(PrefixError)?;
        let address: IpAddr = address.parse().map_err(|_| PrefixError)?;
        let prefix = Self::from(address);
        let is_exact = prefix.0 == address && length.parse() == Ok(prefix.prefix_len());
        if is_exact { Ok(prefix) } else { Err(PrefixError) }
    }
}

serialize_as_text!(Prefix);
deserialize_from_text!(Prefix);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_convert_to_their_prefix() {
        for (address, network) in [
            ("192.0.2.255", "192.0.2.0/24"),
            ("::ffff:192.0.2.7", "192.0.2.0/24"),
            ("2001:db8:1:2::3", "2001:db8:1::/48"),
        ] {
            let prefix = Prefix::from(address.parse::<IpAddr>().unwrap());
            assert_eq!((prefix.to_string().as_str(), network.parse()), (network, Ok(prefix)));
        }
    }

    #[test]
    fn other_lengths_and_malformed_prefixes_are_rejected() {
        for text in ["", "192.0.2.0", "192.0.2.1/24", "192.0.0.0/16", "2001:db8:1::/64", "::ffff:192.0.2.0/24", "x/24"]
        {
            assert_eq!(text.parse::<Prefix>(), Err(PrefixError), "{text:?}");
        }
    }
}

//! Addresses of clients and targets, and networks.
//!
//! [`ClientAddr`] and [`ServerAddr`] are different types, so that the compiler prevents a relay from swapping them. A
//! [`Target`] keeps a host name unresolved: the hop nearest to the server resolves it.

mod network;
mod private;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

pub use network::{Network, source_prefix};
pub use private::{Nat64Prefix, embedded_ipv4, is_private};

/// Longest host name, in bytes, without the trailing dot (RFC 1035, 2.3.4).
pub const MAX_NAME: usize = 253;

/// The address from which a client connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

/// The address to which a relay connected: that of the target, or of the next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerAddr(pub SocketAddr);

/// A host name that is not yet resolved, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A host name: lower case, no trailing dot, at most [`MAX_NAME`] bytes.
    Name(String),
    /// An address, with IPv4-mapped IPv6 already turned into IPv4.
    Ip(IpAddr),
}

/// The destination that a client requested: host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host, as a name or an address.
    pub host: Host,
    /// TCP port; never 0.
    pub port: u16,
}

/// The text or byte string is not a valid address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// The host is empty, too long, or contains bytes that no host name has.
    #[error("not a host name or address")]
    Host,
    /// The port is missing, zero or above 65535.
    #[error("not a port from 1 to 65535")]
    Port,
    /// The text is not `ADDRESS/PREFIX`, or host bits are set.
    #[error("not a network like 192.0.2.0/24")]
    Network,
}

impl Host {
    /// Parses a name or an address, IPv6 with or without brackets.
    ///
    /// # Errors
    /// [`AddrError::Host`] if the text is neither.
    pub fn parse(text: &str) -> Result<Self, AddrError> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(v6) = bare {
            return v6.parse::<Ipv6Addr>().map(Self::from).map_err(|_| AddrError::Host);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::from(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
        let is_name = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(is_allowed)
            && name.split('.').all(|label| (1..=63).contains(&label.len()));
        // A last label of digits only is a mistyped IPv4 address, never a name (RFC 3696, 2).
        let last_is_number = name.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if !is_name || last_is_number {
            return Err(AddrError::Host);
        }
        Ok(Self::Name(name.to_ascii_lowercase()))
    }
}

impl<T: Into<IpAddr>> From<T> for Host {
    fn from(ip: T) -> Self {
        Self::Ip(ip.into().to_canonical())
    }
}

impl Target {
    /// Joins host and port.
    ///
    /// # Errors
    /// [`AddrError::Port`] for port 0.
    pub fn new(host: Host, port: u16) -> Result<Self, AddrError> {
        if port == 0 {
            return Err(AddrError::Port);
        }
        Ok(Self { host, port })
    }

    /// Parses `HOST:PORT`; the port may be missing if `default_port` is given.
    ///
    /// # Errors
    /// The [`AddrError`] of the invalid part.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, AddrError> {
        let bracket_end = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[bracket_end..].rfind(':') {
            Some(colon) => {
                let port = &text[bracket_end + colon + 1..];
                // `u16::from_str` would accept a sign.
                let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
                let port = port.parse::<u16>().ok().filter(|_| digits).ok_or(AddrError::Port)?;
                (&text[..bracket_end + colon], port)
            }
            None => (text, default_port.ok_or(AddrError::Port)?),
        };
        // `::1` without brackets would be parsed as host `:` and port 1.
        if !host.starts_with('[') && host.contains(':') {
            return Err(AddrError::Host);
        }
        Self::new(Host::parse(host)?, port)
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::from(address.ip()), port: address.port() }
    }
}

impl FromStr for Target {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        Self::parse(text, None)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(v4)) => v4.fmt(f),
            Self::Ip(IpAddr::V6(v6)) => write!(f, "[{v6}]"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serialize_as_text!(Host, Target, ClientAddr, ServerAddr);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn targets_parse_and_display() {
        for (text, shown) in [
            ("Example.COM.:80", "example.com:80"),
            ("192.0.2.1:443", "192.0.2.1:443"),
            ("[2001:db8::1]:8080", "[2001:db8::1]:8080"),
            ("[::ffff:192.0.2.7]:1", "192.0.2.7:1"),
            ("under_score.test:65535", "under_score.test:65535"),
        ] {
            assert_eq!(Target::parse(text, None).unwrap().to_string(), shown, "{text}");
        }
        assert_eq!(Target::parse("example.com", Some(80)).unwrap().port, 80);
    }

    #[test]
    fn malformed_targets_are_rejected() {
        for text in [
            "",
            ":80",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "host:-1",
            "::1:80",
            "a b:1",
            "a..b:1",
            "[::1:80",
            "[::1]80",
            "h/ost:1",
            "1.2.3:4",
            "999.1.1.1:4",
            "a\r\n:1",
            "[host]:1",
        ] {
            assert!(Target::parse(text, None).is_err(), "{text:?} was accepted");
        }
    }

    /// RFC 1035, 2.3.4: 255 octets on the wire are 253 bytes of text; a trailing dot does not count.
    #[test]
    fn names_have_at_most_253_bytes_in_labels_of_at_most_63() {
        let longest = format!("{}a", "a.".repeat(126));
        assert_eq!(longest.len(), 253);
        for text in [longest.clone(), format!("{longest}.")] {
            assert_eq!(Host::parse(&text), Ok(Host::Name(longest.clone())));
        }
        for text in [format!("{longest}a"), format!("{longest}a."), format!("{longest}..")] {
            assert_eq!(Host::parse(&text), Err(AddrError::Host), "{} bytes", text.len());
        }
        assert_eq!(Host::parse(&"a".repeat(63)), Ok(Host::Name("a".repeat(63))));
        assert_eq!(Host::parse(&"a".repeat(64)), Err(AddrError::Host));
    }

    #[test]
    fn network_contains_its_addresses_and_parses_strictly() {
        let net: Network = "203.0.113.0/24".parse().unwrap();
        assert!(net.contains("203.0.113.255".parse().unwrap()));
        assert!(net.contains("::ffff:203.0.113.9".parse().unwrap()));
        assert!(!net.contains("203.0.114.0".parse().unwrap()));
        let all: Network = "::/0".parse().unwrap();
        assert!(all.contains("2001:db8::1".parse().unwrap()));
        assert!(!all.contains("192.0.2.1".parse().unwrap()));
        for bad in ["203.0.113.1/24", "203.0.113.0/33", "x/8", "::1/129", "10.0.0.0/-1", "10.0.0.0/+8"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn private_addresses_are_detected_in_embedded_forms() {
        for ip in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.0.1",
            "198.18.0.1",
            "::1",
            "::",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
            "64:ff9b:1::1",
            // Teredo: with the client 10.0.0.1, then with the server 10.0.0.1.
            "2001:0:808:808::f5ff:fffe",
            "2001:0:a00:1::f7f7:f7f7",
            // ISATAP.
            "2001:db8::5efe:10.0.0.1",
            "2001:db8::200:5efe:127.0.0.1",
            "2001:db8::300:5efe:192.168.1.1",
            // IPv4-translated.
            "::ffff:0:10.0.0.1",
        ] {
            assert!(is_private(ip.parse().unwrap(), &[]), "{ip} passed as public");
        }
        for ip in [
            "192.0.2.1",
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "2001:db8::1",
            "64:ff9b::8.8.8.8",
            "2002:808:808::",
            "2001:0:808:808::f7f7:f7f7",
            "2001:db8::5efe:8.8.8.8",
            "2001:db8::1000:5efe:10.0.0.1",
            "::ffff:0:8.8.8.8",
            "::8.8.8.8",
        ] {
            assert!(!is_private(ip.parse().unwrap(), &[]), "{ip} passed as private");
        }
    }

    /// The addresses of RFC 6052, 2.4, which all contain 192.0.2.33.
    #[test]
    fn nat64_prefix_extracts_the_embedded_ipv4_address() {
        for (prefix, ip) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            let (nat64, ip): (Nat64Prefix, Ipv6Addr) = (prefix.parse().unwrap(), ip.parse().unwrap());
            assert_eq!(nat64.embedded_ipv4(ip), Some(Ipv4Addr::new(192, 0, 2, 33)), "{prefix}");
            assert_eq!(nat64.embedded_ipv4("2001:db9::1".parse().unwrap()), None, "{prefix}");
            assert_eq!(nat64.to_string(), prefix);
        }
        for text in ["64:ff9b::/95", "2001:db8::", "192.0.2.0/32", "2001:db8:0:0:ff00::/96", "2001:db8::1/96", "x"] {
            assert_eq!(text.parse::<Nat64Prefix>(), Err(AddrError::Network), "{text}");
        }
    }

    /// The embedded IPv4 address decides whether a NAT64 address is private, also with a NAT64 prefix of the site.
    #[test]
    fn nat64_addresses_are_as_private_as_the_embedded_ipv4() {
        let nat64 = ["2001:db8:64::/96", "fd00:64::/48", "64:ff9b:1::/96"].map(|text| text.parse().unwrap());
        for (ip, without, with) in [
            ("2001:db8:64::10.0.0.1", false, true),
            ("2001:db8:64::8.8.8.8", false, false),
            ("fd00:64:0:a00:0:100::", true, true),
            ("fd00:64:0:808:8:800::", true, false),
            ("64:ff9b:1::8.8.8.8", true, false),
            ("64:ff9b:1::127.0.0.1", true, true),
            ("64:ff9b:1:1::8.8.8.8", true, true),
        ] {
            let ip = ip.parse().unwrap();
            assert_eq!((is_private(ip, &[]), is_private(ip, &nat64)), (without, with), "{ip}");
        }
    }

    #[test]
    fn source_prefix_is_an_ipv4_address_or_an_ipv6_64() {
        for (client, wanted) in
            [("192.0.2.1", "192.0.2.1"), ("::ffff:192.0.2.1", "192.0.2.1"), ("2001:db8:0:1:2:3:4:5", "2001:db8:0:1::")]
        {
            assert_eq!(source_prefix(client.parse().unwrap()), wanted.parse::<IpAddr>().unwrap(), "{client}");
        }
    }
}

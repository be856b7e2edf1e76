//! Addresses: who asked, what is asked for, and which networks it lies in.
//!
//! [`ClientAddr`] and [`ServerAddr`] are different types because swapping them is the one mistake a relay must not
//! make. A [`Target`] keeps a name as a name: whoever is nearest to the server resolves it.

mod network;
mod private;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

pub use network::{Network, source_prefix};
pub use private::{Nat64Prefix, embedded_ipv4, is_private};

/// Longest host name, in bytes, without the trailing dot (RFC 1035, 2.3.4).
pub const MAX_NAME: usize = 253;

/// The address a client connects from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddr(pub SocketAddr);

/// The address a relay dialled: of the target itself, or of the next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerAddr(pub SocketAddr);

/// A name still to be resolved, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A host name: lower case, no trailing dot, at most [`MAX_NAME`] bytes.
    Name(String),
    /// An address, with IPv4-mapped IPv6 already turned into IPv4.
    Ip(IpAddr),
}

/// Where a client wants to go: host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host, as a name or an address.
    pub host: Host,
    /// TCP port; never 0.
    pub port: u16,
}

/// Why a text or a byte string is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// Empty, too long, or with bytes that no host name has.
    #[error("not a host name or address")]
    Host,
    /// Missing, zero or above 65535.
    #[error("not a port from 1 to 65535")]
    Port,
    /// Not `ADDRESS/PREFIX`, or host bits are set.
    #[error("not a network like 192.0.2.0/24")]
    Network,
}

impl Host {
    /// Parses a name or an address, IPv6 with or without brackets.
    ///
    /// # Errors
    /// [`AddrError::Host`] for other text.
    pub fn parse(text: &str) -> Result<Self, AddrError> {
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        if let Some(v6) = bare {
            return v6.parse::<Ipv6Addr>().map(Self::from).map_err(|_| AddrError::Host);
        }
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::from(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
        let shaped = !name.is_empty()
            && name.len() <= MAX_NAME
            && name.bytes().all(known)
            && name.split('.').all(|label| (1..=63).contains(&label.len()));
        // A last label of digits only is a mistyped IPv4 address, never a name (RFC 3696, 2).
        let last_is_number = name.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if !shaped || last_is_number {
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

    /// Reads `HOST:PORT`; the port may be missing where `default_port` is given.
    ///
    /// # Errors
    /// [`AddrError`] by the part that is wrong.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, AddrError> {
        let bracket_end = text.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match text[bracket_end..].rfind(':') {
            Some(colon) => {
                let port = &text[bracket_end + colon + 1..];
                // `u16::from_str` would take a sign.
                let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
                let port = port.parse::<u16>().ok().filter(|_| digits).ok_or(AddrError::Port)?;
                (&text[..bracket_end + colon], port)
            }
            None => (text, default_port.ok_or(AddrError::Port)?),
        };
        // `::1` without brackets would read as host `:` and port 1.
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
mod tests;

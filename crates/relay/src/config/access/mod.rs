//! Which targets may be reached: patterns of names, networks and ports, and the decision they lead to.
//!
//! The decision is made after name resolution, for the name that was asked for and the address that would be dialled.
//! Where a hop resolves the name, only the name can be judged. A name in `deny` does not stop a client that asks for
//! its address: what must never be reached is denied by network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ekiden_proto::addr::{AddrError, Host, Network, embedded_ipv4, is_private};
use ekiden_sys::transparent::is_local;

use super::{AccessRules, HostPattern, TargetPattern};

/// Why a target may not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A pattern of `deny` matches.
    #[error("the target is on the deny list")]
    Listed,
    /// There is an `allow`, and none of its patterns matches.
    #[error("the target is not on the allow list")]
    Unlisted,
    /// A private address, or one of this host, without `allow_private`.
    #[error("the target's address is private")]
    Private,
}

/// All the rules that a session is under: those of its listener, and those of the relay it came from.
#[derive(Debug, Clone, Copy)]
pub struct AccessPolicy<'a> {
    /// The listener's.
    pub listener: &'a AccessRules,
    /// The peer's, at a section listener.
    pub peer: Option<&'a AccessRules>,
}

impl AccessPolicy<'_> {
    /// Whether all of them permit it; see [`AccessRules::permits`].
    #[must_use]
    pub fn permits(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        self.judge(host, address, port).is_ok()
    }

    /// The same, with the reason.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, host: &Host, address: Option<IpAddr>, port: u16) -> Result<(), Denied> {
        self.listener.judge(host, address, port)?;
        self.peer.map_or(Ok(()), |peer| peer.judge(host, address, port))
    }
}

impl AccessRules {
    /// Whether a session may go on to `host` at `address` (`None` when a hop is to resolve the name) and `port`.
    ///
    /// [`AccessRules::judge`] says what counts.
    #[must_use]
    pub fn permits(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        self.judge(host, address, port).is_ok()
    }

    /// The same, with the reason.
    ///
    /// A name or network in `allow` also lifts the ban on private addresses. `*` and networks of everything do not:
    /// `allow = ["*:443"]` is about ports, and must not open this host's own services.
    ///
    /// The addresses of this host count as private: the firewall of the host does not see a connection from the host to
    /// itself. The kernel is asked each time, because addresses come and go while the relay runs.
    ///
    /// # Errors
    /// Why not.
    pub fn judge(&self, host: &Host, address: Option<IpAddr>, port: u16) -> Result<(), Denied> {
        let address = match host {
            Host::Ip(ip) => address.or(Some(*ip)),
            Host::Name(_) => address,
        };
        let matching = |pattern: &&TargetPattern| pattern.matches(host, address, port);
        if self.deny.iter().any(|pattern| matching(&pattern)) {
            return Err(Denied::Listed);
        }
        let allowed: Vec<_> = self.allow.iter().filter(matching).collect();
        if allowed.is_empty() && !self.allow.is_empty() {
            return Err(Denied::Unlisted);
        }
        let named = allowed.iter().any(|pattern| !pattern.is_any_host());
        let may_be_private = self.allow_private || named;
        if !may_be_private && address.is_some_and(|address| self.is_private(address)) {
            return Err(Denied::Private);
        }
        Ok(())
    }

    /// Whether a client must not hear that a name resolves to `address`: the address is private, and private addresses are
    /// not for clients of this listener.
    #[must_use]
    pub fn conceals(&self, address: IpAddr) -> bool {
        !self.allow_private && self.is_private(address)
    }

    /// Whether `address`, or an IPv4 address that it contains, is private or one of this host. An address that the kernel
    /// does not answer for counts as one of this host.
    fn is_private(&self, address: IpAddr) -> bool {
        let is_own = |address: IpAddr| is_local(address).unwrap_or(true);
        is_private(address, &self.nat64)
            || is_own(address)
            || embedded_ipv4(address, &self.nat64).any(|v4| is_own(v4.into()))
    }
}

impl TargetPattern {
    /// Whether `host`, which resolved to `address` (`None` when not resolved here), at `port` is one of these targets.
    #[must_use]
    pub fn matches(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        let name = match host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        let host_fits = match &self.hosts {
            HostPattern::Any => true,
            HostPattern::Name(one) => name == Some(one),
            HostPattern::Subdomains(domain) => {
                name.is_some_and(|name| name.len() > domain.len() && name.ends_with(domain))
            }
            HostPattern::Network(network) => address.is_some_and(|address| network.contains(address)),
        };
        host_fits && self.port.is_none_or(|only| only == port)
    }

    /// Whether it leaves the host open: `*`, or a network of all addresses.
    fn is_any_host(&self) -> bool {
        let whole = |network: &Network, first: IpAddr, last: IpAddr| network.contains(first) && network.contains(last);
        match &self.hosts {
            HostPattern::Any => true,
            HostPattern::Network(network) => {
                whole(network, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
                    || whole(network, Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into())
            }
            HostPattern::Name(_) | HostPattern::Subdomains(_) => false,
        }
    }
}

impl FromStr for TargetPattern {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        // `2001:db8::/32` ends in something that looks like a port; with one, an IPv6 network has brackets.
        if let Ok(network) = parse_network(text) {
            return Ok(Self { hosts: HostPattern::Network(network), port: None });
        }
        let (hosts, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((inside, after)) => {
                (HostPattern::Network(parse_bracketed(inside)?), after.strip_prefix(':').ok_or(after))
            }
            None => match text.split_once(':') {
                Some((hosts, port)) => (hosts.parse()?, Ok(port)),
                None => (text.parse()?, Err("")),
            },
        };
        let port = match port {
            Ok(digits) => Some(parse_port(digits)?),
            Err("") => None,
            Err(_) => return Err(AddrError::Port),
        };
        Ok(Self { hosts, port })
    }
}

fn parse_bracketed(text: &str) -> Result<Network, AddrError> {
    if text.contains(':') { parse_network(text) } else { Err(AddrError::Network) }
}

/// Reads a network, but not of IPv4-mapped addresses: those count as IPv4, and such a pattern would match nothing.
pub(super) fn parse_network(text: &str) -> Result<Network, AddrError> {
    let network: Network = text.parse()?;
    // Only a mapped address is shown with both.
    let mapped = text.contains(':') && network.to_string().contains('.');
    if mapped { Err(AddrError::Network) } else { Ok(network) }
}

fn parse_port(digits: &str) -> Result<u16, AddrError> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|port| plain && *port != 0).ok_or(AddrError::Port)
}

impl FromStr for HostPattern {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        if text.contains('/') {
            return parse_network(text).map(Self::Network);
        }
        let (under, name) = text.strip_prefix("*.").map_or((false, text), |domain| (true, domain));
        match Host::parse(name)? {
            Host::Name(name) if under => Ok(Self::Subdomains(format!(".{name}"))),
            Host::Name(name) => Ok(Self::Name(name)),
            Host::Ip(_) if under => Err(AddrError::Host),
            Host::Ip(ip) => parse_network(&ip.to_string()).map(Self::Network),
        }
    }
}

impl fmt::Display for TargetPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = match &self.hosts {
            HostPattern::Any => "*".to_owned(),
            HostPattern::Name(name) => name.clone(),
            HostPattern::Subdomains(domain) => format!("*{domain}"),
            HostPattern::Network(network) => network.to_string(),
        };
        match self.port {
            Some(port) if hosts.contains(':') => write!(f, "[{hosts}]:{port}"),
            Some(port) => write!(f, "{hosts}:{port}"),
            None => f.write_str(&hosts),
        }
    }
}

#[cfg(test)]
mod tests;

//! Access rules for targets: patterns of names, networks and ports, and their evaluation.
//!
//! The rules are evaluated after name resolution, for the requested name and the address to dial. If a hop resolves the
//! name, only the name can be checked. A name in `deny` does not stop a client that requests the address instead: to
//! block a host reliably, deny its network.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ekiden_proto::addr::{AddrError, Host, Network, embedded_ipv4, is_private};
use ekiden_sys::transparent::is_local;

use super::{AccessRules, HostPattern, TargetPattern};

/// Why a target is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// A pattern of `deny` matches.
    #[error("the target is on the deny list")]
    Listed,
    /// `allow` is not empty, and none of its patterns matches.
    #[error("the target is not on the allow list")]
    Unlisted,
    /// A private address or an address of this host, without `allow_private`.
    #[error("the target's address is private")]
    Private,
}

/// All access rules of a session: those of its listener, and those of the relay that opened it.
#[derive(Debug, Clone, Copy)]
pub struct AccessPolicy<'a> {
    /// The rules of the listener.
    pub listener: &'a AccessRules,
    /// The rules of the peer, at a section listener.
    pub peer: Option<&'a AccessRules>,
}

impl AccessPolicy<'_> {
    /// Whether all rules permit the target; see [`AccessRules::permits`].
    #[must_use]
    pub fn permits(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        self.judge(host, address, port).is_ok()
    }

    /// Like `permits`, but returns the reason of a refusal.
    ///
    /// # Errors
    /// The rule that refuses the target.
    pub fn judge(&self, host: &Host, address: Option<IpAddr>, port: u16) -> Result<(), Denied> {
        self.listener.judge(host, address, port)?;
        self.peer.map_or(Ok(()), |peer| peer.judge(host, address, port))
    }
}

impl AccessRules {
    /// Whether a session may connect to `host` at `address` (`None` when a hop resolves the name) and `port`. See
    /// [`AccessRules::judge`] for the order of the rules.
    #[must_use]
    pub fn permits(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        self.judge(host, address, port).is_ok()
    }

    /// Like `permits`, but returns the reason of a refusal.
    ///
    /// A name or network in `allow` also permits private addresses. `*` and networks of all addresses do not: `allow =
    /// ["*:443"]` restricts ports, and must not give access to the services of this host.
    ///
    /// The addresses of this host count as private, because its firewall does not filter connections from the host to
    /// itself. The kernel is queried each time, because addresses change while the relay runs.
    ///
    /// # Errors
    /// The rule that refuses the target.
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
        let names_host = allowed.iter().any(|pattern| !pattern.is_any_host());
        let may_be_private = self.allow_private || names_host;
        if !may_be_private && address.is_some_and(|address| self.is_private(address)) {
            return Err(Denied::Private);
        }
        Ok(())
    }

    /// Whether the resolved address must not be revealed to clients: the address is private, and the listener does not
    /// permit private addresses.
    #[must_use]
    pub fn conceals(&self, address: IpAddr) -> bool {
        !self.allow_private && self.is_private(address)
    }

    /// Whether `address`, or an IPv4 address embedded in it, is private or an address of this host. If the kernel
    /// cannot answer, the address counts as one of this host.
    fn is_private(&self, address: IpAddr) -> bool {
        let is_own = |address: IpAddr| is_local(address).unwrap_or(true);
        is_private(address, &self.nat64)
            || is_own(address)
            || embedded_ipv4(address, &self.nat64).any(|v4| is_own(v4.into()))
    }
}

impl TargetPattern {
    /// Whether the pattern matches `port` and either `host` or `address`, to which the name was resolved (`None` when
    /// not resolved here).
    #[must_use]
    pub fn matches(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        let name = match host {
            Host::Name(name) => Some(name.as_str()),
            Host::Ip(_) => None,
        };
        let host_fits = match &self.hosts {
            HostPattern::Any => true,
            HostPattern::Name(pattern_name) => name == Some(pattern_name),
            HostPattern::Subdomains(domain) => {
                name.is_some_and(|name| name.len() > domain.len() && name.ends_with(domain))
            }
            HostPattern::Network(network) => address.is_some_and(|address| network.contains(address)),
        };
        host_fits && self.port.is_none_or(|only| only == port)
    }

    /// Whether the pattern does not restrict the host: `*`, or a network of all addresses.
    fn is_any_host(&self) -> bool {
        let covers = |network: &Network, first: IpAddr, last: IpAddr| network.contains(first) && network.contains(last);
        match &self.hosts {
            HostPattern::Any => true,
            HostPattern::Network(network) => {
                covers(network, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into())
                    || covers(network, Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into())
            }
            HostPattern::Name(_) | HostPattern::Subdomains(_) => false,
        }
    }
}

impl FromStr for TargetPattern {
    type Err = AddrError;
    fn from_str(text: &str) -> Result<Self, AddrError> {
        // Tried first, because the end of `2001:db8::/32` looks like a port. An IPv6 network with a port has brackets.
        if let Ok(network) = parse_network(text) {
            return Ok(Self { hosts: HostPattern::Network(network), port: None });
        }
        let (hosts, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((bracketed, suffix)) => {
                (HostPattern::Network(parse_bracketed(bracketed)?), suffix.strip_prefix(':').ok_or(suffix))
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

/// Parses a network, except one of IPv4-mapped addresses: those are treated as IPv4, so the pattern would match
/// nothing.
pub(super) fn parse_network(text: &str) -> Result<Network, AddrError> {
    let network: Network = text.parse()?;
    // Only a mapped address is printed with both.
    let mapped = text.contains(':') && network.to_string().contains('.');
    if mapped { Err(AddrError::Network) } else { Ok(network) }
}

fn parse_port(digits: &str) -> Result<u16, AddrError> {
    let is_decimal = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|port| is_decimal && *port != 0).ok_or(AddrError::Port)
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
        let (is_subdomain, name) = text.strip_prefix("*.").map_or((false, text), |domain| (true, domain));
        match Host::parse(name)? {
            Host::Name(name) if is_subdomain => Ok(Self::Subdomains(format!(".{name}"))),
            Host::Name(name) => Ok(Self::Name(name)),
            Host::Ip(_) if is_subdomain => Err(AddrError::Host),
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
mod tests {
    use super::*;

    fn pattern(text: &str) -> TargetPattern {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn list(texts: &[&str]) -> Vec<TargetPattern> {
        texts.iter().map(|text| pattern(text)).collect()
    }

    #[test]
    fn patterns_are_parsed_and_printed_canonically() {
        for (text, shown) in [
            ("*", "*"),
            ("*:25", "*:25"),
            ("Example.COM", "example.com"),
            ("example.com:443", "example.com:443"),
            ("*.example.com", "*.example.com"),
            ("*.Example.com:8443", "*.example.com:8443"),
            ("203.0.113.0/24", "203.0.113.0/24"),
            ("203.0.113.0/24:80", "203.0.113.0/24:80"),
            ("203.0.113.7", "203.0.113.7/32"),
            ("203.0.113.7:80", "203.0.113.7/32:80"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("[2001:db8::/32]", "2001:db8::/32"),
            ("[2001:db8::/32]:443", "[2001:db8::/32]:443"),
            ("[::1]:443", "[::1/128]:443"),
        ] {
            assert_eq!(pattern(text).to_string(), shown);
            assert_eq!(pattern(shown), pattern(text));
        }
    }

    #[test]
    fn broken_patterns_are_refused() {
        for text in [
            "",
            ":80",
            "*.",
            "**",
            "*:",
            "*:0",
            "*:65536",
            "*:+1",
            "a b",
            "*.1.2.3.4",
            "203.0.113.1/24",
            "203.0.113.0/33",
            "2001:db8::/32:443",
            "[2001:db8::/32]443",
            "[example.com]:1",
            "[1.2.3.4]:1",
            "[::1",
            "::ffff:10.0.0.0/104",
            "[::ffff:a00:1]:1",
            "http://x",
            "ex*mple.com",
        ] {
            assert!(text.parse::<TargetPattern>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn patterns_match_names_networks_and_ports() {
        let name = |text| Host::parse(text).unwrap();
        for (text, host, address, port, fits) in [
            ("*", "example.com", None, 1, true),
            ("*:25", "example.com", None, 25, true),
            ("*:25", "example.com", None, 26, false),
            ("example.com", "example.com", None, 1, true),
            ("example.com", "www.example.com", None, 1, false),
            ("*.example.com", "www.example.com", None, 1, true),
            ("*.example.com", "example.com", None, 1, false),
            ("*.example.com", "badexample.com", None, 1, false),
            ("203.0.113.0/24", "example.com", Some("203.0.113.9"), 1, true),
            ("203.0.113.0/24", "example.com", Some("::ffff:203.0.113.9"), 1, true),
            ("203.0.113.0/24", "example.com", None, 1, false),
            ("203.0.113.0/24:80", "example.com", Some("203.0.113.9"), 81, false),
        ] {
            let address = address.map(|text: &str| text.parse().unwrap());
            assert_eq!(pattern(text).matches(&name(host), address, port), fits, "{text} {host} {address:?} {port}");
        }
    }

    #[test]
    fn deny_beats_allow_and_allow_beats_private() {
        let open = |allow: &[&str], deny: &[&str]| AccessRules {
            allow: list(allow),
            deny: list(deny),
            ..AccessRules::default()
        };
        for (access, host, address, port, verdict) in [
            (open(&[], &[]), "example.com", "192.0.2.1", 80, Ok(())),
            (open(&[], &[]), "example.com", "127.0.0.1", 80, Err(Denied::Private)),
            (open(&[], &["*:80"]), "example.com", "192.0.2.1", 80, Err(Denied::Listed)),
            (open(&["example.com"], &["192.0.2.0/24"]), "example.com", "192.0.2.1", 80, Err(Denied::Listed)),
            (open(&["example.com"], &[]), "example.org", "192.0.2.1", 80, Err(Denied::Unlisted)),
            (open(&["example.com"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
            (open(&["10.0.0.0/8"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
            (open(&["*:80"], &[]), "example.com", "169.254.169.254", 80, Err(Denied::Private)),
            (open(&["0.0.0.0/0"], &[]), "example.com", "10.0.0.1", 80, Err(Denied::Private)),
            (open(&["::/0"], &[]), "example.com", "::1", 80, Err(Denied::Private)),
            (open(&["*", "10.0.0.0/8"], &[]), "example.com", "10.0.0.1", 80, Ok(())),
        ] {
            let host = Host::parse(host).unwrap();
            assert_eq!(
                access.judge(&host, Some(address.parse().unwrap()), port),
                verdict,
                "{access:?} {host} {address}"
            );
        }
        let literal = Host::parse("127.0.0.1").unwrap();
        assert_eq!(AccessRules::default().judge(&literal, None, 1), Err(Denied::Private));
        assert_eq!(AccessRules { allow_private: true, ..AccessRules::default() }.judge(&literal, None, 1), Ok(()));
    }

    #[test]
    fn private_addresses_are_recognised_behind_configured_nat64() {
        let access = AccessRules { nat64: ["2001:db8:64::/96".parse().unwrap()].into(), ..AccessRules::default() };
        for (ip, verdict) in [
            ("2001:db8:64::10.0.0.1", Err(Denied::Private)),
            ("2001:db8:64::192.0.2.1", Ok(())),
            ("2001:db8:65::10.0.0.1", Ok(())),
        ] {
            assert_eq!(access.judge(&Host::parse(ip).unwrap(), None, 80), verdict, "{ip}");
        }
    }
}

//! The matches and statements of nftables rules.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::config::{HostPattern, Listener, TargetPattern};
use crate::rules::{Family, OWN_PROGRAMS, interfaces, marks};

/// The UDP port of HTTP/3, which is QUIC.
pub(super) const QUIC_PORT: u16 = 443;

/// Returns a match of packets with this mark.
pub(super) fn is(mark: u32) -> String {
    format!("meta mark & {:#010x} == {mark:#010x}", marks::MASK)
}

/// Returns the statement that sets this mark and keeps the bits of other programs.
pub(super) fn mark(mark: u32) -> String {
    format!("meta mark set meta mark & {:#010x} | {mark:#010x}", !marks::MASK)
}

/// Returns the interfaces on which a listener intercepts packets of other hosts, as an nftables set.
pub(super) fn others(listener: &Listener) -> String {
    let names: BTreeSet<_> = interfaces(listener).filter(|name| *name != OWN_PROGRAMS).collect();
    set(names.into_iter())
}

/// Returns an nftables set of names.
pub(in crate::rules) fn set<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

/// Returns matches of a listener's clients, one for each rule. The networks are in no set, because they may overlap,
/// and elements of a set must not.
pub(super) fn sources(listener: &Listener) -> Vec<String> {
    let clients = listener.capture.iter().flat_map(|capture| &capture.clients);
    let networks: Vec<_> = clients.map(ToString::to_string).collect();
    let families = Family::of(listener.bind);
    let family_matches = |family: Family| {
        let selected = networks.iter().filter(move |network| network.contains(':') == (family == Family::Ipv6));
        selected.map(move |network| format!("{} saddr {network} ", family.word()))
    };
    match families {
        _ if !networks.is_empty() => families.iter().flat_map(|family| family_matches(*family)).collect(),
        [Family::Ipv4] => vec!["meta nfproto ipv4 ".to_owned()],
        [Family::Ipv6] => vec!["meta nfproto ipv6 ".to_owned()],
        _ => vec![String::new()],
    }
}

/// Returns a match of TCP packets to these targets.
pub(super) fn matching(target: &TargetPattern) -> String {
    let port = target.port.map(|port| format!("tcp dport {port} "));
    networks(target) + &port.unwrap_or_default()
}

/// Returns a match of QUIC packets to these targets; `None` if the port of the targets is not that of QUIC.
pub(super) fn matching_quic(target: &TargetPattern) -> Option<String> {
    target.port.is_none_or(|port| port == QUIC_PORT).then(|| networks(target))
}

/// Returns a match of the networks of targets. The configuration accepts no host names here, because packets carry
/// none.
fn networks(target: &TargetPattern) -> String {
    let mut text = String::new();
    if let HostPattern::Network(network) = &target.hosts {
        let network = network.to_string();
        let family = if network.contains(':') { Family::Ipv6 } else { Family::Ipv4 };
        text += &format!("{} daddr {network} ", family.word());
    }
    text
}

/// Returns the destination of the TPROXY statement for a listener.
pub(super) fn place(listener: &Listener) -> String {
    let port = listener.bind.port();
    match listener.bind.ip().to_canonical() {
        ip if ip.is_unspecified() => format!("to :{port}"),
        IpAddr::V4(ip) => format!("ip to {ip}:{port}"),
        IpAddr::V6(ip) => format!("ip6 to [{ip}]:{port}"),
    }
}

/// Returns the address translation statement for a listener.
pub(super) fn translation(listener: &Listener) -> String {
    let port = listener.bind.port();
    match listener.bind.ip().to_canonical() {
        ip if ip.is_unspecified() => format!("redirect to :{port}"),
        IpAddr::V4(ip) => format!("dnat ip to {ip}:{port}"),
        IpAddr::V6(ip) => format!("dnat ip6 to [{ip}]:{port}"),
    }
}

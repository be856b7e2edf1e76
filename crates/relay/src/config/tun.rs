//! A tunnel: its device, the networks behind it, and the check that no path leads back into the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ekiden_proto::addr::{Host, Network};

use super::capture::InterfaceName;
use super::error::FoundValue;
use super::place::KeyLocation;
use super::reader::TableReader;
use super::value::{ConfigValue, TomlType};
use super::{Config, HostPattern, Listener, ListenerKind, Route, TargetPattern};

/// The first port of tunnels without a `bind`; further tunnels use the following ports.
pub(super) const FIRST_PORT: u16 = 7100;

/// A TUN device and the networks behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunConfig {
    /// Name of the network interface.
    pub device: String,
    /// The networks behind the tunnel.
    pub nets: Vec<Network>,
    /// Maximum size of packets that the host sends into the device, in bytes.
    pub mtu: u32,
    /// The source address for connections of this host's own programs into the tunnel; `None` if the kernel chooses it.
    pub source: Option<IpAddr>,
    /// Whether this relay has no path to the networks, and only answers packets from them.
    pub answer_only: bool,
}

impl TunConfig {
    /// Returns the default address for intercepted connections: the loopback address of the networks' family, or the
    /// wildcard address if there are networks of both families.
    pub(super) fn default_bind(&self, place: u16) -> SocketAddr {
        let port = FIRST_PORT + place;
        let (v4, v6) = self.families();
        match (v4, v6) {
            (_, false) => (Ipv4Addr::LOCALHOST, port).into(),
            (false, true) => (Ipv6Addr::LOCALHOST, port).into(),
            (true, true) => (Ipv6Addr::UNSPECIFIED, port).into(),
        }
    }

    /// Whether there are networks of IPv4 and of IPv6.
    fn families(&self) -> (bool, bool) {
        let has = |v4| self.nets.iter().any(|net| net.address().is_ipv4() == v4);
        (has(true), has(false))
    }

    /// Whether a listener at `bind` can accept connections to all networks of the tunnel.
    fn accepts_bind(&self, bind: SocketAddr) -> bool {
        match self.families() {
            (true, true) => bind.is_ipv6() && bind.ip().is_unspecified(),
            (true, false) => bind.ip().to_canonical().is_ipv4() || bind.ip().is_unspecified(),
            _ => bind.is_ipv6(),
        }
    }
}

/// Reads the tunnel options, which only `tun` listeners have.
pub(super) fn read(reader: &TableReader<'_>, kind: Option<ListenerKind>, others: &[TunConfig]) -> Option<TunConfig> {
    if kind? != ListenerKind::Tun {
        let keys = ["device", "net", "mtu", "source", "answer_only"].into_iter().filter(|key| reader.has(key));
        keys.for_each(|key| reader.error(key, "this key only with kind = \"tun\""));
        return None;
    }
    let device = reader.required("device").map(|InterfaceName(name)| name);
    if others.iter().any(|other| Some(&other.device) == device.as_ref()) {
        reader.error("device", "a device that no other tunnel uses");
    }
    let nets: Vec<Network> = reader.non_empty_list("net").into_iter().map(|(_, net)| net).collect();
    if nets.iter().enumerate().any(|(at, net)| nets[..at].iter().any(|before| before.overlaps(net))) {
        reader.error("net", "networks that do not overlap");
    }
    let theirs = |net: &Network| others.iter().find(|other| other.nets.iter().any(|taken| taken.overlaps(net)));
    if let Some(other) = nets.iter().find_map(theirs) {
        reader.error(
            "net",
            format!("networks that do not overlap those of {}: a network can be behind one device only", other.device),
        );
    }
    let Mtu(mtu) = reader.optional_or("mtu", Mtu(1500));
    if mtu < 1280 && nets.iter().any(|net| net.address().is_ipv6()) {
        reader.error("mtu", "at least 1280 bytes, which IPv6 requires (RFC 8200, 5)");
    }
    let source = reader.optional("source");
    let answer_only = reader.optional_or("answer_only", false);
    (!nets.is_empty()).then_some(TunConfig { device: device?, nets, mtu, source, answer_only })
}

/// Returns the permitted targets of a tunnel's listener: the networks behind the device.
pub(super) fn read_allow(reader: &TableReader<'_>, tun: Option<&TunConfig>) -> Vec<TargetPattern> {
    if reader.has("allow") {
        reader.error("allow", "no allow: net lists the networks behind the device, and deny excludes targets in them");
    }
    let nets = tun.into_iter().flat_map(|tun| &tun.nets);
    nets.map(|net| TargetPattern { hosts: HostPattern::Network(*net), port: None }).collect()
}

/// Checks the address at which intercepted connections of a tunnel are accepted.
pub(super) fn check_bind(reader: &TableReader<'_>, tun: &TunConfig, bind: SocketAddr) {
    if !tun.accepts_bind(bind) {
        reader.error(
            "bind",
            "an address of the family of net, or [::] for both families; without bind, ekiden chooses one",
        );
    }
}

/// Reports tunnels whose own sections would be routed into them.
pub(super) fn check_loops(config: &Config, place: &KeyLocation<'_>) {
    for (_, tun) in config.tunnels() {
        for net in &tun.nets {
            let without_relay = || direct_route_error(config, net).filter(|_| !tun.answer_only);
            if let Some(why) = without_relay().or_else(|| inner_hop_error(config, net)) {
                place.child("net", None).error(FoundValue::Value(format!("\"{net}\"")), why);
            }
        }
    }
}

/// Returns why sessions to `net` cannot be forwarded: their path is direct, so that connections would enter the tunnel
/// again.
fn direct_route_error(config: &Config, net: &Network) -> Option<String> {
    config.routes_into(*net).find(|route| route.paths.iter().all(|path| path.is_direct())).map(|_| {
        format!(
            "a path to {net} through another relay, because direct connections would enter the tunnel again: add a \
             [[route]] with to = [\"{net}\"] and the path to the relay there, or set forward for all targets; or set \
             answer_only = true if this relay cannot connect to that relay"
        )
    })
}

/// Returns why sections would enter the tunnel that they carry: the first hop of a path is in `net`.
fn inner_hop_error(config: &Config, net: &Network) -> Option<String> {
    let first_hops = config.paths().into_iter().filter_map(|path| path.hops.first()).flat_map(|hop| hop.members());
    let is_in_net = |host: &Host| matches!(host, Host::Ip(ip) if net.contains(*ip));
    let hop = first_hops.into_iter().find(|hop| is_in_net(&hop.address.host))?;
    Some(format!(
        "networks that do not contain the next relay: {} is at {}, and its section would enter its own tunnel",
        hop, hop.address
    ))
}

impl Config {
    /// Returns the tunnels with their listeners.
    pub fn tunnels(&self) -> impl Iterator<Item = (&Arc<Listener>, &TunConfig)> {
        self.listeners.iter().filter_map(|listener| Some((listener, listener.tun.as_ref()?)))
    }

    /// Returns the routes that may apply to addresses in `net`.
    pub fn routes_into(&self, net: Network) -> impl Iterator<Item = &Route> {
        let mut decided = false;
        self.routes.iter().filter(move |route| {
            let was_decided = decided;
            let takes_all = route.takes_all();
            decided |= takes_all
                || route.to.iter().any(|pattern| matches_all_of(pattern, &net))
                || route.lists.iter().any(|list| list.covers(&net));
            let can_match = || {
                route.to.iter().any(|pattern| can_match(pattern, &net))
                    || route.lists.iter().any(|list| list.overlaps(&net))
            };
            !was_decided && (takes_all || can_match())
        })
    }
}

fn can_match(pattern: &TargetPattern, net: &Network) -> bool {
    match &pattern.hosts {
        HostPattern::Any => true,
        HostPattern::Network(network) => network.overlaps(net),
        HostPattern::Name(_) | HostPattern::Subdomains(_) => false,
    }
}

fn matches_all_of(pattern: &TargetPattern, net: &Network) -> bool {
    let hosts = match &pattern.hosts {
        HostPattern::Any => true,
        HostPattern::Network(network) => network.covers(net),
        HostPattern::Name(_) | HostPattern::Subdomains(_) => false,
    };
    hosts && pattern.port.is_none()
}

/// The MTU of an interface, in bytes.
struct Mtu(u32);

impl ConfigValue for Mtu {
    const EXPECTED: &'static str = "a number of bytes from 576 to 65535, like 1500";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|mtu| (576..=65_535).contains(mtu)).map(Self).ok_or(Self::EXPECTED)
    }
}

impl ConfigValue for IpAddr {
    const EXPECTED: &'static str = "an address of this host like \"192.168.1.1\"";
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
}

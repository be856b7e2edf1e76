//! The traffic that transparent listeners intercept, and `[transparent]`.

use std::net::SocketAddr;
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_sys::route::has_interface;

use super::error::FoundValue;
use super::place::KeyLocation;
use super::reader::TableReader;
use super::value::{ConfigValue, TomlType};
use super::{AccessRules, HostPattern, Listener, ListenerKind, TargetPattern, TunConfig};
use crate::rules::Marks;

/// When a client gets the response that it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectMode {
    /// The first packet of the connection is held until the target has answered, so TCP itself gives the response.
    Hold,
    /// After the target has answered, if the client's protocol has such a response. No data of the client is forwarded
    /// before.
    Strict,
    /// Before the target is dialled.
    Early,
}

/// The connections that a transparent listener intercepts. Its access rules determine the targets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureConfig {
    /// The interfaces on which the connections arrive; at least one.
    pub interfaces: Vec<String>,
    /// The source networks of clients; empty for all clients.
    pub clients: Vec<Network>,
    /// The policy for QUIC packets from these clients to these targets.
    pub quic: QuicPolicy,
    /// Whether routes may match the server name in the first bytes of a client.
    pub server_names: bool,
}

/// The policy for UDP packets to port 443, which carry QUIC: HTTP/3 would bypass a TCP relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QuicPolicy {
    /// The kernel forwards and counts the packets.
    #[default]
    Pass,
    /// The kernel rejects the packets with "port unreachable", so that clients use TCP.
    Refuse,
}

/// Settings of the interception of transparent connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransparentConfig {
    /// Whether the relay or the operator manages the kernel rules.
    pub rules: RuleManagement,
    /// Number of this daemon among several on this host, 1 to 15.
    pub instance: u8,
}

/// The party that adds the kernel rules and removes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleManagement {
    /// The relay installs the rules, and removes them when it ends.
    Managed,
    /// The operator installs the rules with `ekiden rules`.
    Manual,
}

/// Reads the table `[transparent]`.
pub(super) fn read_transparent(table: TableReader<'_>) -> TransparentConfig {
    let rules = table.optional_or("rules", RuleManagement::Managed);
    let InstanceNumber(instance) = table.optional_or("instance", InstanceNumber(1));
    table.finish();
    TransparentConfig { rules, instance }
}

/// Reads the interception options of a listener, which only transparent listeners have.
pub(super) fn read(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    bind: Option<SocketAddr>,
    tun: Option<&TunConfig>,
    access: &AccessRules,
) -> Option<CaptureConfig> {
    if !kind?.is_transparent() {
        let keys = ["interfaces", "clients", "quic", "server_names"].into_iter().filter(|key| reader.has(key));
        keys.for_each(|key| reader.error(key, "this key only with kind = \"tproxy\" or \"redirect\""));
        return None;
    }
    let interfaces = read_interfaces(reader, kind?, tun);
    let clients = reader.list("clients");
    if kind == Some(ListenerKind::Tun) && reader.has("quic") {
        reader.error("quic", r#"this key only with kind = "tproxy" or "redirect": a tunnel carries UDP"#);
    }
    let quic = reader.optional_or("quic", QuicPolicy::default());
    let server_names = reader.optional_or("server_names", false);
    if server_names && (!reader.has("connect") || reader.has_text("connect", "hold")) {
        let expected = r#"connect = "strict" or "early" in the same listener: with "hold" the relay dials the server before the client sends a name"#;
        reader.error("server_names", expected);
    }
    let own_programs = interfaces.iter().any(|name| name == "lo");
    if own_programs && kind == Some(ListenerKind::Tproxy) {
        reader.error(
            "interfaces",
            "interfaces other than lo: only redirect catches connections of this host's own programs",
        );
    }
    if let Some(bind) = bind {
        check_bind(reader, kind?, bind, interfaces.iter().all(|name| name == "lo"));
    }
    for (key, patterns) in [("allow", &access.allow), ("deny", &access.deny)] {
        if patterns
            .iter()
            .any(|pattern: &TargetPattern| matches!(pattern.hosts, HostPattern::Name(_) | HostPattern::Subdomains(_)))
        {
            reader.error(key, "networks and ports only: packets contain addresses, not names");
        }
    }
    Some(CaptureConfig { interfaces, clients, quic, server_names })
}

/// Reads the interfaces on which intercepted connections arrive.
fn read_interfaces(reader: &TableReader<'_>, kind: ListenerKind, tun: Option<&TunConfig>) -> Vec<String> {
    if kind != ListenerKind::Tun {
        let interfaces: Vec<(KeyLocation<'_>, InterfaceName)> = reader.non_empty_list("interfaces");
        interfaces.iter().for_each(|(place, interface)| interface.warn_of_absence(place));
        return interfaces.into_iter().map(|(_, InterfaceName(name))| name).collect();
    }
    if reader.has("interfaces") {
        reader.error("interfaces", "no interfaces: connections of a tunnel arrive on its own device");
    }
    tun.map(|tun| tun.device.clone()).into_iter().collect()
}

/// Checks the number of transparent listeners, for which the number of marks and queues is limited.
pub(super) fn check_listener_count(reader: &TableReader<'_>, listener: Option<&Listener>, others: &[Arc<Listener>]) {
    let transparent_count = others.iter().filter(|other| other.kind.is_transparent()).count();
    if listener.is_some_and(|listener| listener.kind.is_transparent()) && transparent_count >= Marks::MOST_LISTENERS {
        reader.error("kind", format!("at most {} listeners of kind tproxy, redirect or tun", Marks::MOST_LISTENERS));
    }
}

fn check_bind(reader: &TableReader<'_>, kind: ListenerKind, bind: SocketAddr, only_own_programs: bool) {
    if bind.port() == 0 {
        reader.error("bind", "a port above 0: the rules contain the port number");
    }
    // Address translation changes the destination to an address of the interface on which the packet arrived.
    if kind == ListenerKind::Redirect && bind.ip().to_canonical().is_loopback() && !only_own_programs {
        reader.error("bind", "0.0.0.0 or [::]: redirected connections do not arrive at a loopback address");
    }
}

impl ConfigValue for ConnectMode {
    const EXPECTED: &'static str = r#""strict" or "early"; for tproxy, redirect and tun also "hold""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "hold" => Ok(Self::Hold),
            "strict" => Ok(Self::Strict),
            "early" => Ok(Self::Early),
            _ => Err(Self::EXPECTED),
        }
    }
}

impl ConfigValue for QuicPolicy {
    const EXPECTED: &'static str = r#""pass" or "refuse""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "pass" => Ok(Self::Pass),
            "refuse" => Ok(Self::Refuse),
            _ => Err(Self::EXPECTED),
        }
    }
}

/// The name of a network interface.
pub(super) struct InterfaceName(pub String);

impl InterfaceName {
    /// Warns if this host has no interface of this name, which may be misspelt. An interface that is created later is
    /// served.
    pub fn warn_of_absence(&self, place: &KeyLocation<'_>) {
        if !has_interface(&self.0) {
            let found = FoundValue::Value(format!("{:?}", self.0));
            place.warn(found, "an interface of this host; ignore this warning if the interface is created later");
        }
    }
}

impl ConfigValue for InterfaceName {
    const EXPECTED: &'static str = r#"the name of a network interface like "eth0""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        // IFNAMSIZ is 16 with the terminating NUL; the rules quote the name.
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-:@".contains(&b);
        let is_valid = (1..16).contains(&text.len()) && text.bytes().all(is_allowed);
        is_valid.then(|| Self(text.to_owned())).ok_or(Self::EXPECTED)
    }
}

/// The number of a daemon among several on this host.
pub(super) struct InstanceNumber(pub u8);

impl ConfigValue for InstanceNumber {
    const EXPECTED: &'static str = "a number from 1 to 15, different for each ekiden on this host";
    const TOML_TYPE: TomlType = TomlType::Number;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|n| (1..=15).contains(n)).map(Self).ok_or(Self::EXPECTED)
    }
}

impl ConfigValue for RuleManagement {
    const EXPECTED: &'static str = r#""managed" or "manual""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "managed" => Ok(Self::Managed),
            "manual" => Ok(Self::Manual),
            _ => Err(Self::EXPECTED),
        }
    }
}

//! Treatments: the programs between client and server, and their use.

use serde::{Deserialize, Serialize};

use super::factor::TreatmentOverride;
use crate::program::command::ProxyKind;
use crate::program::ekiden::{ListenerKind, ProfileChoice};
use crate::program::mesh::PathSetting;
use crate::program::server::Protocol;

/// A program that stands between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayProgram {
    /// None: the client reaches the server by itself.
    Direct,
    /// dante, a SOCKS server.
    Dante,
    /// squid, an HTTP proxy.
    Squid,
    /// haproxy, a forwarder.
    Haproxy,
    /// `ssh -L`, a forwarder between two hosts.
    Ssh,
    /// OpenVPN over TCP, a tunnel of packets between two hosts.
    Openvpn,
    /// VTun over TCP, the same.
    Vtun,
    /// SoftEther VPN over TCP, the same.
    Softether,
    /// ekiden.
    Ekiden,
    /// The program in `command`.
    Command,
}

impl RelayProgram {
    /// Whether it carries packets between devices at two hosts: clients know of nothing.
    #[must_use]
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::Openvpn | Self::Vtun | Self::Softether)
    }

    /// Whether it is at two hosts always, and no chain of others.
    #[must_use]
    pub const fn is_pair(self) -> bool {
        self.is_tunnel() || matches!(self, Self::Ssh)
    }
}

/// `[treatment.NAME]`: one of the things that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// The program at each host of the chain.
    pub program: RelayProgram,
    /// The protocol of ekiden's listeners.
    #[serde(default = "socks")]
    pub mode: ListenerKind,
    /// Whether clients of an HTTP proxy ask it for a tunnel (`CONNECT`, RFC 9110) rather than for a resource.
    #[serde(default)]
    pub tunnel: bool,
    /// Whether squid and haproxy keep connections to the next relay and to the server through long idle times, and use
    /// them again. haproxy then speaks HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reuse: bool,
    /// Whether ekiden's relays know each other by keys and speak the section protocol, rather than the client's.
    #[serde(default)]
    pub sections: bool,
    /// Whether the first relay of such a chain says "connected" before the server has answered.
    #[serde(default)]
    pub early: bool,
    /// Whether the sections between relays of such a chain are encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// Whether its relays stand in the way of packets, and clients know of none: they connect to the server's own address.
    #[serde(default)]
    pub transparent: bool,
    /// The profile of sections between relays, for ekiden. Default: ekiden's own default.
    pub profile: Option<ProfileChoice>,
    /// The profile of the sections to client and server, for a transparent ekiden. Default: ekiden's own default.
    pub near_profile: Option<String>,
    /// Further tables in the configuration of each ekiden relay.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub config: toml::Table,
    /// A command line that ekiden's becomes the end of: `["nice", "-n", "19"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrap: Vec<String>,
    /// For which protocols it runs. Default: all that the program can.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// The hosts at which relays stand. Default: the workload's.
    #[serde(default)]
    pub chain: Vec<String>,
    /// The hosts at which ekiden's relays stand that all know each other. The chain then is one host: the chooser's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// Which path through them the chooser takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathSetting>,
    /// For `program = "command"`: the program and its arguments; see [`command::expand_placeholders`](crate::program::command::expand_placeholders).
    #[serde(default)]
    pub command: Vec<String>,
    /// For `program = "command"`: how to know that it is ready, and where clients find it: `"tcp:1080"`.
    #[serde(default)]
    pub ready: String,
    /// For `program = "command"`: how clients use it.
    #[serde(default = "forward")]
    pub client: ProxyKind,
    /// Changes to the rest of the file.
    #[serde(default)]
    pub set: toml::Table,
    /// Changes at some levels. A treatment with such tables runs at these levels only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<TreatmentOverride>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}
const fn socks() -> ListenerKind {
    ListenerKind::Socks
}
const fn forward() -> ProxyKind {
    ProxyKind::Forward
}

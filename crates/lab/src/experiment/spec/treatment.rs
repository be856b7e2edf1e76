//! Treatments: the programs between client and server, and their settings.

use serde::{Deserialize, Serialize};

use super::factor::TreatmentOverride;
use crate::program::command::ProxyKind;
use crate::program::ekiden::{ListenerKind, ProfileChoice};
use crate::program::mesh::PathSetting;
use crate::program::server::Protocol;

/// A program between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RelayProgram {
    /// No program: the client connects to the server directly.
    Direct,
    /// dante, a SOCKS server.
    Dante,
    /// squid, an HTTP proxy.
    Squid,
    /// haproxy, a forwarder of TCP connections or, with `reuse`, of HTTP requests.
    Haproxy,
    /// `ssh -L`, a forwarder between two hosts.
    Ssh,
    /// OpenVPN over TCP, a tunnel of packets between two hosts.
    Openvpn,
    /// VTun over TCP, a tunnel of packets between two hosts.
    Vtun,
    /// SoftEther VPN over TCP, a tunnel of packets between two hosts.
    Softether,
    /// ekiden, with listeners of the kind in `mode`.
    Ekiden,
    /// Another program, started with the command line in `command`.
    Command,
}

impl RelayProgram {
    /// Whether the program carries packets between tunnel devices on two hosts, without configuration of the clients.
    #[must_use]
    pub const fn is_tunnel(self) -> bool {
        matches!(self, Self::Openvpn | Self::Vtun | Self::Softether)
    }

    /// Whether the program always runs on exactly two hosts, the ends of the tunnel.
    #[must_use]
    pub const fn is_pair(self) -> bool {
        self.is_tunnel() || matches!(self, Self::Ssh)
    }
}

/// `[treatment.NAME]`: one of the alternatives that the experiment compares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Treatment {
    /// The program at each host of the chain.
    pub program: RelayProgram,
    /// The protocol of ekiden's listeners.
    #[serde(default = "socks")]
    pub mode: ListenerKind,
    /// Whether clients of an HTTP proxy request a tunnel (`CONNECT`, RFC 9110) rather than a resource.
    #[serde(default)]
    pub tunnel: bool,
    /// Whether squid and haproxy keep connections to the next relay and to the server during long idle times, and reuse
    /// them. haproxy then forwards HTTP.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reuse: bool,
    /// Whether ekiden's relays are configured with each other's keys and use the section protocol between relays,
    /// rather than the protocol of the client.
    #[serde(default)]
    pub sections: bool,
    /// Whether the first relay of such a chain reports success to the client before the server has answered.
    #[serde(default)]
    pub early: bool,
    /// Whether the sections between relays of such a chain are encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// Whether the relays are transparent: clients are not configured for a relay and connect to the address of the
    /// server, and the relays intercept these connections.
    #[serde(default)]
    pub transparent: bool,
    /// The profile of sections between relays, for ekiden. Default: ekiden's own default.
    pub profile: Option<ProfileChoice>,
    /// The profile of the sections to client and server, for a transparent ekiden. Default: ekiden's own default.
    pub near_profile: Option<String>,
    /// Further tables in the configuration of each ekiden relay.
    #[serde(default, skip_serializing_if = "toml::Table::is_empty")]
    pub config: toml::Table,
    /// Program and arguments that are put before ekiden's command line, such as `["nice", "-n", "19"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrap: Vec<String>,
    /// The protocols that the treatment is run with. Default: all that the program supports.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// The hosts of the relays, in order from the client to the server. Default: the chain of the workload.
    #[serde(default)]
    pub chain: Vec<String>,
    /// The hosts of ekiden relays that are all configured as peers of each other. The chain is then one host: that of
    /// the chooser, the relay that selects paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<String>,
    /// The path through `relays` that the chooser uses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathSetting>,
    /// For `program = "command"`: the program and its arguments; see [`command::expand_placeholders`](crate::program::command::expand_placeholders).
    #[serde(default)]
    pub command: Vec<String>,
    /// For `program = "command"`: the port that is open when the program is ready, and that clients connect to:
    /// `"tcp:1080"`.
    #[serde(default)]
    pub ready: String,
    /// For `program = "command"`: the kind of proxy that clients use the program as.
    #[serde(default = "forward")]
    pub client: ProxyKind,
    /// Changes to the rest of the file.
    #[serde(default)]
    pub set: toml::Table,
    /// Changes at some combinations of levels. A treatment with such tables runs only at these combinations.
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

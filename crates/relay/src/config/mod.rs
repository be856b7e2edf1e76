//! The configuration after reading, validation and defaults. All values in these types are valid; [`read`] parses the
//! files and reports every error in them.

pub mod access;
mod account;
mod admin;
pub mod budget;
mod capture;
pub mod congestion;
mod environment;
mod error;
mod file_stamp;
mod files;
mod fleet;
mod history;
mod hop;
mod key;
mod listener;
mod log;
mod merge;
pub mod needs;
mod path;
mod peers;
mod place;
pub mod plan;
mod profiles;
mod proxy_protocol;
pub mod read;
mod reader;
mod relays;
mod shared;
mod sharing;
mod target_list;
mod tls;
mod traces;
mod tun;
mod url;
pub mod users;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ekiden_proto::addr::{Nat64Prefix, Network, Target};
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::profile::Profile;

use crate::config::congestion::CongestionControls;
use crate::config::users::Users;
use crate::rules::Marks;

pub use account::{AccountLimits, Quota, QuotaPeriod};
pub use admin::{AdminBind, AdminConfig, AdminToken};
pub use budget::{LimitsConfig, Timeouts};
pub use capture::{CaptureConfig, ConnectMode, QuicPolicy, RuleManagement, TransparentConfig};
pub use fleet::FleetConfig;
pub use history::HistoryConfig;
pub use listener::{ListenerKind, is_overlapping};
pub use log::{LogConfig, LogFormat, LogLevel, Redaction};
pub use path::{Credentials, Hop, HopKind, Path, Peering, RelayGroup, Resolve, Route};
pub use sharing::{InterfaceConfig, UserSettings};
pub use target_list::TargetList;
pub use tls::{CertificateExpiry, HTTP2, TlsListener};
pub use traces::{Collector, SampleRatio, TracesConfig};
pub use tun::TunConfig;

/// A configuration, shared by all sessions that started with it.
#[derive(Debug, Clone)]
pub struct Config {
    /// The listeners for clients and relays; at least one.
    pub listeners: Vec<Arc<Listener>>,
    /// Every configured next hop, whether paths contain it or not.
    pub relays: Vec<Arc<Hop>>,
    /// The paths by target: the first matching route applies, and the last one matches all targets.
    pub routes: Vec<Route>,
    /// Settings of the interception of transparent connections.
    pub transparent: TransparentConfig,
    /// Interfaces whose rate is shared by the sections that send through them.
    pub interfaces: Vec<InterfaceConfig>,
    /// The weights and limits of users.
    pub users: UserSettings,
    /// Limits of sessions in total and for each client, and of connections.
    pub limits: LimitsConfig,
    /// The timeouts of all waits.
    pub timeouts: Timeouts,
    /// The DNS servers; empty for those of the system.
    pub dns_servers: Vec<SocketAddr>,
    /// The admin listener for `ekiden status`, browsers and Prometheus.
    pub admin: AdminConfig,
    /// The database of measurements, if one is configured.
    pub history: Option<HistoryConfig>,
    /// The collector of OpenTelemetry traces, if one is configured.
    pub traces: Option<TracesConfig>,
    /// Format, level and redaction of the log.
    pub log: LogConfig,
    /// Number of worker threads.
    pub threads: usize,
    /// The fleet that this relay is a member of, or only reads.
    pub fleet: Option<Arc<FleetConfig>>,
    /// Keys of the fleet's relays that drain: existing connections through them continue, new sessions avoid them.
    pub draining: Vec<PublicKey>,
    /// Warnings about values that are valid, but not recommended.
    pub warnings: Vec<read::ConfigError>,
    /// The congestion controls named in all profiles of the file, including unused profiles.
    pub congestion_names: Vec<read::NameUse>,
    /// The congestion controls that profiles request; empty until the relay has loaded them.
    pub congestion: CongestionControls,
}

impl Config {
    /// Whether any route sends PROXY headers.
    #[must_use]
    pub fn has_send_proxy(&self) -> bool {
        self.routes.iter().any(|route| route.send_proxy.is_some())
    }

    /// Returns every path used by a route, without duplicates.
    #[must_use]
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths: Vec<&Path> = Vec::new();
        for path in self.routes.iter().flat_map(|route| &route.paths) {
            if !paths.contains(&&**path) {
                paths.push(path);
            }
        }
        paths
    }

    /// Returns a warning for each `[[relay]]` that no session of this relay uses because no route and no `forward`
    /// contains it. No warnings if relays may be chosen at run time, by this relay or by relays that connect to it.
    pub fn unused_relay_warnings(&self) -> impl Iterator<Item = String> {
        let (may_be_used, paths) = (self.may_choose_relays(), self.paths());
        let is_used = move |hop: &Arc<Hop>| may_be_used || paths.iter().any(|path| path.hops.contains(hop));
        let unused = self.relays.iter().filter(move |hop| !is_used(hop));
        unused.map(|hop| {
            format!("[[relay]] {0}: no session uses it; name it in forward = [\"{0}\"], or in a [[route]]", hop.name)
        })
    }

    /// Returns the profiles in use; a profile may occur more than once.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        let listeners = self.listeners.iter().map(|listener| &*listener.profile);
        let routes = self.routes.iter().map(|route| &*route.profile);
        let relays = self.relays.iter().map(|hop| &*hop.profile);
        // The relays of the fleet are not in `relays` until they are known.
        listeners.chain(routes).chain(relays).chain(self.fleet.iter().map(|fleet| &*fleet.profile))
    }

    /// Returns the names of the congestion controls that the profiles in use request.
    #[must_use]
    pub fn requested_controls(&self) -> BTreeSet<&str> {
        self.profiles().filter_map(|profile| profile.congestion()).map(|algorithm| algorithm.0.as_str()).collect()
    }

    /// Returns the transparent listeners. Their positions in this order determine their marks and queue numbers.
    pub fn transparent_listeners(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.listeners.iter().filter(|listener| listener.kind.is_transparent())
    }

    /// Returns the marks for the sockets of this relay; `None` if no rules depend on them.
    #[must_use]
    pub fn needed_marks(&self) -> Option<Marks> {
        let needed =
            self.listeners.iter().any(|listener| listener.kind.is_transparent() || listener.keep_client_address);
        needed.then(|| self.marks())
    }

    /// Returns the marks of this daemon.
    #[must_use]
    pub const fn marks(&self) -> Marks {
        Marks::new(self.transparent.instance)
    }

    /// Returns the public part of the temporary key, if this relay uses that key to dial other relays.
    #[must_use]
    pub fn temporary_key(&self) -> Option<PublicKey> {
        let keys = self.relays.iter().filter_map(|hop| Some(&hop.peering()?.own_key));
        keys.filter(|key| key::is_temporary_key(key)).map(|key| key.public_key()).next()
    }

    /// Whether this relay, or a relay that connects to it, uses path estimates.
    #[must_use]
    pub fn needs_estimates(&self) -> bool {
        self.has_section_listener() || self.relays.iter().any(|hop| hop.is_section())
    }

    /// For tests: routes every target over paths of one hop each, in the order of `hops`.
    #[cfg(test)]
    pub fn set_paths_through(&mut self, hops: Vec<Arc<Hop>>) {
        let path = |hop: &Arc<Hop>| Arc::new(Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] });
        let paths = hops.iter().map(path).collect();
        self.routes = vec![Route::to_all(paths, Arc::default())];
        self.relays = hops;
    }

    /// Whether this relay chooses the path of some sessions.
    #[must_use]
    pub fn has_auto_route(&self) -> bool {
        self.routes.iter().any(|route| route.auto)
    }

    /// Whether sessions may use relays that no configured path contains: this relay or the previous relay chooses.
    fn may_choose_relays(&self) -> bool {
        self.has_auto_route() || self.has_section_listener()
    }

    /// Whether other relays can connect to this one.
    fn has_section_listener(&self) -> bool {
        self.listeners.iter().any(|listener| listener.kind == ListenerKind::Section)
    }

    /// Whether this relay connects to `hop` itself: `hop` is the first one of a path, or this relay or the previous
    /// relay may choose it.
    #[must_use]
    pub fn may_dial(&self, hop: &Arc<Hop>) -> bool {
        hop.is_section() && (self.may_choose_relays() || self.paths().iter().any(|path| path.hops.first() == Some(hop)))
    }
}

/// A listener with its access rules and limits.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Name of the listener in logs and metrics.
    pub name: String,
    /// The address to listen on.
    pub bind: SocketAddr,
    /// The protocol of the clients.
    pub kind: ListenerKind,
    /// The fixed target; with [`ListenerKind::Tcp`] only.
    pub target: Option<Target>,
    /// The users that may connect; `None` for all clients.
    pub users: Option<Arc<Users>>,
    /// The targets that clients may reach.
    pub access: AccessRules,
    /// Whether SOCKS5 clients and other relays may have UDP associations.
    pub udp: bool,
    /// Whether SOCKS5 clients may accept connections by BIND.
    pub socks_bind: bool,
    /// When clients get the response that they are connected.
    pub connect: ConnectMode,
    /// The intercepted traffic; only if [`ListenerKind::is_transparent`].
    pub capture: Option<CaptureConfig>,
    /// The device and the networks behind it; only with [`ListenerKind::Tun`].
    pub tun: Option<TunConfig>,
    /// Whether connections to targets have the client's address as their source.
    pub keep_client_address: bool,
    /// The networks of load balancers, whose connections start with a PROXY header.
    pub proxy_protocol: Vec<Network>,
    /// Whether requests for `/proxy.pac` are answered, without authentication.
    pub pac: bool,
    /// Certificate and settings, if clients use TLS.
    pub tls: Option<Arc<TlsListener>>,
    /// The options for connections from other relays; only with [`ListenerKind::Section`].
    pub section: Option<SectionListener>,
    /// Weight of each of the listener's sessions in the sharing of an interface's rate.
    pub weight: u32,
    /// Limits of all sessions of the listener together.
    pub limits: AccountLimits,
    /// TCP settings of the accepted sections.
    pub profile: Arc<Profile>,
}

impl Listener {
    /// Whether other hosts can use the listener without authentication.
    #[must_use]
    pub fn admits_unauthenticated(&self) -> bool {
        let needs_certificate = self.tls.as_ref().is_some_and(|tls| tls.needs_client_certificate());
        self.users.is_none() && !needs_certificate && !self.bind.ip().to_canonical().is_loopback()
    }

    /// Whether both listeners have the same address. If the kernel chooses the port, listeners are distinguished by
    /// name.
    #[must_use]
    pub fn has_same_address(&self, other: &Self) -> bool {
        self.bind == other.bind && (self.bind.port() != 0 || self.name == other.name)
    }
}

/// Options of a listener for connections from other relays.
#[derive(Debug, Clone)]
pub struct SectionListener {
    /// The private key of this relay.
    pub private_key: Arc<PrivateKey>,
    /// The public part of `private_key`; stored because it takes time to compute.
    pub public_key: PublicKey,
    /// The relays that may connect; `None` permits every relay.
    pub peers: Option<Arc<Peers>>,
    /// Whether members of the fleet may connect in addition to `peers`.
    pub fleet: bool,
    /// Whether unencrypted sessions are refused.
    pub encrypt: bool,
}

impl SectionListener {
    /// Returns whether the relay with this key may connect.
    #[must_use]
    pub fn admits(&self, key: &PublicKey) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.0.contains_key(key))
    }
}

/// The permitted targets: `deny` takes precedence over `allow`, and `allow` over the default for private addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// The targets that are always refused.
    pub deny: Vec<TargetPattern>,
    /// Permitted targets. If there are any, all others are refused.
    pub allow: Vec<TargetPattern>,
    /// Whether private addresses are permitted without being listed in `allow`.
    pub allow_private: bool,
    /// The prefixes of NAT64 translators: an address with such a prefix is judged like the IPv4 address that it
    /// contains.
    pub nat64: Arc<[Nat64Prefix]>,
}

/// A set of targets, by host name or network, and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPattern {
    /// The host names or addresses that match.
    pub hosts: HostPattern,
    /// The matching port; `None` for all ports.
    pub port: Option<u16>,
}

/// The hosts of a [`TargetPattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// All host names and addresses match.
    Any,
    /// A host name, without its subdomains.
    Name(String),
    /// The subdomains of a domain, written `*.example.com`; the text starts with the dot.
    Subdomains(String),
    /// The addresses of a network.
    Network(Network),
}

/// The relays that may connect to a section listener, by public key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(pub BTreeMap<PublicKey, Arc<Peer>>);

/// A relay that may connect to a section listener.
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the relay in logs.
    pub name: Box<str>,
    /// The targets that the peer may reach, within the rules of the listener.
    pub access: AccessRules,
    /// The names of the next relays that the peer may use; `None` for all configured relays.
    pub next_hops: Option<Vec<Box<str>>>,
    /// The source networks of packets that the peer may send through tunnels; `None` for the networks routed to the
    /// peer.
    pub from: Option<Vec<Network>>,
}

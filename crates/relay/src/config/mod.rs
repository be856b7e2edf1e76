//! The configuration after reading, validation and defaults. Values in here are valid; [`read`] parses the file and reports every
//! error in it.

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

use std::collections::BTreeMap;
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
pub use listener::ListenerKind;
pub use log::{LogConfig, LogFormat, LogLevel, Redaction};
pub use path::{Credentials, Hop, HopKind, Path, Peering, RelayGroup, Resolve, Route};
pub use sharing::{InterfaceConfig, UserSettings};
pub use target_list::TargetList;
pub use tls::{CertificateExpiry, HTTP2, TlsListener};
pub use traces::{Collector, SampleRatio, TracesConfig};
pub use tun::TunConfig;

/// One configuration, shared by all sessions that began under it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where clients come in; at least one.
    pub listeners: Vec<Arc<Listener>>,
    /// Every next hop that is configured, in no path or in several.
    pub relays: Vec<Arc<Hop>>,
    /// Which ways to which targets, the first that matches; the last one matches all.
    pub routes: Vec<Route>,
    /// How traffic is caught that does not know of us.
    pub transparent: TransparentConfig,
    /// Interfaces whose rate is shared by the sections that leave by them.
    pub interfaces: Vec<InterfaceConfig>,
    /// The weights and limits of users.
    pub users: UserSettings,
    /// How many sessions, and how many of one client.
    pub limits: LimitsConfig,
    /// Every wait has a deadline.
    pub timeouts: Timeouts,
    /// Name servers; empty for the system's.
    pub dns_servers: Vec<SocketAddr>,
    /// The admin listener for `ekiden status`, browsers and Prometheus.
    pub admin: AdminConfig,
    /// The database of measurements, if one is configured.
    pub history: Option<HistoryConfig>,
    /// The collector of OpenTelemetry traces, if one is configured.
    pub traces: Option<TracesConfig>,
    /// `[log]`: form, level and redaction.
    pub log: LogConfig,
    /// The number of worker threads.
    pub threads: usize,
    /// The fleet that this relay belongs to, or knows.
    pub fleet: Option<Arc<FleetConfig>>,
    /// Relays of the fleet that drain: existing chains through them continue, new choices avoid them.
    pub draining: Vec<PublicKey>,
    /// Warnings: values that are valid, and for which another value is recommended.
    pub warnings: Vec<read::ConfigError>,
    /// The congestion controls that all profiles of the file name, also of those that nothing uses.
    pub congestion_names: Vec<read::NameUse>,
    /// The congestion controls that profiles ask for; none before the relay has seen to them.
    pub congestion: CongestionControls,
}

impl Config {
    /// Whether some route sends PROXY headers.
    #[must_use]
    pub fn has_send_proxy(&self) -> bool {
        self.routes.iter().any(|route| route.send_proxy.is_some())
    }

    /// Every path that some route takes, once.
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

    /// A warning for each `[[relay]]` that no session of this relay uses: its path exists, and no route or forward names it. Where
    /// other relays connect, they may name it.
    pub fn unused_relay_warnings(&self) -> impl Iterator<Item = String> {
        let (may_be_used, paths) = (self.may_choose_relays(), self.paths());
        let is_used = move |hop: &Arc<Hop>| may_be_used || paths.iter().any(|path| path.hops.contains(hop));
        let unused = self.relays.iter().filter(move |hop| !is_used(hop));
        unused.map(|hop| {
            format!("[[relay]] {0}: no session uses it; name it in forward = [\"{0}\"], or in a [[route]]", hop.name)
        })
    }

    /// The profiles in use, some more than once.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        let listeners = self.listeners.iter().map(|listener| &*listener.profile);
        let routes = self.routes.iter().map(|route| &*route.profile);
        listeners.chain(routes).chain(self.relays.iter().map(|hop| &*hop.profile))
    }

    /// The transparent listeners; their places in this order are their numbers in marks and queues.
    pub fn transparent_listeners(&self) -> impl Iterator<Item = &Arc<Listener>> {
        self.listeners.iter().filter(|listener| listener.kind.is_transparent())
    }

    /// The marks of our packets, where there are rules that have to know them.
    #[must_use]
    pub fn needed_marks(&self) -> Option<Marks> {
        let needed =
            self.listeners.iter().any(|listener| listener.kind.is_transparent() || listener.keep_client_address);
        needed.then(|| self.marks())
    }

    /// The marks of this daemon.
    #[must_use]
    pub const fn marks(&self) -> Marks {
        Marks::new(self.transparent.instance)
    }

    /// The public half of the temporary key, when this relay dials other relays with that key.
    #[must_use]
    pub fn temporary_key(&self) -> Option<PublicKey> {
        let keys = self.relays.iter().filter_map(|hop| Some(&hop.peering()?.own_key));
        keys.filter(|key| key::is_temporary_key(key)).map(|key| key.public_key()).next()
    }

    /// Whether this relay or a relay that calls it uses estimates of sections.
    #[must_use]
    pub fn needs_estimates(&self) -> bool {
        self.has_section_listener() || self.relays.iter().any(|hop| hop.is_section())
    }

    /// For tests: goes to every target by these hops, one after the other the only one of a path.
    #[cfg(test)]
    pub fn set_paths_through(&mut self, hops: Vec<Arc<Hop>>) {
        let path = |hop: &Arc<Hop>| Arc::new(Path { name: hop.name.clone(), hops: vec![Arc::clone(hop)] });
        let paths = hops.iter().map(path).collect();
        self.routes = vec![Route::to_all(paths, Arc::default())];
        self.relays = hops;
    }

    /// Whether some sessions take the path that this relay chooses.
    #[must_use]
    pub fn has_auto_route(&self) -> bool {
        self.routes.iter().any(|route| route.auto)
    }

    /// Whether sessions may take relays that no path of the configuration names: this relay or the relay before it chooses.
    fn may_choose_relays(&self) -> bool {
        self.has_auto_route() || self.has_section_listener()
    }

    /// Whether other relays may call this one.
    fn has_section_listener(&self) -> bool {
        self.listeners.iter().any(|listener| listener.kind == ListenerKind::Section)
    }

    /// Whether this relay calls `hop` itself: it is the first one of a path, or we or the relay before us may choose it.
    #[must_use]
    pub fn may_dial(&self, hop: &Arc<Hop>) -> bool {
        hop.is_section() && (self.may_choose_relays() || self.paths().iter().any(|path| path.hops.first() == Some(hop)))
    }
}

/// A listener with its rules.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Its name in logs and metrics.
    pub name: String,
    /// The address to listen on.
    pub bind: SocketAddr,
    /// The protocol spoken there.
    pub kind: ListenerKind,
    /// The fixed target; with [`ListenerKind::Tcp`] only.
    pub target: Option<Target>,
    /// The users that may connect; `None` for all clients.
    pub users: Option<Arc<Users>>,
    /// Which targets it forwards to.
    pub access: AccessRules,
    /// Whether SOCKS5 clients and other relays may have UDP associations.
    pub udp: bool,
    /// Whether SOCKS5 clients may accept connections by BIND.
    pub socks_bind: bool,
    /// When clients are told "connected".
    pub connect: ConnectMode,
    /// The intercepted traffic; only with [`ListenerKind::is_transparent`].
    pub capture: Option<CaptureConfig>,
    /// The device and the networks behind it; only with [`ListenerKind::Tun`].
    pub tun: Option<TunConfig>,
    /// Whether targets see the client's own address.
    pub keep_client_address: bool,
    /// The networks of load balancers, whose connections begin with a PROXY header.
    pub proxy_protocol: Vec<Network>,
    /// Whether `/proxy.pac` is answered, without a password.
    pub pac: bool,
    /// The certificate, if clients speak TLS.
    pub tls: Option<Arc<TlsListener>>,
    /// The options for calling relays; only with [`ListenerKind::Section`].
    pub section: Option<SectionListener>,
    /// How many shares of an interface its sessions have.
    pub weight: u32,
    /// The limits of all of its sessions together.
    pub limits: AccountLimits,
    /// TCP settings of the sections it accepts.
    pub profile: Arc<Profile>,
}

impl Listener {
    /// Whether clients of other hosts come in without authentication.
    #[must_use]
    pub fn admits_unauthenticated(&self) -> bool {
        let needs_certificate = self.tls.as_ref().is_some_and(|tls| tls.needs_client_certificate());
        self.users.is_none() && !needs_certificate && !self.bind.ip().to_canonical().is_loopback()
    }

    /// Whether both are at the same address. Where the kernel chooses the port, names tell listeners apart.
    #[must_use]
    pub fn has_same_address(&self, other: &Self) -> bool {
        self.bind == other.bind && (self.bind.port() != 0 || self.name == other.name)
    }
}

/// How other relays come in.
#[derive(Debug, Clone)]
pub struct SectionListener {
    /// The private key of this relay.
    pub private_key: Arc<PrivateKey>,
    /// Its public half, which takes a while to compute.
    pub public_key: PublicKey,
    /// The relays that may connect; `None` for all.
    pub peers: Option<Arc<Peers>>,
    /// Whether relays of the fleet may as well.
    pub fleet: bool,
    /// Whether sessions that are not encrypted are refused.
    pub encrypt: bool,
}

/// Which targets may be reached; deny beats allow, allow beats the private default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessRules {
    /// Targets that are refused.
    pub deny: Vec<TargetPattern>,
    /// Always these; and when there are any, nothing else.
    pub allow: Vec<TargetPattern>,
    /// Whether private addresses may be targets without being listed in `allow`.
    pub allow_private: bool,
    /// The prefixes of NAT64 translators: an address in one counts as the IPv4 address in it.
    pub nat64: Arc<[Nat64Prefix]>,
}

/// A set of targets: by name, by network, by port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPattern {
    /// The matching hosts.
    pub hosts: HostPattern,
    /// Which port; `None` for all.
    pub port: Option<u16>,
}

/// The hosts of a [`TargetPattern`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Every host matches.
    Any,
    /// A host name, without its subdomains.
    Name(String),
    /// A domain's subdomains, written `*.example.com`; the text begins with the dot.
    Subdomains(String),
    /// The addresses of a network.
    Network(Network),
}

/// The relays that may come in by a section listener, by their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers(pub BTreeMap<PublicKey, Arc<Peer>>);

/// A relay that may connect to a section listener.
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name in logs.
    pub name: Box<str>,
    /// The targets that the peer may reach, within the rules of the listener.
    pub access: AccessRules,
    /// The names of the relays it may go on to; `None` for every one that is configured.
    pub next_hops: Option<Vec<Box<str>>>,
    /// The networks from which it may send packets through tunnels; `None` for those that are routed to it.
    pub from: Option<Vec<Network>>,
}

//! `[[path]]` and `[[route]]`: paths, the hops in them, and the targets that use them.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::balance::Balance;
use ekiden_proto::key::{PrivateKey, PublicKey};
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::proxy_protocol::ProxyVersion;

use super::profiles::Profiles;
use super::reader::TableReader;
use super::relays::proxied_group_error;
use super::shared::{NamedTables, read_names};
use super::target_list::{self, TargetList};
use super::value::{ConfigValue, Name};
use super::{HostPattern, TargetPattern, proxy_protocol};

/// The paths of sessions to a set of targets.
#[derive(Debug, Clone)]
pub struct Route {
    /// Patterns of targets; without patterns and `lists`, the route is for all targets.
    pub to: Vec<TargetPattern>,
    /// Lists of further targets in files.
    pub lists: Vec<Arc<TargetList>>,
    /// The relay that resolves names.
    pub resolve: Resolve,
    /// The paths, the preferred one first; at least one. With `auto`, the paths that race while estimates are missing.
    pub paths: Vec<Arc<Path>>,
    /// Whether this relay chooses among direct and all paths over known relays.
    pub auto: bool,
    /// TCP settings of sections dialled to targets.
    pub profile: Arc<Profile>,
    /// The version of the PROXY headers to the targets; `None` for no headers.
    pub send_proxy: Option<ProxyVersion>,
}

/// The relay that resolves the names of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// As the client requests: the last relay resolves a name, and an address is used unchanged.
    AsRequested,
    /// This relay; later relays get an address.
    Here,
    /// The last relay. For intercepted connections, it gets the server name.
    Exit,
}

impl ConfigValue for Resolve {
    const EXPECTED: &'static str = r#""here" or "exit""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "here" => Ok(Self::Here),
            "exit" => Ok(Self::Exit),
            _ => Err(Self::EXPECTED),
        }
    }
}

impl Route {
    /// Creates a route for all targets over `paths`.
    #[must_use]
    pub fn to_all(paths: Vec<Arc<Path>>, profile: Arc<Profile>) -> Self {
        let (to, lists, resolve) = (Vec::new(), Vec::new(), Resolve::AsRequested);
        Self { to, lists, resolve, paths, auto: false, profile, send_proxy: None }
    }

    /// Whether the route is for all targets.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.to.is_empty() && self.lists.is_empty()
    }

    /// Whether the route is for this target. `address` is the address of a host whose name is also known; names are not
    /// resolved here.
    #[must_use]
    pub fn matches(&self, host: &Host, address: Option<IpAddr>, port: u16) -> bool {
        let address = match host {
            Host::Ip(ip) => Some(*ip),
            Host::Name(_) => address,
        };
        self.takes_all()
            || self.to.iter().any(|pattern| pattern.matches(host, address, port))
            || self.lists.iter().any(|list| list.matches(host, address, port))
    }
}

/// The hops between this relay and a target.
#[derive(Debug, PartialEq, Eq)]
pub struct Path {
    /// Name of the path in logs: that of `[[path]]`, or of its hops, or `direct`.
    pub name: Box<str>,
    /// The hops in order; none for `direct`.
    pub hops: Vec<Arc<Hop>>,
}

impl Path {
    /// The name of the path without hops.
    pub const DIRECT: &str = "direct";

    /// Creates a path without a configured name.
    #[must_use]
    pub fn from_hops(hops: Vec<Arc<Hop>>) -> Self {
        if hops.is_empty() {
            return Self { name: Self::DIRECT.into(), hops };
        }
        let name = hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Self { name: name.into(), hops }
    }
}

/// A relay or proxy on the way to a target.
#[derive(Debug, PartialEq, Eq)]
pub struct Hop {
    /// Name of the hop in logs and metrics: that of `[[relay]]`, or its URL without credentials.
    pub name: Box<str>,
    /// The protocol of the hop, and its credentials.
    pub kind: HopKind,
    /// Host and port of the hop; for a group, those of its first member.
    pub address: Target,
    /// TCP settings of the section to the hop.
    pub profile: Arc<Profile>,
    /// The members, if the hop has several addresses.
    pub group: Option<RelayGroup>,
}

/// Relays with a common name and key, which are equivalent.
#[derive(Debug, PartialEq, Eq)]
pub struct RelayGroup {
    /// How sessions are distributed over the members.
    pub balance: Balance,
    /// The members in the order of the configuration; at least two. The name of a member consists of that of the group
    /// and its address.
    pub members: Vec<Arc<Hop>>,
}

/// The protocol of a [`Hop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HopKind {
    /// Another ekiden relay, with the section protocol.
    Section(Peering),
    /// A SOCKS5 proxy (RFC 1928).
    Socks5(Option<Credentials>),
    /// An HTTP proxy, with CONNECT (RFC 9110, 9.3.6).
    Http(Option<Credentials>),
    /// A relay of the fleet that is not known at present.
    Absent,
}

/// Key and options for a connection to another ekiden.
#[derive(Debug, Clone)]
pub struct Peering {
    /// The public key of the hop.
    pub key: PublicKey,
    /// The private key of this relay.
    pub own_key: Arc<PrivateKey>,
    /// Whether sessions to the hop are encrypted.
    pub encrypt: bool,
}

/// User name and password for a proxy. Not printable: there is no `Display`, and `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name at the proxy.
    pub user: String,
    /// The password at the proxy.
    pub password: String,
}

impl HopKind {
    /// Returns the name of the protocol in the configuration, in logs and in metrics.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Section(_) => "section",
            Self::Socks5(_) => "socks5",
            Self::Http(_) => "http",
            Self::Absent => "absent",
        }
    }
}

impl Hop {
    /// Returns key and options of the hop, if it is another ekiden.
    #[must_use]
    pub fn peering(&self) -> Option<&Peering> {
        match &self.kind {
            HopKind::Section(peering) => Some(peering),
            HopKind::Socks5(_) | HopKind::Http(_) | HopKind::Absent => None,
        }
    }

    /// Whether the hop is the ekiden with this key.
    #[must_use]
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.peering().is_some_and(|peering| peering.key == *key)
    }

    /// Returns the hops to dial: the members of a group, or the hop itself.
    #[must_use]
    pub fn members(self: &Arc<Self>) -> &[Arc<Self>] {
        self.group.as_ref().map_or(std::slice::from_ref(self), |group| &group.members)
    }

    /// Whether the hop is another ekiden.
    #[must_use]
    pub fn is_section(&self) -> bool {
        self.peering().is_some()
    }
}

/// Equal if both stand for the same relay, dialled with the same key and options.
impl PartialEq for Peering {
    fn eq(&self, other: &Self) -> bool {
        // The pointers are compared first, because computing public keys takes time and nearly all hops share one key.
        let is_same_own_key =
            || Arc::ptr_eq(&self.own_key, &other.own_key) || self.own_key.public_key() == other.own_key.public_key();
        (self.key, self.encrypt) == (other.key, other.encrypt) && is_same_own_key()
    }
}

impl Eq for Peering {}

/// The name of the hop, for logs and metrics.
impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The value of `path` for routes whose path this relay chooses.
const AUTO: &str = "auto";

/// Reads all routes. The last one is for all other targets: over `forward`, or direct.
pub(super) fn read(
    file: &TableReader<'_>,
    relays: &NamedTables<Arc<Hop>>,
    forward: Vec<Arc<Hop>>,
    profiles: &Profiles,
) -> Vec<Route> {
    let default_profile = profiles.read_profile(file, "target_profile");
    let paths = read_paths(file.tables("path"), relays);
    let paths_and_relays =
        paths.with_others("a path or a relay", relays, |relay| Arc::new(Path::from_hops(vec![Arc::clone(relay)])));
    let context = RouteContext { paths: &paths, paths_and_relays, relays, forward: &forward, fleet: file.has("fleet") };
    let mut routes = Vec::new();
    let mut catch_all = None;
    for (number, reader) in (1..).zip(file.tables("route")) {
        if let Some(earlier) = catch_all {
            reader.table_error(format!("no route after route[{earlier}], which matches all targets"));
        }
        let (to, lists) = (read_targets(&reader), target_list::read(&reader, "to_files"));
        if !reader.has("to") && !reader.has("to_files") || to.iter().any(matches_everything) {
            catch_all.get_or_insert(number);
        }
        let auto = reader.has_text("path", AUTO);
        let paths = if auto { context.read_racing(&reader) } else { context.read_listed(&reader) };
        let has_profile = reader.has("profile");
        if has_profile && !paths.is_empty() && !paths.iter().any(|path| path.is_direct()) {
            reader.error("profile", "no profile: no path of this route is direct, and relays have their own profiles");
        }
        let profile =
            if has_profile { profiles.read_profile(&reader, "profile") } else { Arc::clone(&default_profile) };
        let send_proxy = proxy_protocol::read_send_proxy(&reader, &paths, auto);
        let resolve = reader.optional_or("resolve", Resolve::AsRequested);
        routes.push(Route { to, lists, resolve, paths, auto, profile, send_proxy });
        reader.finish();
    }
    let paths = vec![Arc::new(Path::from_hops(forward))];
    routes.push(Route::to_all(paths, default_profile));
    routes
}

/// The names that a route may reference.
struct RouteContext<'a> {
    paths: &'a NamedTables<Arc<Path>>,
    /// All paths, and for each relay the path over it alone, with the name of the relay.
    paths_and_relays: NamedTables<Arc<Path>>,
    relays: &'a NamedTables<Arc<Hop>>,
    forward: &'a [Arc<Hop>],
    /// Whether there are also relays of a fleet.
    fleet: bool,
}

impl RouteContext<'_> {
    /// Reads the paths of a route that lists them.
    fn read_listed(&self, reader: &TableReader<'_>) -> Vec<Arc<Path>> {
        if reader.has("default") {
            reader.error(
                "default",
                "this key only with path = \"auto\": otherwise the first path of the list is the default",
            );
        }
        self.paths_and_relays.read_list(reader, "path")
    }

    /// Returns the paths of an `auto` route that race while estimates are missing: the default path, and direct.
    fn read_racing(&self, reader: &TableReader<'_>) -> Vec<Arc<Path>> {
        if !self.fleet && !self.relays.valid().chain(self.forward).any(|hop| hop.is_section()) {
            let expected = "a list of paths: auto chooses among ekiden relays, and no [[relay]] has address and key";
            reader.error("path", expected);
        }
        let direct = Arc::new(Path::from_hops(Vec::new()));
        let first = if reader.has("default") { self.read_default(reader) } else { self.first_path() };
        first.filter(|path| !path.is_direct()).into_iter().chain([direct]).collect()
    }

    /// Reads the default path that the route names.
    fn read_default(&self, reader: &TableReader<'_>) -> Option<Arc<Path>> {
        let Name(name) = reader.required("default")?;
        let path = self.paths_and_relays.get(&name);
        if path.is_none() {
            reader.error("default", self.paths_and_relays.expected(&name));
        }
        path.cloned().flatten()
    }

    /// Returns the default path of a route that names none: the first path of the file, else `forward`, else the first
    /// relay.
    fn first_path(&self) -> Option<Arc<Path>> {
        let path = self.paths.valid().find(|path| !path.is_direct()).cloned();
        let forward = || (!self.forward.is_empty()).then(|| Arc::new(Path::from_hops(self.forward.to_vec())));
        let relay =
            || self.relays.valid().find(|hop| hop.is_section()).map(|hop| Arc::new(Path::from_hops(vec![hop.clone()])));
        path.or_else(forward).or_else(relay)
    }
}

fn read_paths(readers: Vec<TableReader<'_>>, relays: &NamedTables<Arc<Hop>>) -> NamedTables<Arc<Path>> {
    let mut paths = NamedTables::new("a path");
    paths.add(Path::DIRECT, Some(Arc::new(Path::from_hops(Vec::new()))));
    let names = read_names(&readers);
    for (reader, name) in readers.into_iter().zip(names) {
        if name.as_deref() == Some(Path::DIRECT) {
            reader.error("name", "another name: direct is the path without relays");
        }
        if name.as_deref() == Some(AUTO) {
            reader.error("name", "another name: auto is the path that the relay chooses");
        }
        let hops = relays.read_list(&reader, "relays");
        // In logs, `forward` over that relay alone has the name of the relay.
        let misleading = |relay: &Arc<Hop>| !matches!(&hops[..], [hop] if Arc::ptr_eq(hop, relay));
        if let Some(Some(relay)) = name.as_deref().and_then(|name| relays.get(name))
            && misleading(relay)
        {
            reader.error(
                "name",
                "another name: a relay has this name, and the path does not consist of that relay alone",
            );
        }
        if let Some(expected) = proxied_group_error(&hops) {
            reader.error("relays", expected);
        }
        reader.finish();
        if let Some(name) = name {
            paths.add(&name, Some(Arc::new(Path { name: name.as_str().into(), hops })));
        }
    }
    paths
}

/// Reads the target patterns of a route; none if `to` is missing. An empty `to` is a mistake, so that no route is for
/// all targets by accident.
fn read_targets(reader: &TableReader<'_>) -> Vec<TargetPattern> {
    if !reader.has("to") {
        return Vec::new();
    }
    reader.non_empty_list("to").into_iter().map(|(_, pattern)| pattern).collect()
}

fn matches_everything(pattern: &TargetPattern) -> bool {
    matches!(pattern, TargetPattern { hosts: HostPattern::Any, port: None })
}

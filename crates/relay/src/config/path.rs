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

/// Where sessions to some targets go.
#[derive(Debug, Clone)]
pub struct Route {
    /// The targets it is for; none, and no lists, for all.
    pub to: Vec<TargetPattern>,
    /// More of them, in files.
    pub lists: Vec<Arc<TargetList>>,
    /// The relay that resolves names.
    pub resolve: Resolve,
    /// The ways, the best first; at least one. Where the relay chooses, those that race as long as it knows too little.
    pub paths: Vec<Arc<Path>>,
    /// Whether the relay chooses among direct and all that it can make of the relays it knows.
    pub auto: bool,
    /// TCP settings of sections dialled to the targets themselves.
    pub profile: Arc<Profile>,
    /// The version of the PROXY headers to the targets; `None` for no headers.
    pub send_proxy: Option<ProxyVersion>,
}

/// The relay that resolves the names of targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolve {
    /// The client's choice: a name is resolved by the last relay, and an address stays.
    AsRequested,
    /// This relay. Others get an address.
    Here,
    /// The last relay. It gets the name of the server also for intercepted connections.
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
    /// A route for all targets by `paths`.
    #[must_use]
    pub fn to_all(paths: Vec<Arc<Path>>, profile: Arc<Profile>) -> Self {
        let (to, lists, resolve) = (Vec::new(), Vec::new(), Resolve::AsRequested);
        Self { to, lists, resolve, paths, auto: false, profile, send_proxy: None }
    }

    /// Whether it is for all targets.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.to.is_empty() && self.lists.is_empty()
    }

    /// Whether the target is one of these. `address` is that of a host whose name is known beside it; names are not resolved.
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
    /// Its name in logs: that of `[[path]]`, or its hops, or `direct`.
    pub name: Box<str>,
    /// The hops in order; none for `direct`.
    pub hops: Vec<Arc<Hop>>,
}

impl Path {
    /// The name of the path without hops.
    pub const DIRECT: &str = "direct";

    /// One that has no name of its own.
    #[must_use]
    pub fn from_hops(hops: Vec<Arc<Hop>>) -> Self {
        if hops.is_empty() {
            return Self { name: Self::DIRECT.into(), hops };
        }
        let name = hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        Self { name: name.into(), hops }
    }
}

/// The next thing a relay dials on the way to a target.
#[derive(Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its name in logs and metrics: that of `[[relay]]`, or its URL without the credentials.
    pub name: Box<str>,
    /// The protocol of the hop, and its credentials.
    pub kind: HopKind,
    /// The address and port of the hop; of a group, those of its first member.
    pub address: Target,
    /// TCP settings of the section to it.
    pub profile: Arc<Profile>,
    /// The members, if the hop has several addresses.
    pub group: Option<RelayGroup>,
}

/// Equal relays behind one name and one key.
#[derive(Debug, PartialEq, Eq)]
pub struct RelayGroup {
    /// How sessions are shared among the members.
    pub balance: Balance,
    /// The members in the order of the configuration; at least two. A member's name is that of the group and its address.
    pub members: Vec<Arc<Hop>>,
}

/// The protocol of a [`Hop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HopKind {
    /// Another ekiden relay, by the section protocol.
    Section(Peering),
    /// A SOCKS5 proxy (RFC 1928).
    Socks5(Option<Credentials>),
    /// HTTP proxy with CONNECT.
    Http(Option<Credentials>),
    /// A relay of the fleet that is not there now.
    Absent,
}

/// Key and options for a connection to another ekiden.
#[derive(Debug, Clone)]
pub struct Peering {
    /// The public key of the hop.
    pub key: PublicKey,
    /// The private key of this relay.
    pub own_key: Arc<PrivateKey>,
    /// Whether sessions to it are encrypted.
    pub encrypt: bool,
}

/// User name and password for a hop. Never printed: there is no `Display`, and `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name at the proxy.
    pub user: String,
    /// The password at the proxy.
    pub password: String,
}

impl HopKind {
    /// Its word in the configuration, in logs and in metrics.
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
    /// Key and options of the hop, if it is another ekiden.
    #[must_use]
    pub fn peering(&self) -> Option<&Peering> {
        match &self.kind {
            HopKind::Section(peering) => Some(peering),
            HopKind::Socks5(_) | HopKind::Http(_) | HopKind::Absent => None,
        }
    }

    /// Whether it is the ekiden with this key.
    #[must_use]
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.peering().is_some_and(|peering| peering.key == *key)
    }

    /// The hops to dial: the members of a group, or the hop itself.
    #[must_use]
    pub fn members(self: &Arc<Self>) -> &[Arc<Self>] {
        self.group.as_ref().map_or(std::slice::from_ref(self), |group| &group.members)
    }

    /// Whether it is another ekiden.
    #[must_use]
    pub fn is_section(&self) -> bool {
        self.peering().is_some()
    }
}

/// Two are the same when they call the same relay as the same one, in the same way.
impl PartialEq for Peering {
    fn eq(&self, other: &Self) -> bool {
        // Public halves have to be computed, and nearly always both are the same key anyway.
        let is_same_own_key =
            || Arc::ptr_eq(&self.own_key, &other.own_key) || self.own_key.public_key() == other.own_key.public_key();
        (self.key, self.encrypt) == (other.key, other.encrypt) && is_same_own_key()
    }
}

impl Eq for Peering {}

/// Its name, for logs and metrics.
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

/// The word for the path that the relay chooses.
const AUTO: &str = "auto";

/// Reads all routes. The last one is that of all other targets: by `forward`, or direct.
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
    /// The paths, and each relay by its name as the path through it alone.
    paths_and_relays: NamedTables<Arc<Path>>,
    relays: &'a NamedTables<Arc<Hop>>,
    forward: &'a [Arc<Hop>],
    /// Whether relays come from a fleet as well.
    fleet: bool,
}

impl RouteContext<'_> {
    /// The paths of a route that says which.
    fn read_listed(&self, reader: &TableReader<'_>) -> Vec<Arc<Path>> {
        if reader.has("default") {
            reader.error(
                "default",
                "this key only with path = \"auto\": otherwise the first path of the list is the default",
            );
        }
        self.paths_and_relays.read_list(reader, "path")
    }

    /// The paths of a route that leaves it to the relay: the default, and direct.
    fn read_racing(&self, reader: &TableReader<'_>) -> Vec<Arc<Path>> {
        if !self.fleet && !self.relays.valid().chain(self.forward).any(|hop| hop.is_section()) {
            let expected = "a list of paths: auto chooses among ekiden relays, and no [[relay]] has address and key";
            reader.error("path", expected);
        }
        let direct = Arc::new(Path::from_hops(Vec::new()));
        let first = if reader.has("default") { self.read_default(reader) } else { self.first_path() };
        first.filter(|path| !path.is_direct()).into_iter().chain([direct]).collect()
    }

    /// The one that the route names.
    fn read_default(&self, reader: &TableReader<'_>) -> Option<Arc<Path>> {
        let Name(name) = reader.required("default")?;
        let path = self.paths_and_relays.get(&name);
        if path.is_none() {
            reader.error("default", self.paths_and_relays.expected(&name));
        }
        path.cloned().flatten()
    }

    /// Without one: the first path of the file, else forward, else the first relay.
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
        // In logs, `forward` through that relay alone has its name.
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

/// The targets of a route; none for all, which has to be meant.
fn read_targets(reader: &TableReader<'_>) -> Vec<TargetPattern> {
    if !reader.has("to") {
        return Vec::new();
    }
    reader.non_empty_list("to").into_iter().map(|(_, pattern)| pattern).collect()
}

fn matches_everything(pattern: &TargetPattern) -> bool {
    matches!(pattern, TargetPattern { hosts: HostPattern::Any, port: None })
}

//! `[[listener]]` and `-L`: kinds of listeners, their options, and the rules that prevent an open proxy by accident.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ekiden_proto::addr::{Host, Target};

use super::access::Denied;
use super::account::{self, AccountLimits};
use super::error::Disclosure;
use super::place::KeyLocation;
use super::profiles::for_section;
use super::reader::TableReader;
use super::shared::ReadContext;
use super::sharing::ShareWeight;
use super::url::{OptionUrl, table_from_pairs};
use super::users::Users;
use super::value::{BindAddress, ConfigValue, Name};
use super::{
    AccessRules, ConnectMode, Listener, SectionListener, TargetPattern, TunConfig, capture, proxy_protocol, tls, tun,
};

/// The expected format, for mistakes in the URL of a `-L`.
const EXPECTED_URL: &str = "a listener like auto://127.0.0.1:1080, socks://ADDR, http://ADDR, tcp://ADDR/HOST:PORT or \
    section://ADDR?key=FILE&peers=FILE, tproxy://ADDR?interfaces=NAME or tun://DEVICE?net=NETWORK, with the keys of [[listener]] as ?key=value&key=value";

/// The listeners of the files or of the command line.
#[derive(Default)]
pub(super) struct ListenerSet {
    /// The listeners without mistakes.
    pub valid: Vec<Arc<Listener>>,
    /// The addresses of all listeners, also of those with mistakes, and the keys of their tables.
    addresses: Vec<(SocketAddr, String)>,
    /// The tunnels of all listeners, also of those with mistakes.
    tunnels: Vec<TunConfig>,
}

impl ListenerSet {
    /// Reads all listeners of the files or of the command line.
    pub fn read(readers: Vec<TableReader<'_>>, shared: &ReadContext) -> Self {
        let mut listeners = Self::default();
        let mut names: Vec<String> = Vec::new();
        let mut configured_names: Vec<Option<String>> = Vec::new();
        for reader in &readers {
            let name = reader.optional("name").map(|Name(name)| name);
            if name.as_ref().is_some_and(|name| names.contains(name)) {
                reader.error("name", "a name that no other listener has");
            }
            names.extend(name.clone());
            configured_names.push(name);
        }
        for (reader, name) in readers.into_iter().zip(configured_names) {
            let kind = if reader.has("kind") { reader.optional("kind") } else { Some(ListenerKind::Auto) };
            let tun = tun::read(&reader, kind, &listeners.tunnels);
            listeners.tunnels.extend(tun.clone());
            let bind = listeners.bind(&reader, kind, tun.as_ref());
            let listener = read_listener(&reader, kind, bind, tun, shared);
            capture::check_listener_count(&reader, listener.as_ref(), &listeners.valid);
            reader.finish();
            let Some(mut listener) = listener else { continue };
            listener.name = name.unwrap_or_else(|| free_name(&listener, &mut names));
            listeners.valid.push(Arc::new(listener));
        }
        listeners
    }

    /// Reads the address of a listener. An address in use by another listener is a mistake: the kernel would let both
    /// share it (`SO_REUSEPORT`), and distribute connections over both.
    fn bind(
        &mut self,
        reader: &TableReader<'_>,
        kind: Option<ListenerKind>,
        tun: Option<&TunConfig>,
    ) -> Option<SocketAddr> {
        if kind == Some(ListenerKind::Tun) && !reader.has("bind") {
            return self.default_bind(reader, tun?);
        }
        let BindAddress(bind) = reader.required("bind")?;
        if let Some((conflict, owner)) = self.overlapping(bind) {
            reader.error("bind", format!("an address that no other listener uses: {owner} uses {conflict}"));
        }
        self.addresses.push((bind, reader.location().key));
        Some(bind)
    }

    /// Returns the address and key of a listener that cannot coexist with one at `bind`.
    pub fn overlapping(&self, bind: SocketAddr) -> Option<&(SocketAddr, String)> {
        self.addresses.iter().find(|(address, _)| is_overlapping(*address, bind))
    }

    /// Returns the addresses of all listeners, also of those with mistakes.
    pub fn binds(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses.iter().map(|(bind, _)| *bind)
    }

    /// Chooses the address of a tunnel without `bind`.
    fn default_bind(&mut self, reader: &TableReader<'_>, tun: &TunConfig) -> Option<SocketAddr> {
        let is_free = |bind: &SocketAddr| self.binds().all(|address| address.port() != bind.port());
        let bind = (0..u16::MAX - tun::FIRST_PORT).map(|place| tun.default_bind(place)).find(is_free)?;
        self.addresses.push((bind, reader.location().key));
        Some(bind)
    }
}

/// Whether bind(2) refuses one address while a socket listens on the other: the addresses are equal, or one is a
/// wildcard, `0.0.0.0` for IPv4 and `[::]` for both families (ip(7), ipv6(7)).
#[must_use]
pub fn is_overlapping(first: SocketAddr, second: SocketAddr) -> bool {
    let (left, right) = (first.ip().to_canonical(), second.ip().to_canonical());
    let covers = |wildcard: IpAddr, ip: IpAddr| wildcard.is_unspecified() && (wildcard.is_ipv6() || ip.is_ipv4());
    let same_host = left == right || covers(left, right) || covers(right, left);
    same_host && first.port() == second.port() && first.port() != 0
}

/// Returns a name for a listener without one: `auto-1080`, or `auto-1080-2` if that is taken; for a tunnel, the name of
/// its device.
fn free_name(listener: &Listener, names: &mut Vec<String>) -> String {
    let base = match &listener.tun {
        Some(tun) => tun.device.clone(),
        None => format!("{}-{}", listener.kind.as_str(), listener.bind.port()),
    };
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    let name = std::iter::once(base.clone()).chain(numbered).find(|name| !names.contains(name));
    let name = name.expect("invariant: an unused number exists");
    names.push(name.clone());
    name
}

/// Reads one listener without its name; `None` if a mandatory value is missing or invalid.
fn read_listener(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    bind: Option<SocketAddr>,
    tun: Option<TunConfig>,
    shared: &ReadContext,
) -> Option<Listener> {
    let (users, section) = (read_users(reader, kind, shared), read_section(reader, kind, shared));
    let (target, connect) = (read_target(reader, kind, bind), read_connect_mode(reader, kind));
    let transparent = kind.is_some_and(ListenerKind::is_transparent);
    let local = bind.is_some_and(|bind| bind.ip().to_canonical().is_loopback());
    // An invalid value counts as true here, because it is reported as a mistake of its own.
    let allow_open = reader.optional("allow_open").unwrap_or(reader.has("allow_open"));
    let guarded = is_guarded(reader, kind, section.as_ref());
    // Transparent listeners are exempt: they refuse direct connections of clients, and carry only traffic that is
    // routed through this host anyway.
    if bind.is_some() && !local && !allow_open && !guarded && !transparent {
        reader.error("bind", closing_hint(kind));
    }
    let access = AccessRules {
        deny: reader.list("deny"),
        allow: read_allow(reader, kind, tun.as_ref()),
        allow_private: reader.optional_or("allow_private", local || transparent),
        nat64: Arc::clone(&shared.nat64),
    };
    let capture = capture::read(reader, kind, bind, tun.as_ref(), &access);
    if let (Some(tun), Some(bind)) = (&tun, bind) {
        tun::check_bind(reader, tun, bind);
    }
    let keep_client_address = reader.optional_or("keep_client_address", kind == Some(ListenerKind::Tproxy));
    let proxy_protocol = proxy_protocol::read_trusted(reader, kind, keep_client_address);
    let udp = read_udp(reader, kind, local, guarded, keep_client_address);
    let socks_bind = read_socks_bind(reader, kind);
    let tls = tls::read(reader, kind, shared);
    let profile = shared.profiles.read_profile(reader, "profile");
    let profile = if kind == Some(ListenerKind::Section) { for_section(profile) } else { profile };
    if let (Some(target), Some(_)) = (&target, bind) {
        check_target(reader, target, &access);
    }
    let (pac, limits) = (read_pac(reader, kind), read_limits(reader, kind));
    let weight = reader.optional_or("weight", ShareWeight(1)).0;
    // Every key has been read: a mistake in one must not report the others as unknown.
    let is_incomplete = match kind? {
        ListenerKind::Section => section.is_none(),
        ListenerKind::Tun => tun.is_none(),
        kind => kind.is_transparent() && capture.is_none(),
    };
    if is_incomplete {
        return None;
    }
    Some(Listener {
        name: String::new(),
        bind: bind?,
        kind: kind?,
        target,
        users,
        access,
        udp,
        socks_bind,
        connect,
        capture,
        tun,
        keep_client_address,
        proxy_protocol,
        pac,
        tls,
        section,
        weight,
        limits,
        profile,
    })
}

/// Whether clients may use SOCKS.
fn is_socks(kind: Option<ListenerKind>) -> bool {
    matches!(kind, Some(ListenerKind::Auto | ListenerKind::Socks))
}

/// Whether clients must authenticate.
fn is_guarded(reader: &TableReader<'_>, kind: Option<ListenerKind>, section: Option<&SectionListener>) -> bool {
    match kind {
        Some(ListenerKind::Section) => reader.has("peers") || section.is_some_and(|section| section.fleet),
        _ => reader.has("users") || reader.has("tls_clients"),
    }
}

/// Reads the permitted targets.
fn read_allow(reader: &TableReader<'_>, kind: Option<ListenerKind>, tun: Option<&TunConfig>) -> Vec<TargetPattern> {
    if kind == Some(ListenerKind::Tun) { tun::read_allow(reader, tun) } else { reader.list("allow") }
}

/// Reads the users of a client listener.
fn read_users(reader: &TableReader<'_>, kind: Option<ListenerKind>, shared: &ReadContext) -> Option<Arc<Users>> {
    let expected = match kind {
        Some(ListenerKind::Tcp) => "no users: a tcp listener cannot ask for a user name",
        Some(ListenerKind::Tproxy | ListenerKind::Redirect | ListenerKind::Tun) => {
            "no users: a transparent listener cannot ask for a user name"
        }
        Some(ListenerKind::Section) => {
            "no users: relays authenticate with keys, and peers = FILE lists the permitted relays"
        }
        Some(ListenerKind::Auto | ListenerKind::Socks | ListenerKind::Http) | None => return shared.read_users(reader),
    };
    if reader.has("users") {
        reader.error("users", expected);
    }
    None
}

/// Reads the limits of a listener. Connections that a transparent listener refuses would bypass the relay, so only the
/// rate of such a listener can be limited.
fn read_limits(reader: &TableReader<'_>, kind: Option<ListenerKind>) -> AccountLimits {
    if kind.is_some_and(ListenerKind::is_transparent) {
        let keys = ["sessions", "quota"].into_iter().filter(|key| reader.has(key));
        keys.for_each(|key| {
            reader.error(key, "no limit: connections that this listener refuses would bypass the relay")
        });
    }
    account::read_limits(reader)
}

/// Reads whether SOCKS5 clients and other relays may open UDP associations.
fn read_udp(
    reader: &TableReader<'_>,
    kind: Option<ListenerKind>,
    local: bool,
    has_peers: bool,
    keep_client_address: bool,
) -> bool {
    let (is_socks, is_section) = (is_socks(kind), kind == Some(ListenerKind::Section));
    let default = !keep_client_address && (local && (is_socks || is_section) || is_section && has_peers);
    let udp = reader.optional_or("udp", default);
    if reader.has("udp") && kind.is_some() && !is_socks && !is_section {
        reader.error(
            "udp",
            r#"this key only with kind = "auto", "socks" or "section": other kinds have no UDP associations"#,
        );
    } else if udp && keep_client_address {
        reader.error("udp", "false with keep_client_address: datagrams have the relay's address as their source");
    }
    udp
}

/// Reads whether SOCKS5 clients may accept connections by BIND.
fn read_socks_bind(reader: &TableReader<'_>, kind: Option<ListenerKind>) -> bool {
    if reader.has("socks_bind") && kind.is_some() && !is_socks(kind) {
        reader
            .error("socks_bind", r#"this key only with kind = "auto" or "socks": other kinds have no SOCKS5 clients"#);
    }
    reader.optional_or("socks_bind", false)
}

/// Reads whether the listener serves its PAC script. The script needs no password and shows the targets of routes, so
/// by default it is not served if the listener has users.
fn read_pac(reader: &TableReader<'_>, kind: Option<ListenerKind>) -> bool {
    let is_http = matches!(kind, Some(ListenerKind::Auto | ListenerKind::Http));
    if reader.has("pac") && !is_http && kind.is_some() {
        reader.error("pac", r#"this key only with kind = "auto" or "http""#);
    }
    reader.optional_or("pac", is_http && !reader.has("users"))
}

/// Reads when clients get the response that they are connected.
fn read_connect_mode(reader: &TableReader<'_>, kind: Option<ListenerKind>) -> ConnectMode {
    let transparent = kind.is_some_and(ListenerKind::is_transparent);
    let default = if transparent { ConnectMode::Hold } else { ConnectMode::Strict };
    if kind == Some(ListenerKind::Section) && reader.has("connect") {
        reader.error("connect", "no connect: the relay that accepted the client answers the client");
        return default;
    }
    let connect = reader.optional_or("connect", default);
    if connect == ConnectMode::Hold && !transparent {
        reader.error("connect", r#""strict" or "early": only tproxy, redirect and tun see a client's first packet"#);
    }
    connect
}

/// Reads the options for connections from other relays, which only section listeners have.
fn read_section(reader: &TableReader<'_>, kind: Option<ListenerKind>, shared: &ReadContext) -> Option<SectionListener> {
    reader.set_disclosure("key", Disclosure::Path);
    if kind != Some(ListenerKind::Section) {
        let keys = ["key", "peers", "fleet", "encrypt"].into_iter().filter(|key| reader.has(key) && kind.is_some());
        keys.for_each(|key| reader.error(key, "this key only with kind = \"section\""));
        return None;
    }
    let key = if reader.has("key") { shared.read_key(reader) } else { shared.private_key.clone() };
    if key.is_none() && !reader.has("key") {
        reader.error(
            "key",
            "a file with this relay's private key, made by `ekiden keygen`; or set private_key for all listeners",
        );
    }
    let fleet = reader.optional_or("fleet", false);
    if fleet && !shared.has_fleet {
        reader.error("fleet", "a table [fleet] in the configuration");
    }
    let (peers, encrypt) = (shared.read_peers(reader), reader.optional_or("encrypt", false));
    let key = key?;
    Some(SectionListener { public_key: key.public_key(), private_key: key, peers, fleet, encrypt })
}

/// Returns the ways to secure a listener that other hosts can reach.
fn closing_hint(kind: Option<ListenerKind>) -> &'static str {
    match kind {
        Some(ListenerKind::Tcp) => {
            "a loopback address, because every host could use this listener: bind to 127.0.0.1, or set allow_open = true"
        }
        Some(ListenerKind::Section) => {
            "a loopback address, because every relay could use this listener: set peers = FILE, or fleet = true, \
             or allow_open = true"
        }
        Some(
            ListenerKind::Auto
            | ListenerKind::Socks
            | ListenerKind::Http
            | ListenerKind::Tproxy
            | ListenerKind::Redirect
            | ListenerKind::Tun,
        )
        | None => {
            "a loopback address, because every host could use this listener: set users = FILE (made by htpasswd -B), \
             or allow_open = true"
        }
    }
}

/// Whether dialling `target` would connect to this relay's own listener at `bind`.
pub(super) fn is_loop(target: &Target, bind: SocketAddr) -> bool {
    let bind_ip = bind.ip().to_canonical();
    let local = bind_ip.is_loopback() || bind_ip.is_unspecified();
    let same_host = match &target.host {
        Host::Name(name) => local && (name == "localhost" || name.ends_with(".localhost")),
        // Linux connects 0.0.0.0 and :: to the host itself.
        Host::Ip(ip) if ip.is_unspecified() => local,
        Host::Ip(ip) => *ip == bind_ip || bind_ip.is_unspecified() && ip.is_loopback(),
    };
    same_host && target.port == bind.port()
}

/// Converts the URL of a `-L` to the equivalent table of `[[listener]]`; `None` after reporting a mistake.
pub(super) fn table_from_url(place: &KeyLocation<'_>, text: &str) -> Option<toml::de::DeTable<'static>> {
    let found = || Disclosure::Url.disclose_text(text);
    let address = text.split('?').next().unwrap_or_default();
    let with_scheme = format!("{}://{text}", ListenerKind::Auto.as_str());
    // The command line accepts the same addresses as `bind` in the file.
    let text = if BindAddress::read(address).is_ok() { &with_scheme } else { text };
    if text.contains('@') {
        place.error(found(), "?users=FILE (made by htpasswd -B) instead of a user and password");
        return None;
    }
    let Some(url) = OptionUrl::parse(text) else {
        place.error(found(), EXPECTED_URL);
        return None;
    };
    let target = Some(("target".to_owned(), url.path)).filter(|(_, path)| !path.is_empty());
    let bind_key = if url.scheme == ListenerKind::Tun.as_str() { "device" } else { "bind" };
    let fixed = [("kind".to_owned(), url.scheme.to_owned()), (bind_key.to_owned(), url.address.to_owned())];
    Some(table_from_pairs(
        fixed.into_iter().chain(target).chain(url.query.into_iter().flat_map(|(key, value)| split_nets(key, value))),
    ))
}

/// Splits `net=A,B`, which is short for `net=A&net=B`.
fn split_nets(key: String, value: String) -> Vec<(String, String)> {
    if key != "net" {
        return vec![(key, value)];
    }
    value.split(',').map(|net| (key.clone(), net.to_owned())).collect()
}

fn read_target(reader: &TableReader<'_>, kind: Option<ListenerKind>, bind: Option<SocketAddr>) -> Option<Target> {
    match kind? {
        ListenerKind::Tcp => {
            let target = reader.required("target")?;
            if bind.is_some_and(|bind| is_loop(&target, bind)) {
                reader.error("target", "an address other than the listener's own: connections would loop");
            }
            Some(target)
        }
        ListenerKind::Auto
        | ListenerKind::Socks
        | ListenerKind::Http
        | ListenerKind::Tproxy
        | ListenerKind::Redirect
        | ListenerKind::Tun
        | ListenerKind::Section => {
            if reader.has("target") {
                reader.error(
                    "target",
                    "no target: only kind = \"tcp\" has a target; with other kinds the client names the target",
                );
            }
            None
        }
    }
}

/// Checks that the access rules permit the fixed target, to which connections would fail otherwise. A name is checked
/// when it is resolved.
fn check_target(reader: &TableReader<'_>, target: &Target, access: &AccessRules) {
    if matches!(target.host, Host::Name(_)) {
        return;
    }
    let expected = match access.judge(&target.host, None, target.port) {
        Ok(()) => return,
        Err(Denied::Private) => "a public address, or allow_private = true in the same listener",
        Err(Denied::Listed) => "a target that deny does not forbid",
        Err(Denied::Unlisted) => "a target that allow permits",
    };
    reader.error("target", expected);
}

/// The protocol between clients and a listener, or the method of interception.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenerKind {
    /// SOCKS4, SOCKS4a, SOCKS5 and HTTP, detected from the first bytes.
    Auto,
    /// SOCKS4, SOCKS4a and SOCKS5.
    Socks,
    /// Requests to an HTTP forward proxy.
    Http,
    /// Forwarding of all connections to one fixed target.
    Tcp,
    /// Connections routed through this host, intercepted by TPROXY.
    Tproxy,
    /// Connections routed through this host or made by its programs, intercepted by address translation.
    Redirect,
    /// Connections to networks behind another relay, intercepted by TPROXY on a TUN device.
    Tun,
    /// Connections from other relays, authenticated by keys.
    Section,
}

impl ListenerKind {
    /// Whether connections are intercepted: clients do not address the listener.
    #[must_use]
    pub const fn is_transparent(self) -> bool {
        matches!(self, Self::Tproxy | Self::Redirect | Self::Tun)
    }

    /// Whether connections reach the listener by TPROXY.
    #[must_use]
    pub const fn uses_tproxy(self) -> bool {
        matches!(self, Self::Tproxy | Self::Tun)
    }

    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 8] =
        [Self::Auto, Self::Socks, Self::Http, Self::Tcp, Self::Tproxy, Self::Redirect, Self::Tun, Self::Section];

    /// Returns the name of the kind in the configuration, in logs and in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Socks => "socks",
            Self::Http => "http",
            Self::Tcp => "tcp",
            Self::Tproxy => "tproxy",
            Self::Redirect => "redirect",
            Self::Tun => "tun",
            Self::Section => "section",
        }
    }
}

//! `[[listener]]` and `-L`: the ways in, and the rules that keep one from being open by accident.

mod target;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ekiden_proto::addr::{Host, Target};

use super::place::Place;
use super::profiles::tuned;
use super::reader::Reader;
use super::shared::Shared;
use super::sharing::Weight;
use super::shows::Shows;
use super::url::{Url, table};
use super::value::{Bind, Name, Value};
use super::{Access, Connect, Kind, Listener, SectionListener, Tun, capture, tun};
use crate::users::Users;
use target::{check_target, target};

/// What a mistake in a `-L` says is expected.
const EXPECTED_URL: &str = "a listener like auto://127.0.0.1:1080, socks://ADDR, http://ADDR, tcp://ADDR/HOST:PORT or \
    section://ADDR?key=FILE&peers=FILE, tproxy://ADDR?interfaces=NAME or tun://DEVICE?net=NETWORK, with the keys of [[listener]] as ?key=value&key=value";

/// The listeners of one source.
#[derive(Default)]
pub(super) struct Listeners {
    /// The good ones.
    pub good: Vec<Arc<Listener>>,
    /// The addresses of all, also of those with other mistakes, and the keys of their tables.
    taken: Vec<(SocketAddr, String)>,
    /// The tunnels of all, also of those with other mistakes.
    tunnels: Vec<Tun>,
}

impl Listeners {
    /// Reads all listeners of one source.
    pub fn read(readers: Vec<Reader<'_>>, shared: &Shared) -> Self {
        let mut listeners = Self::default();
        let mut names: Vec<String> = Vec::new();
        let mut given: Vec<Option<String>> = Vec::new();
        for reader in &readers {
            let name = reader.optional("name").map(|Name(name)| name);
            if name.as_ref().is_some_and(|name| names.contains(name)) {
                reader.mistake("name", "a name that no other listener has");
            }
            names.extend(name.clone());
            given.push(name);
        }
        for (reader, given) in readers.into_iter().zip(given) {
            let kind = if reader.has("kind") { reader.optional("kind") } else { Some(Kind::Auto) };
            let tun = tun::read(&reader, kind, &listeners.tunnels);
            listeners.tunnels.extend(tun.clone());
            let bind = listeners.bind(&reader, kind, tun.as_ref());
            let listener = listener(&reader, kind, bind, tun, shared);
            capture::check_number(&reader, listener.as_ref(), &listeners.good);
            reader.finish();
            let Some(mut listener) = listener else { continue };
            listener.name = given.unwrap_or_else(|| free_name(&listener, &mut names));
            listeners.good.push(Arc::new(listener));
        }
        listeners
    }

    /// Reads the address. The kernel would let several of our sockets share it (`SO_REUSEPORT`), and clients would
    /// meet either listener by chance.
    fn bind(&mut self, reader: &Reader<'_>, kind: Option<Kind>, tun: Option<&Tun>) -> Option<SocketAddr> {
        if kind == Some(Kind::Tun) && !reader.has("bind") {
            return self.usual_bind(reader, tun?);
        }
        let Bind(bind) = reader.required("bind")?;
        if let Some((taken, owner)) = self.overlapping(bind) {
            reader.mistake("bind", format!("an address that no other listener has: {owner} has {taken}"));
        }
        self.taken.push((bind, reader.place().key));
        Some(bind)
    }

    /// The listener that the kernel would not let listen beside one at `bind`.
    pub fn overlapping(&self, bind: SocketAddr) -> Option<&(SocketAddr, String)> {
        self.taken.iter().find(|(taken, _)| overlap(*taken, bind))
    }

    /// The addresses of all, also of those with other mistakes.
    pub fn binds(&self) -> impl Iterator<Item = SocketAddr> {
        self.taken.iter().map(|(bind, _)| *bind)
    }

    /// The address of a tunnel that says none.
    fn usual_bind(&mut self, reader: &Reader<'_>, tun: &Tun) -> Option<SocketAddr> {
        let is_free = |bind: &SocketAddr| self.binds().all(|taken| taken.port() != bind.port());
        let bind = (0..u16::MAX - tun::FIRST_PORT).map(|place| tun.usual_bind(place)).find(is_free)?;
        self.taken.push((bind, reader.place().key));
        Some(bind)
    }
}

/// Whether bind(2) refuses one address while a socket listens at the other: the addresses are equal, or one is a wildcard,
/// `0.0.0.0` for IPv4 and `[::]` for both families (ip(7), ipv6(7)).
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (left, right) = (one.ip().to_canonical(), other.ip().to_canonical());
    let covers = |every: IpAddr, ip: IpAddr| every.is_unspecified() && (every.is_ipv6() || ip.is_ipv4());
    let same_host = left == right || covers(left, right) || covers(right, left);
    same_host && one.port() == other.port() && one.port() != 0
}

/// `auto-1080`, or `auto-1080-2` where that is taken; a tunnel has the name of its device.
fn free_name(listener: &Listener, names: &mut Vec<String>) -> String {
    let base = match &listener.tun {
        Some(tun) => tun.device.clone(),
        None => format!("{}-{}", listener.kind.word(), listener.bind.port()),
    };
    let numbered = (2..).map(|n| format!("{base}-{n}"));
    let name = std::iter::once(base.clone()).chain(numbered).find(|name| !names.contains(name));
    let name = name.expect("invariant: numbers do not run out");
    names.push(name.clone());
    name
}

/// Reads one listener, all but its name; `None` when there is a mistake in what it cannot do without.
fn listener(
    reader: &Reader<'_>,
    kind: Option<Kind>,
    bind: Option<SocketAddr>,
    tun: Option<Tun>,
    shared: &Shared,
) -> Option<Listener> {
    let target = target(reader, kind, bind);
    let users = users(reader, kind, shared);
    let section = section(reader, kind, shared);
    let connect = connect(reader, kind);
    let transparent = kind.is_some_and(Kind::is_transparent);
    let local = bind.is_some_and(|bind| bind.ip().to_canonical().is_loopback());
    // A value that is wrong is one mistake already.
    let allow_open = reader.optional("allow_open").unwrap_or(reader.has("allow_open"));
    let guarded = match kind {
        Some(Kind::Section) => reader.has("peers") || section.as_ref().is_some_and(|section| section.fleet),
        _ => reader.has("users"),
    };
    // Who connects to a transparent one itself gets nothing; it only carries what goes through this host anyway.
    if bind.is_some() && !local && !allow_open && !guarded && !transparent {
        reader.mistake("bind", closed(kind));
    }
    let access = Access {
        deny: reader.list("deny"),
        allow: if kind == Some(Kind::Tun) { tun::allow(reader, tun.as_ref()) } else { reader.list("allow") },
        allow_private: reader.or("allow_private", local || transparent),
        nat64: Arc::clone(&shared.nat64),
    };
    let capture = capture::read(reader, kind, (bind, tun.as_ref()), &access);
    if let (Some(tun), Some(bind)) = (&tun, bind) {
        tun::check_bind(reader, tun, bind);
    }
    let keep_client_address = reader.or("keep_client_address", kind == Some(Kind::Tproxy));
    let weight = reader.or("weight", Weight(1)).0;
    let profile = shared.profiles.choose(reader, "profile");
    let profile = if kind == Some(Kind::Section) { tuned(profile) } else { profile };
    if let (Some(target), Some(_)) = (&target, bind) {
        check_target(reader, target, &access);
    }
    let lacking = match kind? {
        Kind::Section => section.is_none(),
        Kind::Tun => tun.is_none(),
        kind => kind.is_transparent() && capture.is_none(),
    };
    if lacking {
        return None;
    }
    Some(Listener {
        name: String::new(),
        bind: bind?,
        kind: kind?,
        target,
        users,
        access,
        connect,
        capture,
        tun,
        keep_client_address,
        section,
        weight,
        profile,
    })
}

/// Reads who may use a listener for clients.
fn users(reader: &Reader<'_>, kind: Option<Kind>, shared: &Shared) -> Option<Arc<Users>> {
    let nobody = match kind {
        Some(Kind::Tcp) => "no users: a tcp listener has no way to ask who somebody is",
        Some(Kind::Tproxy | Kind::Redirect | Kind::Tun) => {
            "no users: clients do not know of this listener, and cannot be asked"
        }
        Some(Kind::Section) => "no users: relays have keys, and peers = FILE says which may come in",
        Some(Kind::Auto | Kind::Socks | Kind::Http) | None => return shared.users(reader),
    };
    if reader.has("users") {
        reader.mistake("users", nobody);
    }
    None
}

/// Reads when clients are told "connected".
fn connect(reader: &Reader<'_>, kind: Option<Kind>) -> Connect {
    let transparent = kind.is_some_and(Kind::is_transparent);
    let usual = if transparent { Connect::Hold } else { Connect::Strict };
    if kind == Some(Kind::Section) && reader.has("connect") {
        reader.mistake("connect", "nothing: the relay that the client came to has decided");
        return usual;
    }
    let connect = reader.or("connect", usual);
    if connect == Connect::Hold && !transparent {
        reader.mistake("connect", r#""strict" or "early": only tproxy, redirect and tun see a client's first packet"#);
    }
    connect
}

/// Reads what it takes to be called by relays, which is the business of section listeners only.
fn section(reader: &Reader<'_>, kind: Option<Kind>, shared: &Shared) -> Option<SectionListener> {
    reader.hide("key", Shows::Path);
    if kind != Some(Kind::Section) {
        let keys = ["key", "peers", "fleet", "encrypt"].into_iter().filter(|key| reader.has(key) && kind.is_some());
        keys.for_each(|key| reader.mistake(key, "nothing: only kind = \"section\" has it, for other relays"));
        return None;
    }
    let key = if reader.has("key") { shared.key(reader) } else { shared.private_key.clone() };
    if key.is_none() && !reader.has("key") {
        reader
            .mistake("key", "a file with our private key, made by `ekiden keygen`; or private_key, for all listeners");
    }
    let fleet = reader.or("fleet", false);
    if fleet && !shared.fleet {
        reader.mistake("fleet", "a table [fleet] that says which one");
    }
    let (peers, encrypt) = (shared.peers(reader), reader.or("encrypt", false));
    let key = key?;
    Some(SectionListener { public: key.public(), key, peers, fleet, encrypt })
}

/// The ways to make a listener safe that is open to others.
fn closed(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::Tcp) => {
            "a loopback address, because everybody could use this one: bind to 127.0.0.1, or set allow_open = true"
        }
        Some(Kind::Section) => {
            "a loopback address, because every relay could use this one: set peers = FILE, or fleet = true, \
             or allow_open = true"
        }
        Some(Kind::Auto | Kind::Socks | Kind::Http | Kind::Tproxy | Kind::Redirect | Kind::Tun) | None => {
            "a loopback address, because everybody could use this one: set users = FILE (made by htpasswd -B), \
             or allow_open = true"
        }
    }
}

/// Whether dialling `target` would come back to our own listener at `bind`.
pub(super) fn leads_to(target: &Target, bind: SocketAddr) -> bool {
    let own = bind.ip().to_canonical();
    let local = own.is_loopback() || own.is_unspecified();
    let same_host = match &target.host {
        Host::Name(name) => local && (name == "localhost" || name.ends_with(".localhost")),
        // Linux connects 0.0.0.0 and :: to the host itself.
        Host::Ip(ip) if ip.is_unspecified() => local,
        Host::Ip(ip) => *ip == own || own.is_unspecified() && ip.is_loopback(),
    };
    same_host && target.port == bind.port()
}

/// Turns the URL of a `-L` into the table that `[[listener]]` would be; `None` after noting why not.
pub(super) fn from_url(place: &Place<'_>, text: &str) -> Option<toml::de::DeTable<'static>> {
    let found = || Shows::Url.found_text(text);
    let address = text.split('?').next().unwrap_or_default();
    let with_scheme = format!("{}://{text}", Kind::Auto.word());
    // The command line accepts the same addresses as `bind` in the file.
    let text = if Bind::read(address).is_ok() { &with_scheme } else { text };
    if text.contains('@') {
        place.note(found(), "no user and password here, but ?users=FILE, made by htpasswd -B");
        return None;
    }
    let Some(url) = Url::parse(text) else {
        place.note(found(), EXPECTED_URL);
        return None;
    };
    let target = Some(("target".to_owned(), url.path)).filter(|(_, path)| !path.is_empty());
    let at = if url.scheme == Kind::Tun.word() { "device" } else { "bind" };
    let fixed = [("kind".to_owned(), url.scheme.to_owned()), (at.to_owned(), url.address.to_owned())];
    Some(table(fixed.into_iter().chain(target).chain(url.query.into_iter().flat_map(each_net))))
}

/// `net=A,B` is short for `net=A&net=B`.
fn each_net((key, value): (String, String)) -> Vec<(String, String)> {
    if key != "net" {
        return vec![(key, value)];
    }
    value.split(',').map(|net| (key.clone(), net.to_owned())).collect()
}

//! Chains of relays, with the address, the key and the files of each relay.

use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

use crate::harness::*;

/// Key of a home relay's listener that serves SOCKS and HTTP clients.
pub const AUTO: &str = "kind = \"auto\"\n";

/// The key, the address and the files of a relay, which outlive its process.
pub struct Site {
    pub key: Key,
    pub address: SocketAddr,
    pub folder: Folder,
}

/// An address that no other test uses, so that a relay can bind to it again after a restart. Each call returns another
/// loopback address, with a port of [`free_port`]: processes with the same loopback addresses have PIDs that differ by a
/// multiple of 250, and `free_port` gives them other ports, none of which the kernel chooses.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = 1 + u8::try_from(std::process::id() % 250).expect("less than 250");
    SocketAddr::from(([127, process, high, low], free_port()))
}

impl Site {
    pub fn new() -> Self {
        Self { key: Key::new(), address: own_address(), folder: Folder::new() }
    }

    /// The `[[relay]]` table of relays that dial this relay.
    pub fn table(&self, name: &str, more: &str) -> String {
        self.table_at(self.address, name, more)
    }

    /// Like `table`, for a relay that dials another address.
    pub fn table_at(&self, address: SocketAddr, name: &str, more: &str) -> String {
        let key = &self.key.public;
        format!("[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{key}\"\n{more}")
    }

    /// The argument of `-F` for a relay that dials this relay.
    pub fn url(&self) -> String {
        self.url_at(self.address)
    }

    /// Like `url`, for a relay that dials another address.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("section://{address}?key={}", self.key.public)
    }

    /// Writes the peers file: one line for each peer, with its public key, and its name and options.
    pub fn admit(&self, peers: &[(&str, &str)]) -> PathBuf {
        let line = |(key, rest): &(&str, &str)| format!("{key} {rest}\n");
        self.folder.write("peers", "# who may come in\n\n".to_owned() + &peers.iter().map(line).collect::<String>())
    }

    /// Writes the configuration of a relay with a section listener. `settings` are top-level keys first, then tables;
    /// `listener_keys` are further lines of its listener.
    pub fn write(&self, settings: &str, listener_keys: &str) -> PathBuf {
        let (key, address) = (self.key.file.display(), self.address);
        let listener =
            format!("[[listener]]\nname = \"section\"\nbind = \"{address}\"\nkind = \"section\"\n{listener_keys}");
        let text = format!("version = 1\nthreads = 1\nprivate_key = \"{key}\"\n{settings}\n{listener}");
        self.folder.write("ekiden.toml", text)
    }

    /// Starts a relay with a section listener.
    pub fn relay(&self, settings: &str, listener_keys: &str) -> Relay {
        start(&self.write(settings, listener_keys))
    }

    /// Writes the configuration of a relay with a listener for clients.
    pub fn write_home(&self, settings: &str, listener_keys: &str) -> PathBuf {
        let key = self.key.file.display();
        let listener = format!("[[listener]]\nname = \"door\"\nbind = \"127.0.0.1:0\"\n{listener_keys}");
        let text = format!("version = 1\nthreads = 1\nprivate_key = \"{key}\"\n{settings}\n{listener}");
        self.folder.write("ekiden.toml", text)
    }

    /// Starts a relay with a listener for clients.
    pub fn home(&self, settings: &str, listener_keys: &str) -> Relay {
        start(&self.write_home(settings, listener_keys))
    }
}

/// Starts a relay from a file, and waits for all its listeners.
pub fn start(file: &std::path::Path) -> Relay {
    let listeners = std::fs::read_to_string(file).unwrap().matches("[[listener]]").count();
    Relay::run(&["-c", file.to_str().unwrap()], listeners)
}

/// A `[[path]]` through `relays`, and a `[[route]]` that sends all targets over it.
pub fn route_all_through(name: &str, relays: &[String]) -> String {
    format!("[[path]]\nname = \"{name}\"\nrelays = {relays:?}\n[[route]]\npath = [\"{name}\"]\n")
}

/// The relay that determines the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// The home relay, by a `[[path]]`.
    Path,
    /// Each relay determines the next hop, by `forward`.
    Forward,
}

/// The settings of a chain.
pub struct Layout {
    pub relays: usize,
    pub routing: Routing,
    pub encrypt: bool,
    /// Lines of the home relay's listener.
    pub listener_keys: String,
    /// Further keys of the home relay's file, top-level keys first.
    pub home: String,
    /// Further lines of the last relay's file.
    pub far: String,
    /// Further lines of the last relay's listener.
    pub far_listener_keys: String,
}

impl Default for Layout {
    fn default() -> Self {
        let none = String::new;
        let listener_keys = AUTO.to_owned();
        Self {
            relays: 1,
            routing: Routing::Path,
            encrypt: false,
            listener_keys,
            home: none(),
            far: none(),
            far_listener_keys: none(),
        }
    }
}

/// A home relay and the relays behind it, each of which admits only the relay before it.
pub struct Chain {
    pub home: Relay,
    /// The relays behind the home relay, the nearest first.
    pub relays: Vec<Relay>,
    /// The site of the home relay, then the sites of `relays`.
    pub sites: Vec<Site>,
}

/// The name of relay number `at` of a chain; the nearest is 1.
pub fn relay_name(at: usize) -> String {
    format!("relay-{at}")
}

impl Layout {
    pub fn start(self) -> Chain {
        self.start_through(|address| address)
    }

    /// Like `start`; the home relay dials the first relay at the address that `intercept` returns for the relay's own
    /// address.
    pub fn start_through(self, intercept: impl FnOnce(SocketAddr) -> SocketAddr) -> Chain {
        let sites: Vec<Site> = (0..=self.relays).map(|_| Site::new()).collect();
        let mut relays: Vec<Relay> = (1..=self.relays).rev().map(|at| self.relay(&sites, at)).collect();
        relays.reverse();
        let dialled = intercept(sites[1].address);
        let home = sites[0].home(&self.home_settings(&sites, dialled), &self.listener_keys);
        Chain { home, relays, sites }
    }

    /// Starts relay number `at`, for the first time or again.
    pub fn relay(&self, sites: &[Site], at: usize) -> Relay {
        let last = at == self.relays;
        let far = |text: &str| if last { text.to_owned() } else { String::new() };
        let next_relays =
            if last { String::new() } else { self.next_relays(sites, at + 1..=at + 1, sites[at + 1].address) };
        let peers = sites[at].admit(&[(&sites[at - 1].key.public, "caller")]);
        let listener_keys = format!("peers = {peers:?}\nencrypt = {}\n{}", self.encrypt, far(&self.far_listener_keys));
        sites[at].relay(&format!("{}{next_relays}", far(&self.far)), &listener_keys)
    }

    fn home_settings(&self, sites: &[Site], dialled: SocketAddr) -> String {
        let next_relays = self.next_relays(sites, 1..=self.relays, dialled);
        let names: Vec<String> = (1..=self.relays).map(relay_name).collect();
        let route = if self.routing == Routing::Path { route_all_through("way", &names) } else { String::new() };
        match self.routing {
            Routing::Path => format!("{}{next_relays}{route}", self.home),
            Routing::Forward => format!("{next_relays}{}", self.home),
        }
    }

    /// The lines of a relay's file for the relays `relays`. The relay dials the first of them, at `dialled`.
    fn next_relays(&self, sites: &[Site], relays: RangeInclusive<usize>, dialled: SocketAddr) -> String {
        let (first, encrypt) = (*relays.start(), format!("encrypt = {}\n", self.encrypt));
        let address = |at: usize| if at == first { dialled } else { sites[at].address };
        match self.routing {
            Routing::Path => relays.map(|at| sites[at].table_at(address(at), &relay_name(at), &encrypt)).collect(),
            Routing::Forward => format!("forward = [\"{}&encrypt={}\"]\n", sites[first].url_at(dialled), self.encrypt),
        }
    }
}

impl Chain {
    /// Starts a chain of plain sections, whose path the home relay determines.
    pub fn start(relays: usize) -> Self {
        Layout { relays, ..Layout::default() }.start()
    }

    /// Like `start`, with encrypted sections if `encrypt`.
    pub fn start_with(relays: usize, encrypt: bool) -> Self {
        Layout { relays, encrypt, ..Layout::default() }.start()
    }

    /// Opens a session through the chain to a server of the test. Returns the sockets of the client and the server.
    pub fn pair(&self) -> (TcpStream, TcpStream) {
        pair(&self.home)
    }
}

/// Opens a session through a relay, and the relays behind it, to a server of the test. Returns the sockets of the
/// client and the server.
pub fn pair(home: &Relay) -> (TcpStream, TcpStream) {
    let (listener, address) = server();
    let client = socks5(home.address(), address).expect("a tunnel");
    (client, accept(&listener))
}

/// Waits for the closing event of a session whose target is known.
pub fn session_closed(relay: &mut Relay) -> Value {
    relay.next(|event| event["event"] == "closed" && event["target"].is_string())
}

/// The sum of all series of a metric whose labels contain `label`, on the metrics page of `relay`.
pub fn metric_sum(relay: &Relay, metric: &str, label: &str) -> usize {
    let page = relay.ask("/metrics");
    let series = page.lines().filter(|line| line.starts_with(metric) && line.contains(label));
    series.map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap()).sum()
}

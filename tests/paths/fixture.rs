//! The hosts `home`, `a`, `b`, `c` and `server`. Each relay has a link to home and a link to the server, and home has a
//! link to the server. The rate toward home can be limited at each host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::relays::RunningRelay;

/// A route with path selection.
pub const AUTO: &str = "[[route]]\npath = \"auto\"\n";

/// Bytes of a session, enough for an estimate of the rate.
pub const SESSION_BYTES: u64 = 1 << 20;

/// The server's address, the same for all hosts.
pub const SERVER: &str = "10.9.0.1";

/// The address of home's client listener.
pub const HOME: &str = "127.0.0.1:1080";

/// Hosts with a relay.
pub const RELAYS: [&str; 3] = ["a", "b", "c"];

/// Links in addition to those of the row, which connect home and `a`, `a` and `b`, `b` and `c`, `c` and the server.
const LINKS: [[(&str, &str, &str); 2]; 5] = [
    [("home", "to-b", "10.1.2.1/24"), ("b", "home", "10.1.2.2/24")],
    [("home", "to-c", "10.1.3.1/24"), ("c", "home", "10.1.3.2/24")],
    [("a", "server", "10.2.1.1/24"), ("server", "to-a", "10.2.1.2/24")],
    [("b", "server", "10.2.2.1/24"), ("server", "to-b", "10.2.2.2/24")],
    [("home", "server", "10.2.0.1/24"), ("server", "to-home", "10.2.0.2/24")],
];

/// The next hop of each host toward the server.
const ROUTES: [(&str, &str); 4] = [("home", "10.2.0.2"), ("a", "10.2.1.2"), ("b", "10.2.2.2"), ("c", "10.0.3.2")];

/// The interface of each host toward home.
const TOWARD_HOME: [(&str, &str); 4] = [("server", "to-home"), ("a", "left"), ("b", "home"), ("c", "home")];

/// The addresses at which home reaches the relays.
const ADDRESSES: [&str; 3] = ["10.0.0.2:7000", "10.1.2.2:7000", "10.1.3.2:7000"];

/// The network, the relays and the server.
pub struct Fixture {
    pub row: Row,
    pub home: RunningRelay,
    /// Relays in the order of [`RELAYS`]; `None` after a test has stopped the relay.
    pub relays: Vec<Option<RunningRelay>>,
    pub keys: Vec<Key>,
    target: SocketAddr,
}

impl Fixture {
    /// Builds the network and starts the relays; the configuration of home contains `routes`. The configurations of
    /// `a`, `b` and `c` contain no relays. Returns `None` and prints a message if namespaces are not permitted.
    pub fn new(routes: &str) -> Option<Self> {
        Self::with(routes, false, |_| String::new())
    }

    /// Like `new`. With `neighbours`, the configuration of each relay contains the neighbours in the row.
    /// `listener_keys` returns further lines for the listener of the relay with this name.
    pub fn with(routes: &str, neighbours: bool, listener_keys: impl Fn(&str) -> String) -> Option<Self> {
        let row = Row::of(&["home", "a", "b", "c", "server"], &[Family::V4])?;
        LINKS.iter().for_each(|ends| link(&row, *ends));
        row["server"].ip(&format!("address add {SERVER}/32 dev lo\n"));
        for (host, via) in ROUTES {
            row[host].ip(&format!("route add {SERVER}/32 via {via}\n"));
        }
        let keys: Vec<Key> = (0..4).map(|_| Key::new()).collect();
        let relays = RELAYS.iter().enumerate().map(|(at, name)| {
            let known = if neighbours { neighbours_of(at, &keys) } else { String::new() };
            let text = relay_file(at, &keys, &known, &listener_keys(name));
            Some(RunningRelay::start(&row[name], &text))
        });
        let relays = relays.collect();
        let home = RunningRelay::start(&row["home"], &home_file(&keys, routes));
        let target = serve_bytes(&row["server"]);
        Some(Self { row, home, relays, keys, target })
    }

    /// Limits the traffic from this host toward home to `mbit` Mbit/s.
    pub fn limit_rate(&self, host: &str, mbit: u32) {
        let (_, interface) = TOWARD_HOME.iter().find(|(name, _)| *name == host).expect("an interface toward home");
        let rate = format!("{mbit}mbit");
        let rest = ["rate", &rate, "burst", "32k", "latency", "50ms"];
        let command = ["qdisc", "replace", "dev", interface, "root", "tbf"];
        self.row[host].run("tc", &[&command[..], &rest].concat(), "");
    }

    /// Makes the server unreachable from this host.
    pub fn disconnect_server(&self, host: &str) {
        self.row[host].ip(&format!("route replace unreachable {SERVER}/32\n"));
    }

    /// Makes the server drop its packets to home's address on the direct link, so that direct connections get no
    /// answer.
    pub fn silence_direct_path(&self) {
        self.row["server"].ip("route add blackhole 10.2.0.1/32\n");
    }

    /// Reloads home with other routes.
    pub fn reload(&mut self, routes: &str) {
        let text = home_file(&self.keys, routes);
        self.home.reload(&text);
    }

    /// Opens a connection of a client on home to the server.
    pub fn open(&self) -> TcpStream {
        let target = self.target;
        self.row["home"].inside(|| socks5(HOME.parse().unwrap(), target)).expect("a connection to the server")
    }

    /// Returns the address and port of the server.
    pub const fn target(&self) -> SocketAddr {
        self.target
    }

    /// Runs a session that downloads `bytes` bytes. Returns the closing event.
    pub fn download(&mut self, bytes: u64) -> Value {
        request_bytes(&mut self.open(), bytes);
        self.home.relay.next(|event| event["event"] == "closed" && event["bytes_down"] == bytes)
    }

    /// Runs sessions of [`SESSION_BYTES`] until `row` consecutive sessions have a path that satisfies `wanted`. Returns
    /// the closing events of all sessions.
    pub fn run_until(&mut self, row: usize, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let mut closed: Vec<Value> = Vec::new();
        while closed.len() < row || !closed[closed.len() - row..].iter().all(|event| wanted(&path(event))) {
            closed.push(self.download(SESSION_BYTES));
            assert!(closed.len() < 80, "{:?}", closed.iter().map(path).collect::<Vec<_>>());
        }
        closed
    }

    /// Runs sessions until four in a row use a path that begins with `relay`. Returns their closing events.
    pub fn run_until_settled_on(&mut self, relay: char) -> Vec<Value> {
        self.run_until(4, |path| path.starts_with(relay))
    }

    /// Runs this number of sessions, and returns their paths.
    pub fn paths(&mut self, sessions: usize, bytes: u64) -> Vec<String> {
        (0..sessions).map(|_| path(&self.download(bytes))).collect()
    }
}

/// Returns the path in the closing event of a session without errors.
pub fn path(closed: &Value) -> String {
    assert_eq!(closed["end"], "finished", "{closed}");
    closed["path"].as_str().expect("a path").to_owned()
}

/// Requests `bytes` bytes from the server, and reads them all.
pub fn request_bytes(stream: &mut TcpStream, bytes: u64) {
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    let count = std::io::copy(stream, &mut std::io::sink()).expect("the complete stream");
    assert_eq!(count, bytes);
}

/// Starts a server on `host` that sends the requested number of bytes on each connection.
fn serve_bytes(host: &Host) -> SocketAddr {
    let (listener, port) = host.listen();
    thread::spawn(move || answer(&listener));
    SocketAddr::new(SERVER.parse().unwrap(), port)
}

fn answer(listener: &TcpListener) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let mut count = [0; 8];
            // The connection that loses a race carries no request.
            if stream.read_exact(&mut count).is_ok() {
                let bytes = vec![7; usize::try_from(u64::from_be_bytes(count)).unwrap()];
                let _ = stream.write_all(&bytes);
            }
        });
    }
}

/// Adds a link between two hosts of the row. Each end is the host, the name of the interface, and the address with the
/// prefix length.
fn link(row: &Row, [one, other]: [(&str, &str, &str); 2]) {
    let ((here, left, _), (there, right, _)) = (one, other);
    let peer = row[there].path();
    row[here].ip(&format!("link add {left} type veth peer name {right} netns {peer}\n"));
    for (host, interface, address) in [one, other] {
        row[host].ip(&format!("address add {address} dev {interface}\nlink set {interface} up\n"));
    }
    for host in [here, there] {
        eventually("interfaces that are up", || row[host].interfaces_are_up().then_some(()));
    }
}

/// Returns the `[[relay]]` tables of the neighbours of relay `at`, with addresses on the links of the row.
fn neighbours_of(at: usize, keys: &[Key]) -> String {
    let beside = |other: usize| format!("10.0.{}.{}:7000", at.min(other) + 1, if other > at { 2 } else { 1 });
    let others = (0..RELAYS.len()).filter(|other| other.abs_diff(at) == 1);
    others.map(|other| relay_table(other, &beside(other), keys)).collect()
}

fn relay_file(at: usize, keys: &[Key], known: &str, listener_keys: &str) -> String {
    let own = format!("private_key = {:?}\n", keys[at + 1].file);
    format!(
        "{own}{known}[[listener]]\nname = \"section\"\nkind = \"section\"\nbind = \"0.0.0.0:7000\"\nallow_open = true\n\
         allow_private = true\n{listener_keys}\n"
    )
}

fn relay_table(at: usize, address: &str, keys: &[Key]) -> String {
    let (name, key) = (RELAYS[at], &keys[at + 1].public);
    format!("[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{key}\"\n")
}

fn home_file(keys: &[Key], routes: &str) -> String {
    let known: String = (0..3).map(|at| relay_table(at, ADDRESSES[at], keys)).collect();
    format!("private_key = {:?}\n{known}{routes}[[listener]]\nname = \"door\"\nbind = \"{HOME}\"\n", keys[0].file)
}

//! The hosts `home`, `a`, `b`, `c` and `server`. Every relay has a link of its own to home and to the server, and home has one
//! to the server. What comes toward home can be slowed on each of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::boxes::Station;
use crate::harness::*;
use crate::network::*;

/// The server's address, by which all of them reach it.
pub const SERVER: &str = "10.9.0.1";

/// Where home's client listener is.
pub const HOME: &str = "127.0.0.1:1080";

/// The relays.
pub const RELAYS: [&str; 3] = ["a", "b", "c"];

/// Links beside the row's own, between home and `a`, `a` and `b`, `b` and `c`, `c` and the server.
const LINKS: [[(&str, &str, &str); 2]; 5] = [
    [("home", "to-b", "10.1.2.1/24"), ("b", "home", "10.1.2.2/24")],
    [("home", "to-c", "10.1.3.1/24"), ("c", "home", "10.1.3.2/24")],
    [("a", "server", "10.2.1.1/24"), ("server", "to-a", "10.2.1.2/24")],
    [("b", "server", "10.2.2.1/24"), ("server", "to-b", "10.2.2.2/24")],
    [("home", "server", "10.2.0.1/24"), ("server", "to-home", "10.2.0.2/24")],
];

/// How each host reaches the server.
const ROUTES: [(&str, &str); 4] = [("home", "10.2.0.2"), ("a", "10.2.1.2"), ("b", "10.2.2.2"), ("c", "10.0.3.2")];

/// The interface of each host that sends toward home.
const TOWARD_HOME: [(&str, &str); 4] = [("server", "to-home"), ("a", "left"), ("b", "home"), ("c", "home")];

/// Where home reaches each relay.
const ADDRESSES: [&str; 3] = ["10.0.0.2:7000", "10.1.2.2:7000", "10.1.3.2:7000"];

/// All of it.
pub struct Scene {
    pub row: Row,
    pub home: Station,
    /// Those that run.
    pub relays: Vec<Option<Station>>,
    pub keys: Vec<Key>,
    target: SocketAddr,
}

impl Scene {
    /// Starts it, where that is possible; `way` is what home's file says of routes. Relays know nobody to go on to.
    pub fn new(way: &str) -> Option<Self> {
        Self::with(way, false, |_| String::new())
    }

    /// The same, with relays that may know their neighbours in the row, and further lines of each one's listener.
    pub fn with(way: &str, neighbours: bool, entrance: impl Fn(&str) -> String) -> Option<Self> {
        let row = Row::of(&["home", "a", "b", "c", "server"], &[Family::V4])?;
        LINKS.iter().for_each(|ends| link(&row, *ends));
        row["server"].ip(&format!("address add {SERVER}/32 dev lo\n"));
        for (host, via) in ROUTES {
            row[host].ip(&format!("route add {SERVER}/32 via {via}\n"));
        }
        let keys: Vec<Key> = (0..4).map(|_| Key::new()).collect();
        let relays = RELAYS.iter().enumerate().map(|(at, name)| {
            let known = if neighbours { neighbours_of(at, &keys) } else { String::new() };
            let text = relay_file(at, &keys, &known, &entrance(name));
            Some(Station::start(&row[name], &text))
        });
        let relays = relays.collect();
        let home = Station::start(&row["home"], &home_file(&keys, way));
        let target = serve_bytes(&row["server"]);
        Some(Self { row, home, relays, keys, target })
    }

    /// What comes from this host toward home goes no faster than so many Mbit/s from now on.
    pub fn slow(&self, host: &str, mbit: u32) {
        let (_, interface) = TOWARD_HOME.iter().find(|(name, _)| *name == host).expect("a host with a way home");
        let rate = format!("{mbit}mbit");
        let rest = ["rate", &rate, "burst", "32k", "latency", "50ms"];
        let command = ["qdisc", "replace", "dev", interface, "root", "tbf"];
        self.row[host].run("tc", &[&command[..], &rest].concat(), "");
    }

    /// Whoever is at this host cannot reach the server.
    pub fn cut(&self, host: &str) {
        self.row[host].ip(&format!("route replace unreachable {SERVER}/32\n"));
    }

    /// Puts another way into force.
    pub fn reload(&mut self, way: &str) {
        let text = home_file(&self.keys, way);
        self.home.reload(&text);
    }

    /// A connection of a client to the server.
    pub fn open(&self) -> TcpStream {
        let target = self.target;
        self.row["home"].inside(|| socks5(HOME.parse().unwrap(), target)).expect("a way to the server")
    }

    /// Where the server is.
    pub const fn target(&self) -> SocketAddr {
        self.target
    }

    /// One session that takes so many bytes; its closing event.
    pub fn pull(&mut self, bytes: u64) -> Value {
        take(&mut self.open(), bytes);
        self.home.relay.next(|event| event["event"] == "closed" && event["bytes_down"] == bytes)
    }

    /// Sessions until a few in a row took a path that begins with `relay`; their paths.
    pub fn settles_on(&mut self, relay: char, bytes: u64) -> Vec<String> {
        const ROW: usize = 4;
        let mut paths: Vec<String> = Vec::new();
        while paths.len() < ROW || !paths[paths.len() - ROW..].iter().all(|path| path.starts_with(relay)) {
            paths.push(path(&self.pull(bytes)));
            assert!(paths.len() < 80, "not on {relay}: {paths:?}");
        }
        paths
    }

    /// The paths of so many sessions.
    pub fn paths(&mut self, sessions: usize, bytes: u64) -> Vec<String> {
        (0..sessions).map(|_| path(&self.pull(bytes))).collect()
    }
}

/// The path that a closing event tells of.
pub fn path(closed: &Value) -> String {
    assert_eq!(closed["end"], "finished", "{closed}");
    closed["path"].as_str().expect("a path").to_owned()
}

/// Asks the server for so many bytes, and takes them all.
pub fn take(stream: &mut TcpStream, bytes: u64) {
    stream.write_all(&bytes.to_be_bytes()).unwrap();
    let count = std::io::copy(stream, &mut std::io::sink()).expect("the stream goes on to its end");
    assert_eq!(count, bytes);
}

/// A server that sends as many bytes as it is asked for.
fn serve_bytes(host: &Host) -> SocketAddr {
    let (listener, port) = host.listen();
    thread::spawn(move || answer(&listener));
    SocketAddr::new(SERVER.parse().unwrap(), port)
}

fn answer(listener: &TcpListener) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        thread::spawn(move || {
            let mut count = [0; 8];
            // A connection that nobody wanted in the end asks for nothing.
            if stream.read_exact(&mut count).is_ok() {
                let bytes = vec![7; usize::try_from(u64::from_be_bytes(count)).unwrap()];
                let _ = stream.write_all(&bytes);
            }
        });
    }
}

/// One more link between two hosts of the row: on each, the name of its interface and the address of its end, with the length
/// of the network.
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

/// The row's own links are those by which neighbours reach each other.
fn neighbours_of(at: usize, keys: &[Key]) -> String {
    let beside = |other: usize| format!("10.0.{}.{}:7000", at.min(other) + 1, if other > at { 2 } else { 1 });
    let others = (0..RELAYS.len()).filter(|other| other.abs_diff(at) == 1);
    others.map(|other| relay_table(other, &beside(other), keys)).collect()
}

fn relay_file(at: usize, keys: &[Key], known: &str, entrance: &str) -> String {
    let own = format!("private_key = {:?}\n", keys[at + 1].file);
    format!(
        "{own}{known}[[listener]]\nname = \"section\"\nkind = \"section\"\nbind = \"0.0.0.0:7000\"\nallow_open = true\n\
         allow_private = true\n{entrance}\n"
    )
}

fn relay_table(at: usize, address: &str, keys: &[Key]) -> String {
    let (name, key) = (RELAYS[at], &keys[at + 1].public);
    format!("[[relay]]\nname = \"{name}\"\naddress = \"{address}\"\nkey = \"{key}\"\n")
}

fn home_file(keys: &[Key], way: &str) -> String {
    let known: String = (0..3).map(|at| relay_table(at, ADDRESSES[at], keys)).collect();
    format!("private_key = {:?}\n{known}{way}[[listener]]\nname = \"door\"\nbind = \"{HOME}\"\n", keys[0].file)
}

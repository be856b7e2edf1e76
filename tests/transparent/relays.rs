//! Relays on the hosts of a row: near the client, and at the far end of the link.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::harness::*;
use crate::network::*;

/// A listener that intercepts connections from interface `left`; `more` are further lines of its table.
pub fn intercepting_listener(more: &str) -> String {
    format!(
        "[[listener]]\nname = \"caught\"\nkind = \"tproxy\"\nbind = \"[::]:7001\"\ninterfaces = [\"left\"]\n{more}\n"
    )
}

/// The configuration and the files of a relay, also while it does not run.
pub struct Site {
    folder: Folder,
    text: String,
}

impl Site {
    fn new() -> Self {
        Self { folder: Folder::new(), text: String::new() }
    }

    /// Writes the configuration; `text` has no version.
    pub fn write(&mut self, text: &str) {
        self.text = format!("version = 1\nthreads = 2\n{text}");
        self.folder.write("ekiden.toml", &self.text);
    }

    /// The configuration file.
    pub fn file(&self) -> PathBuf {
        self.folder.0.join("ekiden.toml")
    }

    /// The command that runs the relay.
    pub fn command(&self) -> Command {
        let mut command = ekiden();
        command.arg("run").arg("-c").arg(self.file());
        command
    }

    /// Runs the relay on a host.
    pub fn start(self, host: &Host) -> RunningRelay {
        let listeners = self.text.matches("[[listener]]").count();
        let relay = host.inside(|| Relay::start(&mut self.command(), listeners));
        RunningRelay { relay, site: self }
    }

    /// Creates a key file. Returns its path and the public key.
    fn key(&self) -> (PathBuf, String) {
        let (key, file) = (Key::new(), self.folder.0.join("key"));
        std::fs::copy(&key.file, &file).expect("a folder of the test");
        (file, key.public.clone())
    }
}

/// A running relay, with its files.
pub struct RunningRelay {
    pub relay: Relay,
    site: Site,
}

impl RunningRelay {
    /// Starts a relay with this configuration.
    pub fn start(host: &Host, text: &str) -> Self {
        site(text).start(host)
    }

    /// Writes another configuration.
    pub fn configure(&mut self, text: &str) {
        self.site.write(text);
    }

    /// Writes another configuration, and signals the relay to load it.
    pub fn try_reload(&mut self, text: &str) {
        self.configure(text);
        self.relay.signal("HUP");
    }

    /// The PID of the process that answers at the admin socket.
    pub fn serving_process(&self) -> u32 {
        let view: Value = serde_json::from_str(&self.relay.ask("/api/upgrade")).expect("JSON");
        u32::try_from(view["pid"].as_u64().expect("a pid")).expect("a pid")
    }

    /// Writes another configuration, and waits until the relay has loaded it.
    pub fn reload(&mut self, text: &str) {
        self.try_reload(text);
        self.relay.next(|event| event["event"] == "reloaded");
    }

    /// Kills the relay by SIGKILL, so that its files and its state in the kernel remain.
    pub fn kill(mut self) -> Site {
        self.relay.signal("KILL");
        self.relay.exit_code();
        self.site
    }
}

/// A site with this configuration.
pub fn site(text: &str) -> Site {
    let mut site = Site::new();
    site.write(text);
    site
}

/// Kind of the host at the far end of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Far {
    /// A router without a relay.
    Router,
    /// A relay that intercepts connections.
    Transparent,
    /// A relay that the near relay dials, over a plain section.
    Section,
    /// A relay that the near relay dials, over an encrypted section.
    Encrypted,
}

impl Far {
    pub const ALL: [Self; 4] = [Self::Router, Self::Transparent, Self::Section, Self::Encrypted];

    /// Whether the near relay dials the far relay.
    pub fn is_dialled(self) -> bool {
        matches!(self, Self::Section | Self::Encrypted)
    }
}

/// The hosts `client`, `near`, `far` and `server` in a row, with a relay on `near` and, depending on `kind`, on `far`.
pub struct Pair {
    pub kind: Far,
    pub row: Row,
    pub near: RunningRelay,
    pub far: Option<RunningRelay>,
}

/// Options of the relays of a pair, beside their keys.
#[derive(Debug, Default, Clone, Copy)]
pub struct PairOptions<'a> {
    /// Tables of both configurations.
    pub settings: &'a str,
    /// Lines of the listeners for clients.
    pub listener: &'a str,
    /// Whether the server sees the address of the last relay instead of the client's address.
    pub hide: bool,
    /// Whether the section listener has an IPv4 address only.
    pub ipv4_section: bool,
}

impl Pair {
    /// Starts a pair. Returns `None`, with a message, if network namespaces are not permitted.
    pub fn new(kind: Far, options: PairOptions<'_>) -> Option<Self> {
        let row = Row::new(&["client", "near", "far", "server"])?;
        Some(Self::on(row, kind, options))
    }

    /// Starts a pair on these hosts.
    pub fn on(row: Row, kind: Far, options: PairOptions<'_>) -> Self {
        let PairOptions { settings, listener, hide, ipv4_section } = options;
        let keep = format!("keep_client_address = {}\n", !hide);
        let intercepting_listener = intercepting_listener(&(keep.clone() + listener));
        if !kind.is_dialled() {
            let text = format!("{settings}\n{intercepting_listener}");
            let far = (kind == Far::Transparent).then(|| RunningRelay::start(&row["far"], &text));
            return Self { near: RunningRelay::start(&row["near"], &text), far, kind, row };
        }
        let (mut near, mut far) = (Site::new(), Site::new());
        let ((near_key, near_name), (far_key, far_name)) = (near.key(), far.key());
        let peers = far.folder.write("peers", format!("{near_name} near\n"));
        let section_ip = if ipv4_section { "0.0.0.0" } else { "[::]" };
        far.write(&format!(
            "private_key = {far_key:?}\n{settings}\n[[listener]]\nname = \"section\"\nkind = \"section\"\n\
             bind = \"{section_ip}:7000\"\npeers = {peers:?}\nallow_private = true\n{keep}"
        ));
        let far = far.start(&row["far"]);
        let address = SocketAddr::new(row.left("far", row.families[0]), 7000);
        near.write(&format!(
            "private_key = {near_key:?}\n{settings}\n[[relay]]\nname = \"far\"\naddress = \"{address}\"\n\
             key = \"{far_name}\"\nencrypt = {}\n[[path]]\nname = \"long\"\nrelays = [\"far\"]\n[[route]]\n\
             path = [\"long\"]\n{intercepting_listener}",
            kind == Far::Encrypted
        ));
        Self { near: near.start(&row["near"]), far: Some(far), kind, row }
    }

    /// Connects the client to a new listener of the server. Returns the sockets of the client and the server.
    pub fn connect(&self, family: Family) -> (TcpStream, TcpStream) {
        let (listener, address) = self.row.server(family);
        self.connect_to(&listener, address)
    }

    pub fn connect_to(&self, listener: &TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
        let client = self.row["client"].connect(address);
        let server = accept(listener);
        (client, server)
    }

    /// The error of a connection from the client to `address`, which must fail.
    pub fn connect_error(&self, address: SocketAddr) -> io::Error {
        self.row["client"].try_connect(address).expect_err("the connection fails")
    }

    /// The closing event of each relay for a session with this server, the nearest first.
    pub fn closed(&mut self, server: SocketAddr) -> Vec<Value> {
        let closed = |event: &Value| event["event"] == "closed" && event["target"] == server.to_string();
        let relays = [Some(&mut self.near), self.far.as_mut()];
        let events: Vec<Value> = relays.into_iter().flatten().map(|running| running.relay.next(closed)).collect();
        assert_eq!(events[0]["path"], if self.kind.is_dialled() { "long" } else { "direct" }, "{events:?}");
        assert!(events[1..].iter().all(|event| event["path"] == "direct"), "{events:?}");
        events
    }

    /// Like `closed`; the sessions of all relays must have ended with `end`.
    pub fn all_closed(&mut self, server: SocketAddr, end: &str) {
        for event in self.closed(server) {
            assert_eq!(event["end"], end, "far: {:?}: {event}", self.kind);
        }
    }
}

/// Starts a pair of each kind, and runs `check` on it for both families.
pub fn each(options: PairOptions<'_>, check: impl Fn(&mut Pair, Family)) {
    for kind in Far::ALL {
        let Some(mut pair) = Pair::new(kind, options) else { return };
        for family in BOTH {
            eprintln!("far: {kind:?}, {family:?}");
            check(&mut pair, family);
        }
    }
}

/// Like `each`, for slow cases: runs each kind with one family only.
pub fn each_kind(options: PairOptions<'_>, check: impl Fn(&mut Pair, Family)) {
    for (kind, family) in Far::ALL.into_iter().zip(BOTH.into_iter().cycle()) {
        let Some(mut pair) = Pair::new(kind, options) else { return };
        eprintln!("far: {kind:?}, {family:?}");
        check(&mut pair, family);
    }
}

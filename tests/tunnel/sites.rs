//! Two sites and the long link between them, as the hosts client - left - right - server. `left` and `right` are the
//! boxes: each runs a relay and is the router of the client's or the server's network, and its only route to the other
//! network is its tunnel.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use serde_json::Value;

use crate::harness::*;
use crate::network::*;
use crate::relays::RunningRelay;

/// Name of the TUN device of both boxes.
pub const DEVICE: &str = "ekiden0";

/// The hosts, and the relays on the boxes.
pub struct Sites {
    pub row: Row,
    pub left: RunningRelay,
    pub right: RunningRelay,
    pub configs: BoxConfigs,
}

/// The configurations of the relays on the boxes.
pub struct BoxConfigs {
    pub left: String,
    pub right: String,
    _files: (Key, Key, Folder),
}

/// Sends a request to the server and a reply to the client, and checks both.
pub fn exchange(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"question").unwrap();
    assert_eq!(read_exactly(server, 8), b"question");
    server.write_all(b"answer").unwrap();
    assert_eq!(read_exactly(client, 6), b"answer");
}

/// Returns the names of all TUN interfaces, and the device of each route to any interface but `left`, `right` and `lo`,
/// as ip(8) shows them.
pub fn tunnel_devices(host: &Host) -> Vec<String> {
    let links = host.run("ip", &["-o", "link", "show", "type", "tun"], "");
    let links = links.lines().filter_map(|line| Some(line.split(": ").nth(1)?.to_owned()));
    let routes = ["-4", "-6"].map(|flag| host.run("ip", &[flag, "route", "show"], "")).concat();
    let other = |name: &str| !matches!(name, "left" | "right" | "lo");
    let after_dev = |line: &str| line.split(" dev ").nth(1)?.split(' ').next().map(str::to_owned);
    let routes: Vec<_> = routes.lines().filter_map(after_dev).filter(|name| other(name)).collect();
    links.chain(routes).collect()
}

/// Transfers 2 MB, enough for the windows to grow, and checks every byte.
pub fn check_transfer(from: &mut TcpStream, to: &mut TcpStream) {
    let sent = pattern(2_000_000);
    let got = thread::scope(|scope| {
        scope.spawn(|| from.write_all(&sent).unwrap());
        read_exactly(to, sent.len())
    });
    assert!(got == sent, "bytes were lost or swapped");
}

/// The network of a link for each family. Link 0 is the client's network, link 2 the server's network.
pub fn networks(families: &[Family], link: u8) -> Vec<String> {
    let net = |family: &Family| match family {
        Family::V4 => format!("10.0.{link}.0/24"),
        Family::V6 => format!("fd00:0:0:{link}::/64"),
    };
    families.iter().map(net).collect()
}

/// The hosts, without routes between the sites. `None` where network namespaces are not permitted.
pub fn hosts(families: &'static [Family]) -> Option<Row> {
    let row = Row::of(&["client", "left", "right", "server"], families)?;
    for family in families {
        let net = &networks(&[*family], 2)[0];
        let flag = if net.contains(':') { "-6" } else { "-4" };
        row["left"].run("ip", &[flag, "route", "del", net], "");
        for host in ["left", "right"] {
            row[host].run("ip", &[flag, "route", "del", "default"], "");
        }
    }
    Some(row)
}

impl BoxConfigs {
    /// Configures relays that dial each other over the first family of `row`. `tun` holds further lines for the
    /// listeners of kind `tun`.
    pub fn new(row: &Row, tun: &str) -> Self {
        let (left, right, folder) = (Key::new(), Key::new(), Folder::new());
        let of = |(own, link): (&Key, u8), (other, at): (&Key, SocketAddr), behind: u8| {
            let peers = folder.write(&format!("peers-{link}"), format!("{} other\n", other.public));
            let nets = networks(row.families, behind);
            format!(
                "private_key = {:?}\n[[relay]]\nname = \"other\"\naddress = \"{at}\"\nkey = \"{}\"\nencrypt = true\n\
                 [[path]]\nname = \"long\"\nrelays = [\"other\"]\n[[route]]\nto = {nets:?}\npath = [\"long\"]\n\
                 [[listener]]\nname = \"section\"\nkind = \"section\"\nbind = \"[::]:7000\"\npeers = {peers:?}\n\
                 allow_private = true\nkeep_client_address = true\n\
                 [[listener]]\nname = \"tunnel\"\nkind = \"tun\"\ndevice = \"{DEVICE}\"\nnet = {nets:?}\n{tun}\n",
                own.file, other.public
            )
        };
        let family = row.families[0];
        let at = |host, address: fn(&Row, &str, Family) -> std::net::IpAddr| {
            SocketAddr::new(address(row, host, family), 7000)
        };
        Self {
            left: of((&left, 0), (&right, at("right", Row::left)), 2),
            right: of((&right, 2), (&left, at("left", Row::right)), 0),
            _files: (left, right, folder),
        }
    }
}

impl Sites {
    /// Creates the hosts and starts both relays; `tun` holds further lines for the listeners of kind `tun`. `None`
    /// where network namespaces are not permitted.
    pub fn new(tun: &str) -> Option<Self> {
        let row = hosts(&BOTH)?;
        let configs = BoxConfigs::new(&row, tun);
        Some(Self::start(row, configs))
    }

    /// Starts both relays on the hosts of `row` with these configurations.
    pub fn start(row: Row, configs: BoxConfigs) -> Self {
        let (left, right) =
            (RunningRelay::start(&row["left"], &configs.left), RunningRelay::start(&row["right"], &configs.right));
        Self { row, left, right, configs }
    }

    /// A listener on a host, and the address at which the other site reaches it.
    pub fn listen(&self, host: &str, family: Family) -> (TcpListener, SocketAddr) {
        let (listener, port) = self.row[host].listen();
        let ip = if host == "client" { self.row.right(host, family) } else { self.row.left(host, family) };
        (listener, SocketAddr::new(ip, port))
    }

    /// Connects two hosts. Returns the client's and the server's end of the connection.
    pub fn connect(&self, from: &str, to: &str, family: Family) -> (TcpStream, TcpStream) {
        let (listener, address) = self.listen(to, family);
        let client = self.row[from].connect(address);
        (client, accept(&listener))
    }

    /// Waits for the next `closed` event of the left and of the right relay.
    pub fn closed(&mut self) -> [Value; 2] {
        [self.left.relay.closed(), self.right.relay.closed()]
    }
}

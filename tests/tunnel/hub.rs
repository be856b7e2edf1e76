//! A hub between two sites: packets of one site with source addresses of the other site (forged packets) are dropped.
//!
//! The hosts are, in a row, victim - two - hub - one - attacker. The relays `one` and `two` have a tunnel to the
//! network of the hub, which is on the hub's loopback interface; the hub has a tunnel to the network of each site.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use ekiden_proto::addr::Network;

use crate::harness::*;
use crate::lanes::*;
use crate::network::*;
use crate::programs::is_any_missing;
use crate::relays::RunningRelay;
use crate::sites::networks;

/// The addresses of the hub in its own network.
const HUB: [&str; 2] = ["10.9.0.1", "fd09::1"];
const HUB_NETS: [&str; 2] = ["10.9.0.0/24", "fd09::/64"];

/// Numbers of the sites' links: link N has the networks 10.0.N.0/24 and fd00:0:0:N::/64.
const VICTIM: u8 = 0;
const ATTACKER: u8 = 3;

struct Hub {
    row: Row,
    hub: RunningRelay,
    one: RunningRelay,
    two: RunningRelay,
    files: Files,
}

/// Keys, peers files and configuration of the relays.
struct Files {
    keys: [Key; 3],
    folder: Folder,
    /// The configuration of the hub.
    text: String,
}

/// The relays that dial lanes. The tunnels of the other relays have `answer_only = true`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dials {
    All,
    OnlyHub,
    OnlySites,
}

fn relay(name: &str, at: IpAddr, key: &Key) -> String {
    let at = std::net::SocketAddr::new(at, 7000);
    format!("[[relay]]\nname = {name:?}\naddress = \"{at}\"\nkey = \"{}\"\nencrypt = true\n", key.public)
}

fn route(nets: &[String], relay: &str) -> String {
    format!(
        "[[path]]\nname = \"to-{relay}\"\nrelays = [{relay:?}]\n[[route]]\nto = {nets:?}\npath = [\"to-{relay}\"]\n"
    )
}

fn section(peers: &Path) -> String {
    format!(
        "[[listener]]\nname = \"section\"\nkind = \"section\"\nbind = \"[::]:7000\"\npeers = {peers:?}\n\
         allow_private = true\nkeep_client_address = true\n"
    )
}

fn tunnel(device: &str, nets: &[String], more: &str) -> String {
    format!("[[listener]]\nname = {device:?}\nkind = \"tun\"\ndevice = {device:?}\nnet = {nets:?}\n{more}\n")
}

/// The address of the hub in its own network.
fn hub(family: Family) -> IpAddr {
    HUB[usize::from(family == Family::V6)].parse().unwrap()
}

/// A UDP socket of `host` that is bound to `ip`.
fn bound(host: &Host, ip: IpAddr) -> UdpSocket {
    host.inside(|| UdpSocket::bind((ip, 0))).expect("a port")
}

impl Files {
    fn new(row: &Row, dials: Dials) -> Self {
        let (keys, folder) = ([Key::new(), Key::new(), Key::new()], Folder::new());
        let peers = folder.write("peers", "");
        let [hub, one, two] = &keys;
        let routed = |link, name: &str, at, key| {
            let nets = networks(&BOTH, link);
            let answers = dials == Dials::OnlySites;
            let way = if answers { String::new() } else { relay(name, at, key) + &route(&nets, name) };
            (way, tunnel(name, &nets, &format!("source = {:?}\nanswer_only = {answers}", HUB[0])))
        };
        let (to_one, tun_one) = routed(ATTACKER, "one", row.left("one", Family::V4), one);
        let (to_two, tun_two) = routed(VICTIM, "two", row.right("two", Family::V4), two);
        let text = format!("private_key = {:?}\n{to_one}{to_two}{}{tun_one}{tun_two}", hub.file, section(&peers));
        let files = Self { keys, folder, text };
        files.write_peers("", "");
        files
    }

    /// Writes the peers file of the hub; `one` and `two` are the options in the lines of these peers.
    fn write_peers(&self, one: &str, two: &str) {
        let [_, key_one, key_two] = &self.keys;
        self.folder.write("peers", format!("{} one {one}\n{} two {two}\n", key_one.public, key_two.public));
    }

    /// The configuration of the relay `one` or `two`.
    fn site(&self, name: &str, hub_at: IpAddr, dials: Dials) -> String {
        let [hub, one, two] = &self.keys;
        let own = if name == "one" { one } else { two };
        let peers = self.folder.write(&format!("peers-{name}"), format!("{} hub\n", hub.public));
        let nets = HUB_NETS.map(str::to_owned);
        let answers = dials == Dials::OnlyHub;
        let way = if answers { String::new() } else { relay("hub", hub_at, hub) + &route(&nets, "hub") };
        let tunnel = tunnel("ekiden0", &nets, &format!("answer_only = {answers}"));
        format!("private_key = {:?}\n{way}{}{tunnel}", own.file, section(&peers))
    }
}

impl Hub {
    fn new(dials: Dials, peers: [&str; 2]) -> Option<Self> {
        if is_any_missing(&["ping"]) {
            return None;
        }
        let row = Row::of(&["victim", "two", "hub", "one", "attacker"], &BOTH)?;
        let routes = |host: &str, link| {
            for (family, net) in ["-4", "-6"].into_iter().zip(networks(&BOTH, link)) {
                row[host].run("ip", &[family, "route", "del", &net], "");
            }
        };
        routes("two", ATTACKER);
        routes("hub", ATTACKER);
        for host in ["two", "hub", "one"] {
            row[host].run("ip", &["-4", "route", "del", "default"], "");
            row[host].run("ip", &["-6", "route", "del", "default"], "");
        }
        row["hub"].ip(&format!("address add {}/32 dev lo\naddress add {}/128 dev lo nodad\n", HUB[0], HUB[1]));
        let files = Files::new(&row, dials);
        files.write_peers(peers[0], peers[1]);
        let hub = RunningRelay::start(&row["hub"], &files.text);
        let site = |name: &str, hub_at| RunningRelay::start(&row[name], &files.site(name, hub_at, dials));
        let one = site("one", row.right("hub", Family::V4));
        let two = site("two", row.left("hub", Family::V4));
        for (family, length, quick) in [(Family::V4, 32, ""), (Family::V6, 128, "nodad")] {
            let forged = row.right("victim", family);
            row["attacker"].ip(&format!("address add {forged}/{length} dev left {quick}\n"));
        }
        Some(Self { row, hub, one, two, files })
    }

    fn address(&self, host: &str, family: Family) -> IpAddr {
        if host == "victim" { self.row.right(host, family) } else { self.row.left(host, family) }
    }

    fn boxes(&self) -> [&RunningRelay; 3] {
        [&self.hub, &self.one, &self.two]
    }

    /// Number of packets that the hub has received from the relay `from`, on lanes that either of the two dialled.
    fn received(&self, from: &str) -> u64 {
        let path = format!("to-{from}");
        let by = |lane: &&serde_json::Value| lane["by"] == *from || lane["by"] == *path;
        lanes(&self.hub).iter().filter(by).map(|lane| lane["packets_received"].as_u64().unwrap()).sum()
    }

    /// Sends packets from the attacker to the hub with the source address of the victim, until `count` of them have
    /// arrived.
    fn send_forged(&self, count: u64, family: Family) {
        let hub = hub(family);
        let socket = bound(&self.row["attacker"], self.address("victim", family));
        for _ in 0..count {
            retry_if_late("a forged packet at the hub", &self.boxes(), || {
                let before = self.received("one");
                socket.send_to(b"forged", (hub, 9)).unwrap();
                move || (self.received("one") > before).then_some(())
            });
        }
    }

    /// Checks that every ping from this host to the hub is answered.
    fn check_reaches_hub(&self, host: &str, family: Family) {
        let (from, hub) = (self.address(host, family).to_string(), hub(family));
        check_answered(&self.boxes(), &self.row[host], hub, 5, &["-I", &from]);
    }

    /// Checks that every ping from the hub to this host is answered.
    fn check_reached(&self, host: &str, family: Family) {
        let (address, from) = (self.address(host, family), hub(family).to_string());
        check_answered(&self.boxes(), &self.row["hub"], address, 5, &["-I", &from]);
    }

    /// Checks that the hub drops three forged packets, and that the victim still gets its packets. `number` is 1 for
    /// the first call, as the counter of the hub includes the packets of earlier calls.
    fn check_forgery(&self, number: u64, family: Family) {
        self.send_forged(3, family);
        self.check_reached("victim", family);
        assert_eq!(self.forged(), number * 3);
    }

    fn forged(&self) -> u64 {
        dropped(&self.hub, "section", "wrong_peer")
            + ["one", "two"].map(|name| dropped(&self.hub, name, "wrong_peer")).iter().sum::<u64>()
    }
}

/// Regression: after one packet with the source address of the victim, the hub sent the victim's packets to the
/// attacker.
#[test]
fn forged_source_does_not_divert_traffic() {
    let Some(sites) = Hub::new(Dials::All, ["", ""]) else { return };
    for (number, family) in (1..).zip(BOTH) {
        for host in ["attacker", "victim"] {
            sites.check_reaches_hub(host, family);
            sites.check_reached(host, family);
        }
        sites.check_forgery(number, family);
        sites.check_reached("attacker", family);
    }
    // Each drop is reported for the lane on which the packet arrived.
    let shown: Vec<_> =
        lanes(&sites.hub).into_iter().filter(|lane| !lane["dropped_for"]["wrong_peer"].is_null()).collect();
    assert!(shown.iter().all(|lane| lane["by"] == "one" || lane["by"] == "to-one"), "{shown:?}");
    let drops: u64 = shown.iter().map(|lane| lane["dropped_for"]["wrong_peer"].as_u64().unwrap()).sum();
    assert_eq!(drops, 6, "{shown:?}");
    let table = sites.hub.relay.status(&[]);
    assert!(table.contains("DROPPED FOR") && table.contains("wrong_peer "), "{table}");
}

/// On a lane that the hub has dialled, only packets from the networks that are routed to its path are accepted.
#[test]
fn forged_sources_are_dropped_on_dialled_lanes() {
    let Some(sites) = Hub::new(Dials::OnlyHub, ["", ""]) else { return };
    for (number, family) in (1..).zip(BOTH) {
        for host in ["attacker", "victim"] {
            sites.check_reached(host, family);
            sites.check_reaches_hub(host, family);
        }
        sites.check_forgery(number, family);
        assert_eq!(dropped(&sites.hub, "one", "wrong_peer"), number * 3, "drops at the listener of the dialled lane");
    }
}

/// Where the hub has no route to the sites, `from=` in the peers file binds networks to a peer. A reload applies a
/// changed `from=` to open lanes.
#[test]
fn peers_file_binds_networks_without_routes() {
    let (of_one, of_two) = (networks(&BOTH, ATTACKER).join(","), networks(&BOTH, VICTIM).join(","));
    let (one, two) = (format!("from={of_one}"), format!("from={of_two}"));
    let Some(mut sites) = Hub::new(Dials::OnlySites, [&one, &two]) else { return };
    for (number, family) in (1..).zip(BOTH) {
        for host in ["attacker", "victim"] {
            sites.check_reaches_hub(host, family);
            sites.check_reached(host, family);
        }
        sites.check_forgery(number, family);
    }
    let lanes_before = lanes(&sites.hub).len();
    let text = sites.files.text.clone();
    sites.files.write_peers(&one, "from=192.0.2.0/24");
    sites.hub.reload(&text);
    let (hub, victim) = (hub(Family::V4), sites.address("victim", Family::V4));
    // After the reload the hub no longer uses addresses that it learnt earlier, and drops packets from them.
    let unreached = dropped(&sites.hub, "two", "no_lane");
    let socket = bound(&sites.row["hub"], hub);
    socket.send_to(b"question", (victim, 9)).unwrap();
    eventually("the dropped packet", || (dropped(&sites.hub, "two", "no_lane") == unreached + 1).then_some(()));
    let socket = bound(&sites.row["victim"], victim);
    retry_if_late("a dropped packet at the hub", &sites.boxes(), || {
        let before = sites.forged();
        socket.send_to(b"question", (hub, 9)).unwrap();
        let sites = &sites;
        move || (sites.forged() == before + 1).then_some(())
    });
    sites.files.write_peers(&one, &two);
    sites.hub.reload(&text);
    sites.check_reaches_hub("victim", Family::V4);
    sites.check_reached("victim", Family::V4);
    assert_eq!(lanes(&sites.hub).len(), lanes_before, "the reloads have changed the lanes");
}

/// With two peers, no routes and no `from=`, no network is bound to a peer, so packets of both peers are dropped.
#[test]
fn packets_from_an_unbound_network_are_dropped() {
    let Some(mut sites) = Hub::new(Dials::OnlySites, ["", ""]) else { return };
    let hub = hub(Family::V4);
    for (number, host) in (1..).zip(["victim", "attacker"]) {
        let socket = bound(&sites.row[host], sites.address(host, Family::V4));
        let before = sites.forged();
        retry_if_late("a dropped packet", &sites.boxes(), || {
            socket.send_to(b"question", (hub, 9)).unwrap();
            || (sites.forged() > before).then_some(())
        });
        assert_eq!(sites.forged(), number);
    }
    // `ekiden check` and the log warn the operator.
    let file = sites.files.folder.write("checked.toml", format!("version = 1\n{}", sites.files.text));
    let checked = ekiden().arg("check").arg(file).output().expect("ekiden runs");
    let stderr = String::from_utf8(checked.stderr).unwrap();
    assert!(checked.status.success(), "{stderr}");
    for net in [ATTACKER, VICTIM].into_iter().flat_map(|link| networks(&BOTH, link)) {
        let net: Network = net.parse().unwrap();
        let hint = format!("no peer may send packets from {net}, so only TCP crosses");
        assert!(stderr.contains(&format!("hint: {hint}")), "{stderr}");
        wait_warning(&mut sites.hub, &hint);
    }
}

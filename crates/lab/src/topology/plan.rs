//! What a lab becomes: names of interfaces, addresses and routes, decided before anything is made.
//!
//! Link number i, in order of names, is the subnet 10.(100 + i / 256).(i % 256).0/30 with addresses .1 and .2.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::topology::routes::first_steps;
use crate::topology::{Backend, Lab, Link, Offload};

/// How many subnets there are.
pub const MAX_LINKS: usize = 156 * 256;

/// The longest name of an interface (`IFNAMSIZ` less the final NUL).
const LONGEST: usize = 15;

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The host it is on.
    pub host: String,
    /// The interface there.
    pub interface: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// Its hardware address, locally administered.
    pub mac: String,
}

/// A link and its ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// Its name.
    pub name: &'a str,
    /// What the lab says of it.
    pub link: &'a Link,
    /// Its subnet, without the length of the prefix.
    pub subnet: Ipv4Addr,
    /// Its ends, in the order of the lab.
    pub ends: [End; 2],
}

impl Line<'_> {
    /// Whether its ends are Ethernet interfaces, and not TUN devices.
    #[must_use]
    pub fn has_macs(&self, backend: Backend) -> bool {
        backend != Backend::Tun || self.link.is_bare()
    }

    /// The end on `host` and the opposite one.
    fn seen_from(&self, host: &str) -> Option<(&End, &End)> {
        let [a, b] = &self.ends;
        if a.host == host { Some((a, b)) } else { (b.host == host).then_some((b, a)) }
    }
}

/// All links of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan<'a> {
    lab: &'a Lab,
    /// In order of names.
    pub lines: Vec<Line<'a>>,
}

impl<'a> Plan<'a> {
    /// The plan of a lab of at most [`MAX_LINKS`] links.
    #[must_use]
    pub fn of(lab: &'a Lab) -> Self {
        let mut taken = BTreeMap::new();
        let lines = (0..).zip(&lab.links).map(|(number, (name, link))| line(number, name, link, &mut taken)).collect();
        Self { lab, lines }
    }

    /// The ends on `host`, each with the one opposite, in order of the names of links.
    pub fn ends_of(&self, host: &str) -> impl Iterator<Item = (&Line<'a>, &End, &End)> {
        self.lines.iter().filter_map(move |line| line.seen_from(host).map(|(here, there)| (line, here, there)))
    }

    /// The address a host is known by: that on its first link; loopback if it has none.
    #[must_use]
    pub fn address_of(&self, host: &str) -> Ipv4Addr {
        self.ends_of(host).next().map_or(Ipv4Addr::LOCALHOST, |(_, here, _)| here.address)
    }

    /// The commands of `ip` that give a host its addresses, neighbours and routes. No ARP crosses a link. Every route pins
    /// the host's congestion control, if the lab says which: a namespace cannot always be set to it by sysctl.
    #[must_use]
    pub fn commands(&self, host: &str, backend: Backend) -> Vec<String> {
        let settings = self.lab.hosts.get(host).cloned().unwrap_or_default();
        let congestion = settings.congestion.map_or_else(String::new, |name| format!(" congctl lock {name}"));
        // Also for what ethtool(8) does not switch off: superpackets of UDP, and those that are only forwarded.
        let segments = if settings.offload == Offload::Off { " gso_max_segs 1" } else { "" };
        let mut commands = vec!["link set dev lo up".to_owned()];
        for (line, here, there) in self.ends_of(host) {
            let End { interface, address, .. } = here;
            commands.push(format!("link set dev {interface} txqueuelen 10000{segments} up"));
            commands.push(format!("addr add {address}/30 dev {interface} noprefixroute"));
            if line.has_macs(backend) {
                let End { address, mac, .. } = there;
                commands.push(format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
            }
            commands.push(format!(
                "route add {}/30 dev {interface} proto kernel scope link src {address}{congestion}",
                line.subnet
            ));
        }
        commands.extend(self.routes(host).into_iter().map(|route| format!("route add {route}{congestion}")));
        commands
    }

    /// A route for each address of each host that is not on a link of this one. To addresses and not to subnets, so that
    /// a host is reached under all of its addresses even by those it does not forward for.
    fn routes(&self, from: &str) -> Vec<String> {
        let own: BTreeSet<&str> = self.ends_of(from).map(|(line, ..)| line.name).collect();
        let mut routes = Vec::new();
        for (host, step) in first_steps(self.lab, from) {
            let Some((_, here, via)) = self.ends_of(from).find(|(line, ..)| line.name == step.link) else { continue };
            for (_, there, _) in self.ends_of(host).filter(|(line, ..)| !own.contains(line.name)) {
                routes.push(format!("{}/32 via {} dev {}", there.address, via.address, here.interface));
            }
        }
        routes
    }
}

type Taken<'a> = BTreeMap<&'a str, BTreeSet<String>>;

fn line<'a>(number: u32, name: &'a str, link: &'a Link, taken: &mut Taken<'a>) -> Line<'a> {
    let subnet = u32::from(Ipv4Addr::new(10, 100, 0, 0)) + (number << 8);
    let [.., high, low] = number.to_be_bytes();
    let mut end = |side: u8| {
        let host = &link.ends[usize::from(side)];
        End {
            host: host.clone(),
            interface: unique(name, taken.entry(host).or_default()),
            address: Ipv4Addr::from(subnet + u32::from(side) + 1),
            mac: format!("02:00:{high:02x}:{low:02x}:00:{:02x}", side + 1),
        }
    };
    let ends = [end(0), end(1)];
    Line { name, link, subnet: Ipv4Addr::from(subnet), ends }
}

/// A name for an interface like that of the link: short enough, and no other on its host.
fn unique(link: &str, taken: &mut BTreeSet<String>) -> String {
    let free = |name: &String| !matches!(name.as_str(), "lo" | "all" | "default") && !taken.contains(name);
    let short = |length: usize| link.chars().take(length).collect::<String>();
    let numbered = (2..).map(|number| {
        let suffix = format!("-{number}");
        short(LONGEST - suffix.len()) + &suffix
    });
    let name = std::iter::once(short(LONGEST)).chain(numbered).find(free).unwrap_or_default();
    taken.insert(name.clone());
    name
}

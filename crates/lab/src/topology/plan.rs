//! Plan of a lab's network: interface names, addresses and routes, determined before any are created.
//!
//! Link number i, in order of names, is the subnet 10.(100 + i / 256).(i % 256).0/30 with addresses .1 and .2, and in labs
//! with IPv6 also fd00:0:0:i::/64 with addresses ::1 and ::2. Routes use the fewest links, then the first link by name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Backend, Family, Lab, Offload, host};
use ekiden_emulator::conditions::Conditions;
use ekiden_emulator::links::Link;

/// Maximum number of links: the number of subnets.
pub const MAX_LINKS: usize = 156 * 256;

/// Maximum length of an interface name (`IFNAMSIZ` less the final NUL).
const MAX_INTERFACE_NAME: usize = 15;

/// One end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkEnd {
    /// Name of the host.
    pub host: String,
    /// Interface on the host.
    pub interface: String,
    /// IPv4 address of the interface.
    pub address: Ipv4Addr,
    /// IPv6 address of the interface, in labs with IPv6.
    pub address6: Ipv6Addr,
    /// MAC address of the interface, locally administered.
    pub mac: String,
}

/// A link with its ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedLink<'a> {
    /// Name of the link.
    pub name: &'a str,
    /// The link in the lab.
    pub link: &'a Link,
    /// Whether the link needs no emulator.
    pub bare: bool,
    /// Address of the /30 subnet.
    pub subnet: Ipv4Addr,
    /// Ends, in the order of the lab.
    pub ends: [LinkEnd; 2],
}

impl PlannedLink<'_> {
    /// Returns whether the ends are Ethernet interfaces rather than TUN devices.
    #[must_use]
    pub fn is_ethernet(&self, backend: Backend) -> bool {
        backend != Backend::Tun || self.bare
    }

    /// Returns the end on `host` and the opposite end.
    fn ends_from(&self, host: &str) -> Option<(&LinkEnd, &LinkEnd)> {
        let [a, b] = &self.ends;
        if a.host == host { Some((a, b)) } else { (b.host == host).then_some((b, a)) }
    }
}

/// Addresses and interfaces of all links of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan<'a> {
    lab: &'a Lab,
    /// Links in order of names.
    pub links: Vec<PlannedLink<'a>>,
}

impl<'a> NetworkPlan<'a> {
    /// Plans a lab of at most [`MAX_LINKS`] links.
    #[must_use]
    pub fn new(lab: &'a Lab) -> Self {
        let mut used_names = BTreeMap::new();
        let links =
            (0..).zip(lab.links.keys()).map(|(number, name)| plan_link(number, name, lab, &mut used_names)).collect();
        Self { lab, links }
    }

    /// Returns the ends on `host`, each with the opposite end, in order of the names of links.
    pub fn ends_of(&self, host: &str) -> impl Iterator<Item = (&PlannedLink<'a>, &LinkEnd, &LinkEnd)> {
        self.links.iter().filter_map(move |line| line.ends_from(host).map(|(end, peer)| (line, end, peer)))
    }

    /// Returns the primary address of a host: that of its first link, or loopback without links.
    #[must_use]
    pub fn address_of(&self, host: &str) -> IpAddr {
        let first = self.ends_of(host).next();
        match self.lab.family {
            Family::Ipv4 => self.ipv4_of(host).into(),
            Family::Ipv6 => first.map_or(Ipv6Addr::LOCALHOST, |(_, end, _)| end.address6).into(),
        }
    }

    /// Returns the IPv4 address of the interface of the primary address.
    #[must_use]
    pub fn ipv4_of(&self, host: &str) -> Ipv4Addr {
        self.ends_of(host).next().map_or(Ipv4Addr::LOCALHOST, |(_, end, _)| end.address)
    }

    /// Returns the interface of `host` on the route to `to`.
    #[must_use]
    pub fn interface_toward(&self, host: &str, to: &str) -> Option<&str> {
        let link = next_hops(self.lab, host).get(to)?.link;
        self.ends_of(host).find(|(line, ..)| line.name == link).map(|(_, end, _)| end.interface.as_str())
    }

    /// Returns the address of `host` on the route to `to`.
    #[must_use]
    pub fn address_toward(&self, host: &str, to: &str) -> Option<Ipv4Addr> {
        let link = next_hops(self.lab, host).get(to)?.link;
        self.ends_of(host).find(|(line, ..)| line.name == link).map(|(_, end, _)| end.address)
    }

    /// Returns the addresses of all hosts other than `gate` whose route from `host` passes `gate`.
    #[must_use]
    pub fn addresses_behind(&self, host: &str, gate: &str) -> Vec<Ipv4Addr> {
        let passes = |to: &&String| {
            let route = route_hops(self.lab, host, to).unwrap_or_default();
            to.as_str() != gate && route.iter().any(|hop| hop.link.ends.iter().any(|end| end == gate))
        };
        let hosts = self.lab.hosts.keys().filter(passes);
        hosts.flat_map(|to| self.ends_of(to).map(|(_, end, _)| end.address)).collect()
    }

    /// Returns whether segmentation offload is off at a host's end of a link: by the lab file, or because netem is
    /// behind it.
    #[must_use]
    pub fn is_offload_disabled(&self, line: &PlannedLink<'_>, host: &str, backend: Backend) -> bool {
        let off = self.lab.hosts.get(host).is_some_and(|host| host.offload == Offload::Off);
        off || (backend == Backend::Netem && !line.bare)
    }

    /// Returns the `ip` commands that configure addresses, neighbours and routes of a host. No ARP crosses a link.
    /// Every route pins the host's congestion control, if the lab names one, because a namespace does not always accept
    /// it by sysctl. Routes also bound the host's window, see [`super::host`].
    #[must_use]
    pub fn ip_commands(&self, host: &str, backend: Backend) -> Vec<String> {
        let mut commands = vec!["link set dev lo up".to_owned()];
        for (line, end, peer) in self.ends_of(host) {
            let LinkEnd { interface, address, .. } = end;
            // gso_max_segs also covers superpackets that ethtool(8) does not disable: those of UDP and forwarded ones.
            let segments = if self.is_offload_disabled(line, host, backend) { " gso_max_segs 1" } else { "" };
            commands.push(format!("link set dev {interface} txqueuelen 10000{segments} up"));
            commands.push(format!("addr add {address}/30 dev {interface} noprefixroute"));
            if line.is_ethernet(backend) {
                let LinkEnd { address, mac, .. } = peer;
                commands.push(format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
            }
            commands.push(format!(
                "route add {}/30 dev {interface} proto kernel scope link src {address}{}",
                line.subnet,
                self.route_options(host, line, Family::Ipv4)
            ));
        }
        commands.extend(self.route_commands(host));
        if self.lab.family == Family::Ipv6 {
            commands.extend(self.ipv6_commands(host, backend));
        }
        commands
    }

    /// Returns the `ip` commands that configure IPv6 on a host, in addition to IPv4. Interfaces have no link-local
    /// addresses, so no router solicitation and no neighbour discovery crosses a link.
    fn ipv6_commands(&self, host: &str, backend: Backend) -> Vec<String> {
        let mut commands = Vec::new();
        let own_links: BTreeSet<&str> = self.ends_of(host).map(|(line, ..)| line.name).collect();
        for (line, end, peer) in self.ends_of(host) {
            let LinkEnd { interface, address6, .. } = end;
            commands.push(format!("addr add {address6}/64 dev {interface} nodad noprefixroute"));
            if line.is_ethernet(backend) {
                let LinkEnd { address6, mac, .. } = peer;
                commands.push(format!("neigh replace {address6} lladdr {mac} dev {interface} nud permanent"));
            }
            let options = self.route_options(host, line, Family::Ipv6);
            commands.push(format!("route add {} dev {interface} src {address6}{options}", peer.address6));
        }
        for (line, end, via, to) in self.hops_from(host) {
            let options = self.route_options(host, line, Family::Ipv6);
            for (_, peer, _) in self.ends_of(to).filter(|(line, ..)| !own_links.contains(line.name)) {
                let (to, via, interface) = (peer.address6, via.address6, &end.interface);
                commands.push(format!("route add {to} via {via} dev {interface} onlink{options}"));
            }
        }
        commands
    }

    /// Returns the first link to every other host, with its ends and the name of the other host.
    fn hops_from(&self, from: &str) -> Vec<(&PlannedLink<'a>, &LinkEnd, &LinkEnd, &'a str)> {
        let hop = |(to, step): (&'a str, NextHop<'a>)| {
            let (line, end, via) = self.ends_of(from).find(|(line, ..)| line.name == step.link)?;
            Some((line, end, via, to))
        };
        next_hops(self.lab, from).into_iter().filter_map(hop).collect()
    }

    /// Returns the route options for the connections of a host over a link.
    fn route_options(&self, host: &str, line: &PlannedLink<'_>, family: Family) -> String {
        let Some(host) = self.lab.hosts.get(host) else { return String::new() };
        let congestion = host.congestion.as_ref().map(|name| format!(" congctl lock {name}"));
        let packets = host.window.and_then(|window| host::max_packets(window, line.link.mtu, family));
        let packets = packets.map(|packets| format!(" cwnd lock {packets}"));
        let rto = host.rto_min.map(|rto| format!(" rto_min {}ms", rto.0.as_millis()));
        [congestion, packets, rto].into_iter().flatten().collect()
    }

    /// Returns a route to each address of each host that is not on a link of this host. Routes lead to addresses rather
    /// than subnets, so that hosts are reachable under all addresses, also from hosts they do not forward for.
    fn route_commands(&self, from: &str) -> Vec<String> {
        let own_links: BTreeSet<&str> = self.ends_of(from).map(|(line, ..)| line.name).collect();
        let mut routes = Vec::new();
        for (line, end, via, host) in self.hops_from(from) {
            let bounds = self.route_options(from, line, Family::Ipv4);
            for (_, peer, _) in self.ends_of(host).filter(|(line, ..)| !own_links.contains(line.name)) {
                let LinkEnd { address, .. } = peer;
                routes.push(format!("route add {address}/32 via {} dev {}{bounds}", via.address, end.interface));
            }
        }
        routes
    }
}

type UsedNames<'a> = BTreeMap<&'a str, BTreeSet<String>>;

fn plan_link<'a>(number: u32, name: &'a str, lab: &'a Lab, used_names: &mut UsedNames<'a>) -> PlannedLink<'a> {
    let link = &lab.links[name];
    let subnet = u32::from(Ipv4Addr::new(10, 100, 0, 0)) + (number << 8);
    let [.., high, low] = number.to_be_bytes();
    let mut end = |side: u8| {
        let host = &link.ends[usize::from(side)];
        LinkEnd {
            host: host.clone(),
            interface: unique_interface_name(name, used_names.entry(host).or_default()),
            address: Ipv4Addr::from(subnet + u32::from(side) + 1),
            // Each link has a /64 subnet.
            address6: Ipv6Addr::new(0xfd00, 0, 0, u16::from_be_bytes([high, low]), 0, 0, 0, u16::from(side) + 1),
            mac: format!("02:00:{high:02x}:{low:02x}:00:{:02x}", side + 1),
        }
    };
    let ends = [end(0), end(1)];
    PlannedLink { name, link, bare: lab.is_bare(name), subnet: Ipv4Addr::from(subnet), ends }
}

/// Returns an interface name derived from the name of the link, within the length limit and unique on the host.
fn unique_interface_name(link: &str, used_names: &mut BTreeSet<String>) -> String {
    let is_free = |name: &String| !matches!(name.as_str(), "lo" | "all" | "default") && !used_names.contains(name);
    let short = |length: usize| link.chars().take(length).collect::<String>();
    let numbered = (2..).map(|number| {
        let suffix = format!("-{number}");
        short(MAX_INTERFACE_NAME - suffix.len()) + &suffix
    });
    let name = std::iter::once(short(MAX_INTERFACE_NAME)).chain(numbered).find(is_free).unwrap_or_default();
    used_names.insert(name.clone());
    name
}

/// First hop of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// Name of the link.
    pub link: &'a str,
    /// Name of the host at the other end.
    pub neighbour: &'a str,
}

/// Returns the neighbours of a host, in order of the names of the links.
fn neighbours<'a>(lab: &'a Lab, host: &str) -> impl Iterator<Item = NextHop<'a>> {
    lab.links.iter().filter_map(move |(name, link)| {
        let [a, b] = [link.ends[0].as_str(), link.ends[1].as_str()];
        let neighbour = if a == host { b } else { a };
        (a == host || b == host).then_some(NextHop { link: name, neighbour })
    })
}

/// Returns the first hop from `from` to every reachable host. Only hosts with forwarding are intermediate hops.
#[must_use]
pub fn next_hops<'a>(lab: &'a Lab, from: &str) -> BTreeMap<&'a str, NextHop<'a>> {
    shortest_paths(lab, from, |host| lab.hosts.get(host).is_some_and(|host| host.forward))
}

/// A link of a route, with its conditions in the direction of the route.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RouteHop<'a> {
    /// The link of the hop.
    pub link: &'a Link,
    /// Conditions in the direction of the route.
    pub conditions: &'a Conditions,
}

/// Returns the links from `from` to `to`, in order, or `None` without a route.
#[must_use]
pub fn route_hops<'a>(lab: &'a Lab, from: &'a str, to: &str) -> Option<Vec<RouteHop<'a>>> {
    let (mut host, mut hops) = (from, Vec::new());
    while host != to {
        let step = *next_hops(lab, host).get(to)?;
        let link = lab.links.get(step.link)?;
        let conditions = if link.ends[0] == host { &link.forward } else { &link.reverse };
        hops.push(RouteHop { link, conditions });
        host = step.neighbour;
    }
    Some(hops)
}

/// Returns the sum of the link delays from `from` to `to` and back, in seconds, or `None` without a route.
#[must_use]
pub fn round_trip(lab: &Lab, from: &str, to: &str) -> Option<f64> {
    // sum() of an empty iterator is -0.0, which must not become a divisor.
    let delay = |hops: Vec<RouteHop<'_>>| {
        let delays = hops.iter().filter_map(|hop| hop.conditions.delay);
        delays.fold(0.0, |sum, delay| sum + delay.0.as_secs_f64())
    };
    Some(delay(route_hops(lab, from, to)?) + delay(route_hops(lab, to, from)?))
}

/// If `from` does not reach `to`: returns the first host on the shortest path that does not forward, or `None` if no
/// links lead to `to`.
#[must_use]
pub fn first_non_forwarding_host<'a>(lab: &'a Lab, from: &'a str, to: &'a str) -> Option<&'a str> {
    let mut host = shortest_paths(lab, from, |_| true).get(to)?.neighbour;
    while host != to && lab.hosts.get(host).is_some_and(|host| host.forward) {
        host = shortest_paths(lab, host, |_| true).get(to)?.neighbour;
    }
    Some(host)
}

/// Searches breadth first: fewer links first, and among equals the path whose first link has the smaller name.
fn shortest_paths<'a>(lab: &'a Lab, from: &str, forwards: impl Fn(&str) -> bool) -> BTreeMap<&'a str, NextHop<'a>> {
    let mut steps: BTreeMap<&str, NextHop<'_>> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(host) = queue.pop_front() {
        if host != from && !forwards(host) {
            continue;
        }
        for next in neighbours(lab, host) {
            if next.neighbour != from && !steps.contains_key(next.neighbour) {
                let first = steps.get(host).copied().unwrap_or(next);
                steps.insert(next.neighbour, first);
                queue.push_back(next.neighbour);
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_proto::units::{Bytes, Span};

    use super::*;
    use crate::topology::file;

    fn lab(links: &[(&str, [&str; 2])], forwarding: &[&str]) -> Lab {
        let mut text = "lab = 1\nname = \"x\"\n".to_owned();
        let hosts: BTreeSet<&str> = links.iter().flat_map(|(_, ends)| *ends).collect();
        for host in hosts {
            text += &format!("[host.{host}]\nforward = {}\n", forwarding.contains(&host));
        }
        for (name, [a, b]) in links {
            text += &format!("[link.{name}]\nends = [\"{a}\", \"{b}\"]\n");
        }
        file::parse_lab(text.parse().unwrap()).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn host_commands_set_addresses_neighbours_and_routes() {
        let mut lab = lab(&[("access", ["a", "r"]), ("wan", ["r", "b"])], &["r"]);
        let host = lab.hosts.entry("a".to_owned()).or_default();
        (host.congestion, host.window) = (Some("cubic".to_owned()), Some(Bytes(1_448_000)));
        let expected = [
            "link set dev lo up",
            "link set dev access txqueuelen 10000 up",
            "addr add 10.100.0.1/30 dev access noprefixroute",
            "neigh replace 10.100.0.2 lladdr 02:00:00:00:00:02 dev access nud permanent",
            "route add 10.100.0.0/30 dev access proto kernel scope link src 10.100.0.1 congctl lock cubic cwnd lock 1000",
            "route add 10.100.1.2/32 via 10.100.0.2 dev access congctl lock cubic cwnd lock 1000",
            "route add 10.100.1.1/32 via 10.100.0.2 dev access congctl lock cubic cwnd lock 1000",
        ];
        assert_eq!(NetworkPlan::new(&lab).ip_commands("a", Backend::Packet), expected);
        assert!(
            NetworkPlan::new(&lab).ip_commands("r", Backend::Packet).iter().all(|command| !command.contains("congctl"))
        );
        lab.hosts.entry("r".to_owned()).or_default().rto_min = Some(Span(Duration::from_secs(3)));
        let route = "route add 10.100.1.0/30 dev wan proto kernel scope link src 10.100.1.1 rto_min 3000ms";
        assert!(NetworkPlan::new(&lab).ip_commands("r", Backend::Packet).iter().any(|command| command == route));
    }

    #[test]
    fn a_host_of_an_ipv6_lab_has_both_families() {
        let mut lab = lab(&[("access", ["a", "r"]), ("wan", ["r", "b"])], &["r"]);
        let ipv4 = NetworkPlan::new(&lab).ip_commands("a", Backend::Packet);
        lab.family = Family::Ipv6;
        let host = lab.hosts.entry("a".to_owned()).or_default();
        (host.congestion, host.window) = (Some("cubic".to_owned()), Some(Bytes(1_428_000)));
        let plan = NetworkPlan::new(&lab);
        let commands = plan.ip_commands("a", Backend::Packet);
        let expected = [
            "addr add fd00::1/64 dev access nodad noprefixroute",
            "neigh replace fd00::2 lladdr 02:00:00:00:00:02 dev access nud permanent",
            "route add fd00::2 dev access src fd00::1 congctl lock cubic cwnd lock 1000",
            "route add fd00:0:0:1::2 via fd00::2 dev access onlink congctl lock cubic cwnd lock 1000",
            "route add fd00:0:0:1::1 via fd00::2 dev access onlink congctl lock cubic cwnd lock 1000",
        ];
        assert_eq!(commands[ipv4.len()..], expected);
        assert_eq!(
            (plan.address_of("b").to_string(), plan.ipv4_of("b").to_string()),
            ("fd00:0:0:1::2".into(), "10.100.1.2".into())
        );
    }

    #[test]
    fn routes_are_shortest_and_ties_are_broken_by_name() {
        let square = [("l1", ["a", "x"]), ("l2", ["a", "y"]), ("l3", ["y", "b"]), ("l4", ["x", "b"])];
        let lab = lab(&square, &["a", "b", "x", "y"]);
        let from_a = next_hops(&lab, "a");
        assert_eq!((from_a["b"].link, from_a["x"].link, from_a["y"].link), ("l1", "l1", "l2"));
        assert_eq!(next_hops(&lab, "b")["a"].link, "l3");
        assert_eq!(NetworkPlan::new(&lab).interface_toward("b", "a"), Some("l3"));
    }

    #[test]
    fn addresses_behind_a_host_include_all_hosts_beyond() {
        let row = [("1", ["a", "l"]), ("2", ["l", "x"]), ("3", ["x", "r"]), ("4", ["r", "b"]), ("5", ["b", "c"])];
        let lab = lab(&row, &["l", "x", "r", "b"]);
        let plan = NetworkPlan::new(&lab);
        let addresses = |all: &[[u8; 2]]| all.iter().map(|[net, host]| Ipv4Addr::new(10, 100, *net, *host)).collect();
        let behind: Vec<Ipv4Addr> = addresses(&[[3, 2], [4, 1], [4, 2]]);
        assert_eq!(plan.addresses_behind("l", "r"), behind, "b and c, but not x between l and r");
        assert_eq!(plan.addresses_behind("r", "l"), [Ipv4Addr::new(10, 100, 0, 1)]);
        assert_eq!(plan.address_toward("r", "l"), Some(Ipv4Addr::new(10, 100, 2, 2)));
    }

    #[test]
    fn names_of_interfaces_are_short_and_unique() {
        let long = "a-very-long-name-of-a-link";
        let longer = "a-very-long-name-of-another";
        let lab = lab(&[(long, ["a", "b"]), (longer, ["a", "b"]), ("lo", ["a", "b"])], &[]);
        let plan = NetworkPlan::new(&lab);
        let names: Vec<&str> = plan.ends_of("a").map(|(_, here, _)| here.interface.as_str()).collect();
        assert_eq!(names, ["a-very-long-nam", "a-very-long-n-2", "lo-2"]);
    }

    #[test]
    fn subnets_continue_after_256_links() {
        let names: Vec<String> = (0..300).map(|number| format!("l{number:03}")).collect();
        let links: Vec<_> = names.iter().map(|name| (name.as_str(), ["a", "b"])).collect();
        let lab = lab(&links, &[]);
        let plan = NetworkPlan::new(&lab);
        assert_eq!(plan.links[299].ends[1].address, Ipv4Addr::new(10, 101, 43, 2));
        assert_eq!(plan.links[299].ends[1].mac, "02:00:01:2b:00:02");
    }
}

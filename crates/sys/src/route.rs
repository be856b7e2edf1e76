//! Routes and egress interfaces (rtnetlink(7), `RTM_*ROUTE`; netdevice(7)), in the network namespace of the calling
//! thread.

use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ekiden_proto::addr::Network;
use libc::c_int;
use socket2::SockRef;

use crate::link;
use crate::netlink::{Message, Netlink, NetlinkRequest, attributes};

/// `struct rtmsg`: its length, and the offsets of its fields, in bytes.
const HEADER: usize = 12;
const TO_LENGTH: usize = 1;
const FROM_LENGTH: usize = 2;
const TABLE: usize = 4;
const PROTOCOL: usize = 5;
const SCOPE: usize = 6;
const TYPE: usize = 7;

/// A route in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The destination network.
    pub to: Network,
    /// The index of the interface; `None` if there are several.
    pub interface: Option<u32>,
    /// Whether the kernel added the route because the interface has an address in that network.
    pub is_connected: bool,
}

// From linux/rtnetlink.h: the metrics that a route locks, one bit each, and the minimum retransmission timeout in ms.
const RTAX_LOCK: c_int = 1;
const RTAX_RTO_MIN: c_int = 13;

/// A netlink socket for queries and changes of routes.
#[derive(Debug)]
pub struct Routes(Netlink);

impl Routes {
    /// Opens a netlink socket for routes.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        Netlink::open(libc::NETLINK_ROUTE).map(Self)
    }

    /// Returns the index of the egress interface of a connected socket.
    ///
    /// # Errors
    /// The kernel's error: the socket is not connected, or its route no longer exists.
    pub fn egress_interface(&self, socket: BorrowedFd<'_>) -> io::Result<u32> {
        self.query_socket(socket, interface)
    }

    /// Returns the lower bound of the retransmission timeout from the route of a connected socket; `None` if the route
    /// has none (`rto_min` of ip-route(8)). The bound takes precedence over that of the socket.
    ///
    /// # Errors
    /// As [`Routes::egress_interface`].
    pub fn locked_rto_min(&self, socket: BorrowedFd<'_>) -> io::Result<Option<Duration>> {
        self.query_socket(socket, |route| Some(rto_min(route)))
    }

    fn query_socket<T>(&self, socket: BorrowedFd<'_>, read: fn(&[u8]) -> Option<T>) -> io::Result<T> {
        let socket = SockRef::from(&socket);
        let address = |address: socket2::SockAddr| {
            let address = address.as_socket().ok_or(io::ErrorKind::Unsupported)?;
            io::Result::Ok(address.ip().to_canonical())
        };
        let (from, to) = (address(socket.local_addr()?)?, address(socket.peer_addr()?)?);
        let mark = socket.mark()?;
        // The kernel has no route from an address of another host: for a transparent socket the query omits the source.
        self.query(Some(from), to, mark, read).or_else(|_| self.query(None, to, mark, read))
    }

    /// Returns all routes of the table `main` that forward packets.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn list(&self) -> io::Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut header = [0; HEADER];
            header[0] = family as u8;
            self.0.send(NetlinkRequest::new(libc::RTM_GETROUTE, &header).with_flags(libc::NLM_F_DUMP))?;
            // The kernel creates each part of the list when the previous part is received.
            let mut buffer = vec![0; 32 << 10];
            loop {
                match self.0.receive(&mut buffer, |message| routes.extend(parse_route(&message))) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(routes)
    }

    /// Adds a route for `net` through the interface with index `interface`. `source` is the source address of this
    /// host's packets whose sockets have not chosen one.
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if an equal route exists, `EINVAL` if `source` is not an address of this host,
    /// `ENETDOWN`.
    pub fn add(&self, net: &Network, interface: u32, source: Option<IpAddr>) -> io::Result<()> {
        self.0.request(new_route(net, interface, source).with_flags(libc::NLM_F_EXCL))
    }

    /// Like [`Routes::add`], but in place of a route for `net`, to any interface, that [`Routes::add`] has added. There
    /// is a route for `net` at every moment.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` if `source` is not an address of this host, `ENETDOWN`.
    pub fn replace(&self, net: &Network, interface: u32, source: Option<IpAddr>) -> io::Result<()> {
        self.0.request(new_route(net, interface, source).with_flags(libc::NLM_F_REPLACE))
    }

    /// Removes the route for `net` through `interface`, if it exists.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove(&self, net: &Network, interface: u32) -> io::Result<()> {
        match self.0.request(route_request(libc::RTM_DELROUTE, net, interface)) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            removed => removed,
        }
    }

    fn query<T>(&self, from: Option<IpAddr>, to: IpAddr, mark: u32, read: fn(&[u8]) -> Option<T>) -> io::Result<T> {
        let (family, to) = octets(to);
        let from = from.map(|from| octets(from).1);
        let mut header = [0; HEADER];
        header[0] = family as u8;
        header[TO_LENGTH] = to.len() as u8 * 8;
        header[FROM_LENGTH] = from.as_ref().map_or(0, |from| from.len() as u8 * 8);
        let mut request = NetlinkRequest::new(libc::RTM_GETROUTE, &header)
            .with_attribute(c_int::from(libc::RTA_DST), &to)
            .with_attribute(c_int::from(libc::RTA_MARK), &mark.to_ne_bytes());
        if let Some(from) = from {
            request = request.with_attribute(c_int::from(libc::RTA_SRC), &from);
        }
        self.0.send(request)?;
        let mut buffer = [0; 1024];
        let mut found = Err(io::ErrorKind::InvalidData.into());
        self.0.receive(&mut buffer, |message| found = parse_answer(&message, read))?;
        found
    }
}

fn octets(ip: IpAddr) -> (c_int, Vec<u8>) {
    match ip {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    }
}

/// Returns a request about a route for `net` through `interface`.
fn route_request(kind: u16, net: &Network, interface: u32) -> NetlinkRequest {
    let (family, to) = octets(net.address());
    let mut header = [0; HEADER];
    header[0] = family as u8;
    header[TO_LENGTH] = net.prefix_len();
    header[TABLE] = libc::RT_TABLE_MAIN;
    header[PROTOCOL] = libc::RTPROT_STATIC;
    // The route has no gateway.
    header[SCOPE] = if net.address().is_ipv4() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
    header[TYPE] = libc::RTN_UNICAST;
    NetlinkRequest::new(kind, &header)
        .with_attribute(c_int::from(libc::RTA_DST), &to)
        .with_attribute(c_int::from(libc::RTA_OIF), &interface.to_ne_bytes())
}

/// Returns a request that creates a route for `net` through `interface`.
fn new_route(net: &Network, interface: u32, source: Option<IpAddr>) -> NetlinkRequest {
    let request = route_request(libc::RTM_NEWROUTE, net, interface).with_flags(libc::NLM_F_CREATE);
    match source.filter(|source| source.is_ipv4() == net.address().is_ipv4()) {
        Some(source) => request.with_attribute(c_int::from(libc::RTA_PREFSRC), &octets(source).1),
        None => request,
    }
}

/// Parses a route in a list; `None` for routes of other tables, and for routes that forward no packets.
fn parse_route(message: &Message<'_>) -> Option<Route> {
    let Message::Other(body) = message else { return None };
    let (header, rest) = body.split_at_checked(HEADER)?;
    let value =
        |expected_kind| attributes(rest).find(|(kind, _)| *kind == c_int::from(expected_kind)).map(|(_, value)| value);
    if header[TABLE] != libc::RT_TABLE_MAIN || header[TYPE] != libc::RTN_UNICAST {
        return None;
    }
    let to: IpAddr = match (c_int::from(header[0]), value(libc::RTA_DST)) {
        (libc::AF_INET, to) => to.map_or(Some([0; 4]), |to| to.try_into().ok())?.into(),
        (libc::AF_INET6, to) => to.map_or(Some([0; 16]), |to| to.try_into().ok())?.into(),
        _ => return None,
    };
    let to = Network::new(to, header[TO_LENGTH])?;
    let interface = value(libc::RTA_OIF).and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes);
    Some(Route { to, interface, is_connected: header[PROTOCOL] == libc::RTPROT_KERNEL })
}

/// Returns the value that `read` finds in an answer.
fn parse_answer<T>(message: &Message<'_>, read: fn(&[u8]) -> Option<T>) -> io::Result<T> {
    let route = match message {
        Message::Done(Err(error)) => return Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))),
        Message::Done(Ok(())) => return Err(io::ErrorKind::InvalidData.into()),
        Message::Other(route) => route.get(HEADER..).unwrap_or_default(),
    };
    read(route).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the interface of a route.
fn interface(route: &[u8]) -> Option<u32> {
    number(route, c_int::from(libc::RTA_OIF))
}

/// Returns the `rto_min` of a route; `None` unless the route locks it.
fn rto_min(route: &[u8]) -> Option<Duration> {
    let (_, metrics) = attributes(route).find(|(kind, _)| *kind == c_int::from(libc::RTA_METRICS))?;
    let locked = number(metrics, RTAX_LOCK)? & 1 << RTAX_RTO_MIN != 0;
    locked.then(|| number(metrics, RTAX_RTO_MIN)).flatten().map(|millis| Duration::from_millis(u64::from(millis)))
}

fn number(attributes_of: &[u8], expected_kind: c_int) -> Option<u32> {
    let (_, value) = attributes(attributes_of).find(|(kind, _)| *kind == expected_kind)?;
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Returns the name of the interface with index `index`.
///
/// # Errors
/// The kernel's error: the interface no longer exists.
pub fn interface_name(index: u32) -> io::Result<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: if_indextoname(3) writes at most IF_NAMESIZE bytes with the terminating zero, and `name` has as many.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return Err(io::Error::last_os_error());
    }
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..length]).into_owned())
}

/// Returns whether there is an interface of this name.
#[must_use]
pub fn has_interface(name: &str) -> bool {
    link::index(name).is_some()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::namespace::run_in_namespace;

    fn name_for(routes: &Routes, stream: &TcpStream) -> String {
        interface_name(routes.egress_interface(stream.as_fd()).unwrap()).unwrap()
    }

    #[test]
    fn egress_interface_follows_routes_and_rules() {
        let network = [
            "ip link add one type veth peer name two",
            "ip link set one up",
            "ip link set two up",
            "ip address add 192.0.2.1/24 dev one",
            "ip address add fd00::1/64 dev two nodad",
            "ip rule add fwmark 7 lookup 100",
            "ip route add 198.51.100.0/24 dev one",
            "ip route add 198.51.100.0/24 dev two table 100",
        ];
        run_in_namespace(&network, || {
            let routes = Routes::open().unwrap();
            for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
                let listener = TcpListener::bind(address).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                assert_eq!(name_for(&routes, &stream), "lo", "{address}");
            }
            let lookup = |from: Option<&str>, to: &str, mark| {
                let found = routes.query(from.map(|from| from.parse().unwrap()), to.parse().unwrap(), mark, interface);
                found.and_then(interface_name)
            };
            assert_eq!(lookup(Some("192.0.2.1"), "192.0.2.9", 0).unwrap(), "one");
            assert_eq!(lookup(None, "fd00::9", 0).unwrap(), "two");
            assert_eq!(lookup(None, "198.51.100.1", 0).unwrap(), "one");
            assert_eq!(lookup(None, "198.51.100.1", 7).unwrap(), "two");
            assert!(lookup(Some("203.0.113.1"), "192.0.2.9", 0).is_err(), "the source is not local");
            assert!(lookup(None, "203.0.113.1", 0).is_err(), "no route");
        });
    }

    #[test]
    fn routes_are_listed_added_replaced_and_removed() {
        let network = [
            "ip link add one type veth peer name two",
            "ip link set one up",
            "ip link set two up",
            "ip address add 192.0.2.1/24 dev one",
            "ip route add 198.51.100.0/24 dev one metric 7",
            "ip route add 198.51.100.0/25 dev one table 100",
            "ip route add unreachable 198.51.100.128/25",
        ];
        run_in_namespace(&network, || {
            let routes = Routes::open().unwrap();
            let [one, two] = ["one", "two"].map(|name| link::index(name).unwrap());
            let all = routes.list().unwrap();
            let to = |net: &str, is_connected| Route { to: net.parse().unwrap(), interface: Some(one), is_connected };
            assert!(all.contains(&to("198.51.100.0/24", false)) && all.contains(&to("192.0.2.0/24", true)), "{all:?}");
            assert_eq!(
                all.iter().filter(|route| route.to.prefix_len() == 25).count(),
                0,
                "routes of another table and unreachable routes are not listed"
            );
            for net in ["203.0.113.0/24", "fd00:1::/48"] {
                let net: Network = net.parse().unwrap();
                let ours = Route { to: net, interface: Some(two), is_connected: false };
                routes.add(&net, two, Some("192.0.2.1".parse().unwrap())).unwrap();
                assert!(routes.list().unwrap().contains(&ours));
                let again = routes.add(&net, two, None).unwrap_err();
                assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
                let to_net = || routes.list().unwrap().into_iter().filter(|route| route.to == net).collect::<Vec<_>>();
                routes.replace(&net, one, None).unwrap();
                assert_eq!(to_net(), [Route { interface: Some(one), ..ours }]);
                routes.remove(&net, two).unwrap();
                assert_eq!(to_net().len(), 1, "the route is through another interface");
                routes.replace(&net, two, None).unwrap();
                assert_eq!(to_net(), [ours]);
                routes.remove(&net, two).unwrap();
                assert!(to_net().is_empty());
            }
            let foreign = routes.add(&"203.0.113.0/24".parse().unwrap(), two, Some("203.0.113.9".parse().unwrap()));
            assert_eq!(foreign.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        });
    }

    #[test]
    fn rto_min_of_the_route_is_read() {
        let network = ["ip link set lo up", "ip route add local 127.7.0.0/16 dev lo rto_min 3s table local"];
        run_in_namespace(&network, || {
            let routes = Routes::open().unwrap();
            for (address, expected) in [("127.0.0.1:0", None), ("127.7.0.1:0", Some(Duration::from_secs(3)))] {
                let listener = TcpListener::bind(address).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                assert_eq!(routes.locked_rto_min(stream.as_fd()).unwrap(), expected, "{address}");
            }
        });
    }

    #[test]
    fn unconnected_sockets_and_unknown_names_have_no_interface() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Routes::open().unwrap().egress_interface(listener.as_fd()).is_err());
        assert!(has_interface("lo") && !has_interface("no such one") && !has_interface("a\0b"));
        assert!(interface_name(u32::MAX).is_err());
    }
}

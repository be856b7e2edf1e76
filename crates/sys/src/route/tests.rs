use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use super::*;
use crate::namespace::run_in_namespace;

fn name_for(routes: &Routes, stream: &TcpStream) -> String {
    interface_name(routes.egress_interface(stream.as_fd()).unwrap()).unwrap()
}

#[test]
fn connections_leave_by_their_routes() {
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
        assert!(lookup(Some("203.0.113.1"), "192.0.2.9", 0).is_err(), "from nowhere");
        assert!(lookup(None, "203.0.113.1", 0).is_err(), "to nowhere");
    });
}

#[test]
fn routes_come_and_go() {
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
        let (routes, two) = (Routes::open().unwrap(), link::index("two").unwrap());
        let all = routes.list().unwrap();
        let one = link::index("one");
        let to = |net: &str, is_connected| Route { to: net.parse().unwrap(), interface: one, is_connected };
        assert!(all.contains(&to("198.51.100.0/24", false)) && all.contains(&to("192.0.2.0/24", true)), "{all:?}");
        assert_eq!(
            all.iter().filter(|route| route.to.prefix_len() == 25).count(),
            0,
            "of another table, and to nowhere"
        );
        for net in ["203.0.113.0/24", "fd00:1::/48"] {
            let net: Network = net.parse().unwrap();
            let ours = Route { to: net, interface: Some(two), is_connected: false };
            routes.add(&net, two, Some("192.0.2.1".parse().unwrap())).unwrap();
            assert!(routes.list().unwrap().contains(&ours));
            let again = routes.add(&net, two, None).unwrap_err();
            assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
            routes.remove(&net, two).unwrap();
            assert!(!routes.list().unwrap().contains(&ours));
            assert_eq!(routes.remove(&net, two).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        }
        let foreign = routes.add(&"203.0.113.0/24".parse().unwrap(), two, Some("203.0.113.9".parse().unwrap()));
        assert_eq!(foreign.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    });
}

#[test]
fn a_bound_of_the_route_is_seen() {
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
fn what_is_no_connection_has_no_interface() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(Routes::open().unwrap().egress_interface(listener.as_fd()).is_err());
    assert!(has_interface("lo") && !has_interface("no such one") && !has_interface("a\0b"));
    assert!(interface_name(u32::MAX).is_err());
}

//! Sockets with addresses of other hosts (`IP_TRANSPARENT` of ip(7), `SO_MARK` of socket(7)), and a test for local
//! addresses (rtnetlink(7)).

use std::cell::Cell;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use libc::c_int;
use socket2::{Domain, SockRef};

use crate::netlink::{Message, Netlink, NetlinkRequest};
use crate::option::set;

/// The offsets of `rtm_dst_len` and `rtm_type` in a `struct rtmsg`, and its length, in bytes.
const PREFIX: usize = 1;
const TYPE: usize = 7;
const ROUTE_HEADER: usize = 12;

/// Sets whether a socket may bind to an address of another host, or accept connections from `tproxy`. On an IPv6 socket
/// this includes IPv4.
///
/// # Errors
/// The kernel's error: with `on`, `EPERM` without `CAP_NET_ADMIN` or `CAP_NET_RAW`.
pub fn set_transparent(socket: BorrowedFd<'_>, on: bool) -> io::Result<()> {
    let on = c_int::from(on);
    if SockRef::from(&socket).domain()? == Domain::IPV6 {
        set(socket, libc::SOL_IPV6, libc::IPV6_TRANSPARENT, &on)?;
    }
    set(socket, libc::SOL_IP, libc::IP_TRANSPARENT, &on)
}

/// Sets the firewall mark of all packets that a socket sends; the mark is set before routing.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN` or `CAP_NET_RAW`.
pub fn set_mark(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    SockRef::from(&socket).set_mark(mark)
}

thread_local! {
    /// The netlink socket for [`is_local`]. After an error the socket is not reused, because it could hold an unread
    /// answer.
    static ROUTES: Cell<Option<Netlink>> = const { Cell::new(None) };
}

/// Returns whether an address is local: the routing tables for packets without a mark deliver packets for the address
/// to this host, as in `fib daddr type local` of nft(8). The network namespace is that of the thread's first call.
///
/// # Errors
/// The query has failed. An address without a route is no error.
pub fn is_local(ip: IpAddr) -> io::Result<bool> {
    let socket = ROUTES.take().map_or_else(|| Netlink::open(libc::NETLINK_ROUTE), Ok)?;
    let local = query_local(&socket, ip)?;
    ROUTES.set(Some(socket));
    Ok(local)
}

fn query_local(socket: &Netlink, ip: IpAddr) -> io::Result<bool> {
    let (family, address) = match ip.to_canonical() {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let mut header = [0; ROUTE_HEADER];
    header[0] = family as u8;
    header[PREFIX] = address.len() as u8 * 8;
    socket
        .send(NetlinkRequest::new(libc::RTM_GETROUTE, &header).with_attribute(c_int::from(libc::RTA_DST), &address))?;
    let mut buffer = [0; 1024];
    let mut local = false;
    socket.receive(&mut buffer, |message| {
        local = matches!(message, Message::Other(route) if route.get(TYPE) == Some(&libc::RTN_LOCAL));
    })?;
    Ok(local)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{run_in_namespace, wait_for_route};
    use socket2::{Socket, Type};
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::AsFd;

    fn local(text: &str) -> bool {
        is_local(text.parse().unwrap()).unwrap()
    }

    #[test]
    fn local_addresses_are_distinguished_from_others() {
        let commands = [
            "ip link add there type veth peer name far",
            "ip address add 10.1.0.1/24 dev there",
            "ip -6 address add fd00:1::1/64 dev there nodad",
            "ip link set there up",
            "ip route add default via 10.1.0.2",
            "ip route add local 10.9.0.0/16 dev lo",
            "ip route add blackhole 10.8.0.0/16",
            "ip route add unreachable 10.7.0.0/16",
            // The rules that a transparent relay adds for its marked packets.
            "ip rule add fwmark 0xe1010000/0xffff0000 lookup 57345",
            "ip route add local default dev lo table 57345",
            "sysctl -q -w net.ipv4.ip_nonlocal_bind=1",
        ];
        run_in_namespace(&commands, || {
            wait_for_route("fd00:1::1");
            for here in ["127.0.0.1", "127.1.2.3", "10.1.0.1", "10.9.1.2", "::1", "fd00:1::1", "::ffff:10.1.0.1"] {
                assert!(local(here), "{here}");
            }
            let broadcast = "10.1.0.255";
            for there in [broadcast, "10.1.0.2", "10.8.0.1", "10.7.0.1", "192.0.2.1", "fd00:1::2", "2001:db8::1"] {
                assert!(!local(there), "{there}");
            }
        });
    }

    /// A socket bound to the address of a client on another host connects over `lo`, as in a relay that dials with the
    /// address of its client.
    #[test]
    fn a_transparent_socket_dials_from_any_address() {
        let commands = [
            "ip rule add fwmark 0xe1010000/0xffff0000 lookup 57345",
            "ip -6 rule add fwmark 0xe1010000/0xffff0000 lookup 57345",
            "ip route add local default dev lo table 57345",
            "ip -6 route add local default dev lo table 57345",
            "ip route add default dev lo",
            "ip -6 route add default dev lo",
        ];
        run_in_namespace(&commands, || {
            for (client, server) in [
                ("192.0.2.7:40000", "127.0.0.1:80"),
                ("[2001:db8::7]:40000", "[::1]:80"),
                ("[::ffff:192.0.2.8]:40001", "[::ffff:127.0.0.1]:81"),
            ] {
                let (client, server): (SocketAddr, SocketAddr) = (client.parse().unwrap(), server.parse().unwrap());
                let listener = Socket::new(Domain::for_address(server), Type::STREAM, None).unwrap();
                // The mark routes the packets to the client back to `lo`.
                set_mark(listener.as_fd(), 0xe101_0000).unwrap();
                listener.bind(&server.into()).unwrap();
                listener.listen(1).unwrap();
                let socket = Socket::new(Domain::for_address(client), Type::STREAM, None).unwrap();
                assert!(socket.bind(&client.into()).is_err(), "{client} is local");
                set_transparent(socket.as_fd(), true).unwrap();
                set_mark(socket.as_fd(), 0xe101_0000).unwrap();
                socket.bind(&client.into()).unwrap();
                socket.connect(&server.into()).unwrap();
                let (_, peer) = TcpListener::from(listener).accept().unwrap();
                assert_eq!(peer, client);
            }
        });
    }
}

//! The original destination of a connection that a firewall has redirected to this host (`SO_ORIGINAL_DST`,
//! linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h).

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use socket2::SockRef;

/// Returns the address that a client has connected to, for an accepted socket after `REDIRECT` or `DNAT`. For a
/// connection without address translation, this is the local address of the socket.
///
/// # Errors
/// The kernel's error: `ENOENT` for a connection that is not tracked, `ENOPROTOOPT` without connection tracking.
pub fn original_destination(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    let socket = SockRef::from(&socket);
    let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    // An IPv6 socket may carry IPv4, which is tracked as IPv4.
    let address = if local.ip().to_canonical().is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() };
    address?.as_socket().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::run_in_namespace;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    const REDIRECT: [&str; 5] = [
        "ip route add 192.0.2.0/24 dev lo",
        "ip -6 route add 2001:db8::/64 dev lo",
        "iptables -t nat -A OUTPUT -p tcp -d 192.0.2.1 --dport 80 -j REDIRECT --to-ports 7001",
        "iptables -t nat -A OUTPUT -p tcp -d 192.0.2.6 --dport 80 -j REDIRECT --to-ports 7002",
        "ip6tables -t nat -A OUTPUT -p tcp -d 2001:db8::1 --dport 80 -j REDIRECT --to-ports 7002",
    ];

    /// The original destination that `listener` gets for a client that dialled `to`.
    fn accepted_destination(listener: &TcpListener, to: &str) -> io::Result<SocketAddr> {
        let _client = TcpStream::connect(to).unwrap();
        original_destination(listener.accept().unwrap().0.as_fd())
    }

    #[test]
    fn redirected_connection_has_its_original_destination() {
        run_in_namespace(&REDIRECT, || {
            let v4 = TcpListener::bind("0.0.0.0:7001").unwrap();
            let both = TcpListener::bind("[::]:7002").unwrap();
            for (listener, to) in [
                (&v4, "192.0.2.1:80"),
                (&both, "192.0.2.6:80"),
                (&both, "[2001:db8::1]:80"),
                (&v4, "127.0.0.1:7001"),
                (&both, "[::1]:7002"),
            ] {
                assert_eq!(accepted_destination(listener, to).unwrap(), to.parse().unwrap());
            }
        });
    }

    #[test]
    fn untracked_connection_has_no_original_destination() {
        let untracked = ["iptables -t raw -A OUTPUT -j NOTRACK", "ip6tables -t raw -A OUTPUT -j NOTRACK"];
        run_in_namespace(&[&REDIRECT[..], &untracked].concat(), || {
            let listener = TcpListener::bind("[::]:7002").unwrap();
            for to in ["127.0.0.1:7002", "[::1]:7002"] {
                assert_eq!(accepted_destination(&listener, to).unwrap_err().raw_os_error(), Some(libc::ENOENT), "{to}");
            }
        });
    }
}

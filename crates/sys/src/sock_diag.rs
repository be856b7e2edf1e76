//! Destroys sockets by their addresses (sock_diag(7), `SOCK_DESTROY` of linux/sock_diag.h).

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::netlink::{Netlink, NetlinkRequest};

/// linux/sock_diag.h; not in every libc.
const SOCK_DESTROY: u16 = 21;

/// The cookie that matches any socket with the given addresses (`INET_DIAG_NOCOOKIE`).
const NO_COOKIE: [u8; 8] = [0xff; 8];

/// A netlink socket that destroys sockets of the calling thread's network namespace.
#[derive(Debug)]
pub struct SocketDestroyer(Netlink);

impl SocketDestroyer {
    /// Opens a netlink socket for socket diagnostics.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        Netlink::open(libc::NETLINK_SOCK_DIAG).map(Self)
    }

    /// Destroys this host's end of the TCP connection from `local` to `remote` in any state, including TIME_WAIT.
    ///
    /// # Errors
    /// The kernel's error: `ENOENT` if there is no such connection, `EOPNOTSUPP` if the kernel lacks the operation
    /// (`CONFIG_INET_DIAG_DESTROY`; for TIME_WAIT Linux 6.3), `EPERM` without `CAP_NET_ADMIN`.
    pub fn destroy(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<()> {
        self.0.request(NetlinkRequest::new(SOCK_DESTROY, &request(local, remote)))
    }
}

/// Encodes a `struct inet_diag_req_v2` (linux/inet_diag.h).
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut bytes = vec![family as u8, libc::IPPROTO_TCP as u8, 0, 0];
    bytes.extend(u32::MAX.to_ne_bytes()); // in all states
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    bytes.extend(address(local.ip()));
    bytes.extend(address(remote.ip()));
    bytes.extend([0; 4]); // on all interfaces
    bytes.extend(NO_COOKIE);
    bytes
}

fn address(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(v6) => v6.octets(),
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&v4.octets());
            bytes
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::namespace::{run_in_namespace, wait_for_route};

    /// Whether a client may use its port for the same server again.
    fn is_free(local: SocketAddr, remote: SocketAddr) -> bool {
        let socket = socket2::Socket::new(socket2::Domain::for_address(local), socket2::Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        socket.bind(&local.into()).and_then(|()| socket.connect(&remote.into())).is_ok()
    }

    #[test]
    fn connection_in_time_wait_is_destroyed() {
        run_in_namespace(&["ip address add fd00::1/64 dev lo nodad"], || {
            wait_for_route("fd00::1");
            for (address, unknown) in [("127.0.0.1:0", "192.0.2.1:1"), ("[fd00::1]:0", "[2001:db8::1]:1")] {
                let listener = TcpListener::bind(address).unwrap();
                let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (mut server, _) = listener.accept().unwrap();
                let (local, remote) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
                // The side that closes first enters TIME_WAIT.
                client.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(server.read(&mut [0]).unwrap(), 0);
                drop(server);
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
                drop(client);
                assert!(!is_free(local, remote), "{address}");
                let destroyer = SocketDestroyer::open().unwrap();
                destroyer.destroy(local, remote).unwrap();
                assert!(is_free(local, remote), "{address}");
                let missing = destroyer.destroy(local, unknown.parse().unwrap()).unwrap_err();
                assert_eq!(missing.raw_os_error(), Some(libc::ENOENT), "{address}");
            }
        });
    }
}

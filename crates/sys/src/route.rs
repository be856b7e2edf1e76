//! By which interface packets leave (rtnetlink(7), `RTM_GETROUTE`; netdevice(7)), in the network namespace of the calling
//! thread.

use std::ffi::CString;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use libc::c_int;
use socket2::SockRef;

use crate::netlink::{Message, Netlink, Request, attributes};

/// `struct rtmsg`: its length, and where `rtm_dst_len` and `rtm_src_len` are, in bytes.
const HEADER: usize = 12;
const TO_LENGTH: usize = 1;
const FROM_LENGTH: usize = 2;

/// A way to ask the kernel for routes.
#[derive(Debug)]
pub struct Routes(Netlink);

impl Routes {
    /// Opens one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open() -> io::Result<Self> {
        Netlink::open(libc::NETLINK_ROUTE).map(Self)
    }

    /// The number of the interface by which packets of a connected socket leave.
    ///
    /// # Errors
    /// The kernel's: not a connected socket, or no route any more.
    pub fn of_socket(&self, socket: BorrowedFd<'_>) -> io::Result<u32> {
        let socket = SockRef::from(&socket);
        let address = |address: socket2::SockAddr| {
            let address = address.as_socket().ok_or(io::ErrorKind::Unsupported)?;
            io::Result::Ok(address.ip().to_canonical())
        };
        let (from, to) = (address(socket.local_addr()?)?, address(socket.peer_addr()?)?);
        let mark = socket.mark()?;
        // The kernel knows no way from an address that is not its own: of a transparent socket only the rest is asked.
        self.ask(Some(from), to, mark).or_else(|_| self.ask(None, to, mark))
    }

    fn ask(&self, from: Option<IpAddr>, to: IpAddr, mark: u32) -> io::Result<u32> {
        let (family, to) = octets(to);
        let from = from.map(|from| octets(from).1);
        let mut header = [0; HEADER];
        header[0] = family as u8;
        header[TO_LENGTH] = to.len() as u8 * 8;
        header[FROM_LENGTH] = from.as_ref().map_or(0, |from| from.len() as u8 * 8);
        let mut request = Request::new(libc::RTM_GETROUTE, &header)
            .with(c_int::from(libc::RTA_DST), &to)
            .with(c_int::from(libc::RTA_MARK), &mark.to_ne_bytes());
        if let Some(from) = from {
            request = request.with(c_int::from(libc::RTA_SRC), &from);
        }
        self.0.send(request)?;
        let mut buffer = [0; 1024];
        let mut found = Err(io::ErrorKind::InvalidData.into());
        self.0.receive(&mut buffer, |message| found = interface(&message))?;
        found
    }
}

fn octets(ip: IpAddr) -> (c_int, Vec<u8>) {
    match ip {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    }
}

/// The interface of an answer.
fn interface(message: &Message<'_>) -> io::Result<u32> {
    let route = match message {
        Message::Done(Err(error)) => return Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))),
        Message::Done(Ok(())) => return Err(io::ErrorKind::InvalidData.into()),
        Message::Other(route) => route.get(HEADER..).unwrap_or_default(),
    };
    let number = attributes(route).find(|(kind, _)| *kind == c_int::from(libc::RTA_OIF));
    let number = number.and_then(|(_, value)| value.try_into().ok()).map(u32::from_ne_bytes);
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The name of interface number `index`.
///
/// # Errors
/// The kernel's: it has gone.
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

/// Whether there is an interface of this name.
#[must_use]
pub fn has_interface(name: &str) -> bool {
    // SAFETY: if_nametoindex(3) reads a string that ends with a zero, and a `CString` does.
    CString::new(name).is_ok_and(|name| unsafe { libc::if_nametoindex(name.as_ptr()) } != 0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::namespace::inside;

    fn name_for(routes: &Routes, stream: &TcpStream) -> String {
        interface_name(routes.of_socket(stream.as_fd()).unwrap()).unwrap()
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
        inside(&network, || {
            let routes = Routes::open().unwrap();
            for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
                let listener = TcpListener::bind(address).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                assert_eq!(name_for(&routes, &stream), "lo", "{address}");
            }
            let lookup = |from: Option<&str>, to: &str, mark| {
                let found = routes.ask(from.map(|from| from.parse().unwrap()), to.parse().unwrap(), mark);
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
    fn what_is_no_connection_has_no_interface() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Routes::open().unwrap().of_socket(listener.as_fd()).is_err());
        assert!(has_interface("lo") && !has_interface("no such one") && !has_interface("a\0b"));
        assert!(interface_name(u32::MAX).is_err());
    }
}

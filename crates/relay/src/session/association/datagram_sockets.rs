//! The sockets of an association. The rules about datagrams are elsewhere.

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use ekiden_sys::transparent::set_mark;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

use super::{BUFFER, MAX_HEADER, Session};

/// Largest number of datagrams to read from one socket before other sessions of the thread run.
const DATAGRAMS_PER_TURN: usize = 64;

/// Sockets toward the targets, one for each address family that this host has.
pub struct TargetSockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
}

impl TargetSockets {
    /// Opens one socket for each family.
    pub fn open(session: &Session) -> Self {
        let [v4, v6] =
            [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()].map(|any| open_family(session, any));
        Self { v4, v6 }
    }

    /// Sends a datagram if that is possible without waiting. Returns whether a socket has accepted the datagram.
    pub fn try_send(&self, payload: &[u8], address: SocketAddr) -> bool {
        let socket = if address.is_ipv4() { &self.v4 } else { &self.v6 };
        // Not through tokio, which treats a new socket as not writable until it has been polled.
        socket.as_ref().is_some_and(|socket| SockRef::from(socket).send_to(payload, &address.into()).is_ok())
    }

    /// Waits for datagrams of targets, and passes up to `DATAGRAMS_PER_TURN` of them to `each`.
    pub async fn receive(&self, each: impl FnMut(&mut [u8], usize, SocketAddr)) {
        let socket = tokio::select! {
            _ = readable(self.v4.as_ref()) => self.v4.as_ref(),
            _ = readable(self.v6.as_ref()) => self.v6.as_ref(),
        };
        if let Some(socket) = socket {
            each_datagram(socket, each);
        }
    }
}

fn open_family(session: &Session, any: IpAddr) -> Option<UdpSocket> {
    let socket = bind(SocketAddr::new(any, 0)).ok()?;
    if let Some(marks) = session.context.config.needed_marks() {
        set_mark(socket.as_fd(), marks.own()).ok()?;
    }
    Some(socket)
}

/// Opens a nonblocking UDP socket at an address.
///
/// # Errors
/// As socket(2) and bind(2).
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Returns the source address of packets to `target`. Uses connect(2) of a datagram socket, which sends nothing.
///
/// # Errors
/// There is no route.
pub fn source_address(target: SocketAddr) -> io::Result<SocketAddr> {
    let any: IpAddr = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    socket.local_addr()
}

/// Passes the datagrams that have arrived to `each`: the buffer, the length of the datagram, which begins after
/// `MAX_HEADER` bytes, and its source.
pub fn each_datagram(socket: &UdpSocket, mut each: impl FnMut(&mut [u8], usize, SocketAddr)) {
    BUFFER.with_borrow_mut(|buffer| {
        for _ in 0..DATAGRAMS_PER_TURN {
            match socket.try_recv_from(&mut buffer[MAX_HEADER..]) {
                Ok((length, from)) => each(buffer, length, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier datagram (udp(7)); the next call returns a datagram.
                Err(_) => {}
            }
        }
    });
}

async fn readable(socket: Option<&UdpSocket>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.readable().await,
        None => pending().await,
    }
}

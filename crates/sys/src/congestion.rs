//! The congestion control of connections: that of the route (`congctl` of ip-route(8)), or that of the socket option
//! `TCP_CONGESTION` (tcp(7)).

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

/// Returns the congestion control of a connection to `destination`. The kernel takes it from the route at connect(2),
/// so the function closes the socket without waiting for an answer.
///
/// # Errors
/// The kernel's error: `ENETUNREACH` without a route.
pub fn for_destination(destination: SocketAddr) -> io::Result<String> {
    let socket = Socket::new(Domain::for_address(destination), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::from(destination)) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    of_socket(&socket)
}

/// Returns the default congestion control (`net.ipv4.tcp_congestion_control` of this network namespace).
///
/// # Errors
/// The error of socket(2).
pub fn system_default() -> io::Result<String> {
    of_socket(&Socket::new(Domain::IPV4, Type::STREAM, None)?)
}

/// Changes the congestion control of a TCP socket.
///
/// # Errors
/// The kernel's error: `ENOENT` if it has no such congestion control, `EPERM` if the caller may not choose it.
pub fn set(socket: impl AsFd, congestion: &str) -> io::Result<()> {
    SockRef::from(&socket).set_tcp_congestion(congestion.as_bytes())
}

/// Checks on a temporary TCP socket whether a congestion control is available. If it is in a module and the caller has
/// the privilege, the kernel loads the module.
///
/// # Errors
/// The kernel's error: `ENOENT` if it has no such congestion control, `EPERM` if the caller may not choose it.
pub fn check_available(congestion: &str) -> io::Result<()> {
    Socket::new(Domain::IPV4, Type::STREAM, None)?.set_tcp_congestion(congestion.as_bytes())
}

/// Connects to `destination` with this congestion control.
///
/// # Errors
/// The kernel's error: `ENOENT` if it has no such congestion control, `EPERM` if the caller may not choose it, or those
/// of connect(2).
pub fn connect(destination: SocketAddr, congestion: &str, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(destination), Type::STREAM, None)?;
    socket.set_tcp_congestion(congestion.as_bytes())?;
    socket.connect_timeout(&SockAddr::from(destination), timeout)?;
    Ok(socket.into())
}

/// Returns the congestion control of a TCP socket.
///
/// # Errors
/// The error of getsockopt(2).
pub fn of_socket(socket: impl AsFd) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn connection_has_the_requested_congestion_control() {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
        let connect_with = |congestion| connect(there, congestion, Duration::from_secs(5));
        assert_eq!(of_socket(connect_with("reno").unwrap()).unwrap(), "reno");
        assert_eq!(connect_with("no-such").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn destination_without_pinned_route_has_the_default_control() {
        let default = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.local_addr().unwrap().port()));
        assert_eq!(for_destination(there).unwrap(), default.trim());
    }
}

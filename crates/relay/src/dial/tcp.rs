//! One TCP connection: to an address, or to whichever address of a name answers first.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_proto::addr::{Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_sys::sockopt::{self, Role};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::{Names, race};

/// Connects to `to` before `deadline`, at an address that `permits` likes.
///
/// # Errors
/// The true cause.
pub async fn open(
    to: &Target,
    profile: &Profile,
    names: &Names,
    permits: &dyn Fn(IpAddr) -> bool,
    deadline: Instant,
) -> Result<(TcpStream, ServerAddr), Cause> {
    let attempt = async |address| open_one(address, profile).await;
    let opened = async {
        match &to.host {
            Host::Ip(ip) if !permits(*ip) => Err(Cause::Denied),
            Host::Ip(ip) => {
                let address = SocketAddr::new(*ip, to.port);
                attempt(address).await.map(|stream| (stream, address)).map_err(|error| cause_of(&error))
            }
            Host::Name(name) => {
                // Half of the time for the name, so that a silent name server is not taken for a silent target.
                let lookup = names.lookup(name, half_of(deadline));
                race::race(lookup, to.port, permits, attempt).await
            }
        }
    };
    let (stream, address) = timeout_at(deadline, opened).await.map_err(|_| Cause::TimedOut)??;
    Ok((stream, ServerAddr(address)))
}

fn half_of(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / 2
}

async fn open_one(address: SocketAddr, profile: &Profile) -> io::Result<TcpStream> {
    let socket = new_socket(address, profile)?;
    sockopt::apply(socket.as_fd(), profile, Role::Dials);
    TcpSocket::from_std_stream(socket.into()).connect(address).await
}

fn new_socket(address: SocketAddr, profile: &Profile) -> io::Result<Socket> {
    let make = |protocol| {
        let kind = Type::STREAM.nonblocking().cloexec();
        Socket::new(Domain::for_address(address), kind, Some(protocol))
    };
    // A kernel without Multipath TCP carries the section as plain TCP, as the report says.
    if profile.mptcp() { make(Protocol::MPTCP).or_else(|_| make(Protocol::TCP)) } else { make(Protocol::TCP) }
}

/// The cause that an error of connect(2) stands for.
pub fn cause_of(error: &io::Error) -> Cause {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused => Cause::Refused,
        Kind::TimedOut => Cause::TimedOut,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => Cause::Reset,
        Kind::AddrNotAvailable | Kind::OutOfMemory | Kind::ResourceBusy => Cause::Exhausted,
        _ if is_exhaustion(error) => Cause::Exhausted,
        // ENETUNREACH, EHOSTUNREACH, a prohibiting route's EACCES, an address family this host does not have.
        _ => Cause::Unreachable,
    }
}

/// Whether this process or host has run out of something: EMFILE, ENFILE, ENOBUFS, ENOMEM, EAGAIN (no port left).
#[must_use]
pub fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12 | 11))
}

//! One TCP connection: to an address, or to the first address of a name that answers.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_sys::sockopt::{self, SocketRole};
use ekiden_sys::transparent::{is_local, set_mark, set_transparent};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::{Resolver, race};
use crate::config::congestion::CongestionControls;
use crate::rules::Marks;

/// The settings of a socket that is about to connect.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingSocket<'a> {
    /// The TCP profile.
    pub profile: &'a Profile,
    /// The congestion controls that profiles ask for.
    pub congestion: &'a CongestionControls,
    /// The marks of our packets, where rules look for them.
    pub marks: Option<Marks>,
    /// The client whose address is the source address, instead of the relay's own.
    pub source: Option<ClientAddr>,
}

/// Connects to `to` before `deadline`, at an address that `judge` permits; otherwise `judge` says the cause.
///
/// # Errors
/// The true cause.
pub async fn open(
    to: &Target,
    outgoing: OutgoingSocket<'_>,
    names: &Resolver,
    judge: &dyn Fn(IpAddr) -> Result<(), Cause>,
    deadline: Instant,
) -> Result<(TcpStream, ServerAddr), Cause> {
    let attempt = async |address| connect_one(address, outgoing).await;
    let opened = async {
        match &to.host {
            Host::Ip(ip) => {
                judge(*ip)?;
                let address = SocketAddr::new(*ip, to.port);
                attempt(address).await.map(|stream| (stream, address)).map_err(|error| cause_of(&error))
            }
            Host::Name(name) => {
                // Half of the time for the name, so that a silent name server is not taken for a silent target.
                let lookup = names.lookup(name, half_until(deadline));
                race::race(lookup, to.port, judge, attempt).await
            }
        }
    };
    let (stream, address) = timeout_at(deadline, opened).await.map_err(|_| Cause::TimedOut)??;
    Ok((stream, ServerAddr(address)))
}

fn half_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()) / 2
}

async fn connect_one(address: SocketAddr, outgoing: OutgoingSocket<'_>) -> io::Result<TcpStream> {
    let source = outgoing.source.map(|client| client.0).filter(|client| client.is_ipv4() == address.is_ipv4());
    // Answers of this host's own programs would go to the client itself, so the relay's address is the source.
    let source = source.filter(|_| !is_local(address.ip()).unwrap_or(false));
    let Some(source) = source else { return connect(address, outgoing, None).await };
    match connect(address, outgoing, Some(source)).await {
        // The client used this port for this server a moment ago, and it is not yet free.
        Err(error) if matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse) => {
            connect(address, outgoing, Some(SocketAddr::new(source.ip(), 0))).await
        }
        other => other,
    }
}

async fn connect(
    address: SocketAddr,
    outgoing: OutgoingSocket<'_>,
    source: Option<SocketAddr>,
) -> io::Result<TcpStream> {
    let socket = new_socket(address, outgoing.profile)?;
    if let Some(marks) = outgoing.marks {
        // Before the profile, which may have a mark of the operator's.
        set_mark(socket.as_fd(), if source.is_some() { marks.kept() } else { marks.own() })?;
    }
    outgoing.congestion.apply(socket.as_fd(), outgoing.profile, SocketRole::Dialer);
    if let Some(source) = source {
        set_transparent(socket.as_fd())?;
        // A client may use one port for several servers.
        socket.set_reuse_address(true)?;
        sockopt::bind_address_no_port(socket.as_fd())?;
        socket.bind(&source.into())?;
    }
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
        Kind::AddrNotAvailable | Kind::AddrInUse | Kind::OutOfMemory | Kind::ResourceBusy => Cause::Exhausted,
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

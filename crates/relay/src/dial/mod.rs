//! Dialling: from a target and a path to a connected section, or to the true cause why not.
//!
//! A dialled stream is clean: everything up to the end of the last hop's answer has been read and not a byte more, so
//! whoever gets it needs no leftover buffer.

mod hop;
mod names;
mod race;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use ekiden_proto::addr::{Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_sys::sockopt::{self, Role};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use crate::config::access::Denied;
use crate::config::{Access, Config, Hop, HopKind};

pub use names::Names;

/// A connected section.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub stream: TcpStream,
    /// What it is connected to: the target itself, or the first hop.
    pub server: ServerAddr,
}

/// A dial that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialError {
    /// Why.
    pub cause: Cause,
    /// The hop that failed or said so, where it was not the target itself.
    pub hop: Option<String>,
}

impl DialError {
    /// What the client is told: a hop that cannot be reached must not look like a target that cannot.
    #[must_use]
    pub fn told_to_client(&self) -> Cause {
        match (&self.hop, self.cause) {
            (Some(_), Cause::Refused | Cause::Unreachable | Cause::NameNotFound | Cause::Reset) => Cause::HopFailed,
            (_, cause) => cause,
        }
    }
}

impl From<Cause> for DialError {
    fn from(cause: Cause) -> Self {
        Self { cause, hop: None }
    }
}

/// What dialling needs from its surroundings.
#[derive(Clone, Copy)]
pub struct Dialler<'a> {
    /// The hops, profiles and deadlines.
    pub config: &'a Config,
    /// The resolver.
    pub names: &'a Names,
    /// Which targets the client may reach.
    pub access: &'a Access,
}

impl<'a> Dialler<'a> {
    /// Connects to `target` through every hop of the path.
    ///
    /// # Errors
    /// The true cause, and the hop that failed.
    pub async fn connect(&self, target: &Target) -> Result<Dialled, DialError> {
        let deadline = self.deadline();
        match self.config.forward.split_first() {
            None => self.open_target(target, deadline).await,
            Some((first, rest)) => {
                self.check(target)?;
                self.tunnel(first, rest, target, deadline).await
            }
        }
    }

    /// Connects to the last hop only, for requests that an HTTP proxy is asked in absolute form.
    ///
    /// # Errors
    /// The true cause, and the hop that failed.
    pub async fn connect_to_last_hop(&self, target: &Target) -> Result<Dialled, DialError> {
        self.check(target)?;
        let deadline = self.deadline();
        let (last, before) = self.config.forward.split_last().expect("invariant: asked only where there is a hop");
        match before.split_first() {
            None => self.open_hop(last, deadline).await,
            Some((first, rest)) => self.tunnel(first, rest, &last.address, deadline).await,
        }
    }

    /// When the whole path has to stand.
    fn deadline(&self) -> Instant {
        Instant::now() + self.config.timeouts.connect
    }

    /// The last hop, when it is an HTTP proxy.
    #[must_use]
    pub fn http_hop(&self) -> Option<&'a Hop> {
        self.config.forward.last().map(AsRef::as_ref).filter(|hop| hop.kind == HopKind::Http)
    }

    /// Whether the client may use a connection to `server` that was dialled for `target` before, perhaps by another
    /// listener's rules.
    #[must_use]
    pub fn permits(&self, target: &Target, server: ServerAddr) -> bool {
        let address = self.config.forward.is_empty().then(|| server.0.ip());
        self.access.permits(&target.host, address, target.port)
    }

    /// Refuses forbidden targets as far as that can be told when a hop is to resolve the name.
    fn check(&self, target: &Target) -> Result<(), DialError> {
        if self.access.permits(&target.host, None, target.port) { Ok(()) } else { Err(Cause::Denied.into()) }
    }

    /// Opens the first hop and asks it, and each one behind it, to connect to the next.
    async fn tunnel(
        &self,
        first: &Arc<Hop>,
        rest: &[Arc<Hop>],
        end: &Target,
        deadline: Instant,
    ) -> Result<Dialled, DialError> {
        let mut dialled = self.open_hop(first, deadline).await?;
        let hops = [first].into_iter().chain(rest);
        let next_stops = rest.iter().map(|hop| &hop.address).chain([end]);
        for (hop, next) in hops.zip(next_stops) {
            let answer = timeout_at(deadline, hop::ask(&mut dialled.stream, hop, next)).await;
            answer
                .map_err(|_| DialError { cause: Cause::TimedOut, hop: Some(hop.to_string()) })?
                .map_err(|cause| DialError { cause, hop: hop_at_fault(hop, cause) })?;
        }
        Ok(dialled)
    }

    async fn open_target(&self, target: &Target, deadline: Instant) -> Result<Dialled, DialError> {
        // A name on the deny list is not even looked up; the rest is judged by the addresses it turns out to have.
        if self.access.judge(&target.host, None, target.port) == Err(Denied::Listed) {
            return Err(Cause::Denied.into());
        }
        let permits = |ip| self.access.permits(&target.host, Some(ip), target.port);
        Ok(self.open(target, &self.config.target_profile, &permits, deadline).await?)
    }

    async fn open_hop(&self, hop: &Hop, deadline: Instant) -> Result<Dialled, DialError> {
        let opened = self.open(&hop.address, &hop.profile, &|_| true, deadline).await;
        opened.map_err(|cause| DialError { cause, hop: Some(hop.to_string()) })
    }

    async fn open(
        &self,
        to: &Target,
        profile: &Profile,
        permits: &dyn Fn(IpAddr) -> bool,
        deadline: Instant,
    ) -> Result<Dialled, Cause> {
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
                    let lookup = self.names.lookup(name, self.config.timeouts.connect / 2);
                    race::race(lookup, to.port, permits, attempt).await
                }
            }
        };
        let (stream, address) = timeout_at(deadline, opened).await.map_err(|_| Cause::TimedOut)??;
        Ok(Dialled { stream, server: ServerAddr(address) })
    }
}

/// What a hop says of the target is the target's fault; the rest is the hop's.
fn hop_at_fault(hop: &Hop, cause: Cause) -> Option<String> {
    let own = matches!(cause, Cause::DeniedByHop | Cause::HopProtocol | Cause::HopFailed | Cause::Reset);
    own.then(|| hop.to_string())
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
fn cause_of(error: &io::Error) -> Cause {
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

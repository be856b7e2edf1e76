//! Dialling: from a target and a path to a connected section, or to the true cause why not.
//!
//! A dialled stream is clean: everything up to the end of the last hop's answer has been read and not a byte more, so
//! whoever gets it needs no leftover buffer.

mod hop;
mod names;
mod race;

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

use ekiden_proto::addr::{Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_sys::sockopt::{self, Role};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

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
        let dial = async {
            match self.config.forward.split_first() {
                None => self.open_target(target).await,
                Some((first, rest)) => {
                    self.check(target)?;
                    self.tunnel(first, rest, target).await
                }
            }
        };
        self.within_deadline(dial).await
    }

    /// Connects to the last hop only, for requests that an HTTP proxy is asked in absolute form.
    ///
    /// # Errors
    /// The true cause, and the hop that failed.
    pub async fn connect_to_last_hop(&self, target: &Target) -> Result<Dialled, DialError> {
        self.check(target)?;
        let (last, before) = self.config.forward.split_last().expect("invariant: asked only where there is a hop");
        let dial = async {
            match before.split_first() {
                None => self.open_hop(last).await,
                Some((first, rest)) => self.tunnel(first, rest, &last.address).await,
            }
        };
        self.within_deadline(dial).await
    }

    /// The last hop, when it is an HTTP proxy.
    #[must_use]
    pub fn http_hop(&self) -> Option<&'a Hop> {
        self.config.forward.last().map(AsRef::as_ref).filter(|hop| hop.kind == HopKind::Http)
    }

    /// Refuses forbidden targets as far as that can be told when a hop is to resolve the name.
    fn check(&self, target: &Target) -> Result<(), DialError> {
        if self.access.permits(&target.host, None, target.port) { Ok(()) } else { Err(Cause::Denied.into()) }
    }

    async fn within_deadline(
        &self,
        dial: impl Future<Output = Result<Dialled, DialError>>,
    ) -> Result<Dialled, DialError> {
        let deadline = self.config.timeouts.connect;
        timeout(deadline, dial).await.unwrap_or_else(|_| Err(Cause::TimedOut.into()))
    }

    /// Opens the first hop and asks it, and each one behind it, to connect to the next.
    async fn tunnel(&self, first: &Arc<Hop>, rest: &[Arc<Hop>], end: &Target) -> Result<Dialled, DialError> {
        let mut dialled = self.open_hop(first).await?;
        let hops = [first].into_iter().chain(rest);
        let next_stops = rest.iter().map(|hop| &hop.address).chain([end]);
        for (hop, next) in hops.zip(next_stops) {
            hop::ask(&mut dialled.stream, hop, next)
                .await
                .map_err(|cause| DialError { cause, hop: hop_at_fault(hop, cause) })?;
        }
        Ok(dialled)
    }

    async fn open_target(&self, target: &Target) -> Result<Dialled, DialError> {
        // A name on the deny list is not even looked up; the rest is judged by the addresses it turns out to have.
        if self.access.judge(&target.host, None, target.port) == Err(Denied::Listed) {
            return Err(Cause::Denied.into());
        }
        let permits = |ip| self.access.permits(&target.host, Some(ip), target.port);
        Ok(self.open(target, &self.config.target_profile, &permits).await?)
    }

    async fn open_hop(&self, hop: &Hop) -> Result<Dialled, DialError> {
        let opened = self.open(&hop.address, &hop.profile, &|_| true).await;
        opened.map_err(|cause| DialError { cause, hop: Some(hop.to_string()) })
    }

    async fn open(
        &self,
        to: &Target,
        profile: &Profile,
        permits: &dyn Fn(std::net::IpAddr) -> bool,
    ) -> Result<Dialled, Cause> {
        let attempt = async |address| open_one(address, profile).await;
        let (stream, address) = match &to.host {
            Host::Ip(ip) if !permits(*ip) => return Err(Cause::Denied),
            Host::Ip(ip) => {
                let address = SocketAddr::new(*ip, to.port);
                (attempt(address).await.map_err(|error| cause_of(&error))?, address)
            }
            Host::Name(name) => race::race(self.names.lookup(name), to.port, permits, attempt).await?,
        };
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

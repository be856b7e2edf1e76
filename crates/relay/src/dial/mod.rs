//! Dialling: connects to a target over a path, or reports the original cause of the failure.
//!
//! The answer of the last proxy has been read from a dialled stream exactly to its end, so no buffer for further bytes
//! is needed. Only the answer to OPEN may be outstanding; the first bytes of the session are sent before that answer
//! arrives.

mod bridge;
mod error;
mod hop_chain;
pub mod link;
mod proxy;
mod race;
mod resolver;
pub mod section;

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::proxy_protocol::{self, ClientTls, Extensions, ProxiedConnection, ProxyVersion};
use ekiden_proto::wire::section::Purpose;
use ekiden_proto::wire::server_name::ServerName;
use ekiden_sys::queued::set_notsent_lowat;
use ekiden_sys::sockopt::{self, SocketRole};
use ekiden_sys::transparent::{is_local, set_mark, set_transparent};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout_at};

use super::config::Resolve;
use super::config::access::{AccessPolicy, Denied};
use super::config::congestion::CongestionControls;
use super::path::PathChoice;
use super::pool::Pools;
use super::pump::{self, FramedSection};
use super::rules::Marks;
use hop_chain::HopChain;
use link::SectionReuse;
use section::SentOpen;

pub use bridge::{AnswerFuture, PlainSection, into_owned_stream, into_plain};
pub use error::{DialError, FailingRelay};
pub use resolver::Resolver;
pub use section::{OpenParams, ReadyConnection};

/// `TCP_NOTSENT_LOWAT` of the section of a lane, and the maximum length of its writes of several packets, in bytes: the
/// relay cannot drop late packets that are in the kernel's queue.
pub const MAX_UNSENT_LANE: u32 = 16 * 1024;

/// A section that is ready for the session's bytes.
#[derive(Debug)]
pub struct Dialled {
    /// The connection to the target or the next relay.
    pub stream: TcpStream,
    /// The address of the target or of the first hop.
    pub server: ServerAddr,
    /// The session opened on the connection, if the last hop is a relay; its answer is outstanding.
    pub opened: Option<OpenedSession>,
}

/// A session for which OPEN was sent to a relay.
#[derive(Debug)]
pub struct OpenedSession {
    /// The outstanding answer to OPEN.
    pub opening: SentOpen,
    /// The section and the framing of the session.
    pub section: Rc<FramedSection>,
    /// Returns the connection to a pool after the session; `None` if the connection cannot carry another session.
    pub reuse: Option<SectionReuse>,
}

/// The resources and rules that dialling needs.
#[derive(Clone, Copy)]
pub struct Dialler<'a> {
    /// The firewall marks of the relay's own packets; `None` if no rule matches on them.
    pub marks: Option<Marks>,
    /// The client whose address is kept as the source address.
    pub source: Option<ClientAddr>,
    /// The resolver of the thread.
    pub names: &'a Resolver,
    /// The congestion controls that profiles request.
    pub congestion: &'a CongestionControls,
    /// The pools of ready connections.
    pub pools: &'a Arc<Pools>,
    /// The access rules for the targets of the client.
    pub rules: AccessPolicy<'a>,
    /// The address that the client connected to, for a PROXY header; `None` if the address is that of the target.
    pub destination: Option<SocketAddr>,
    /// The TLS parameters of the client's connection, for a PROXY header.
    pub tls: Option<&'a ClientTls>,
    /// The server name (TLS SNI or HTTP Host) in the first bytes of an intercepted client.
    pub server_name: Option<&'a ServerName>,
    /// Timeout for the setup of the whole path.
    pub time_limit: Duration,
}

impl Dialler<'_> {
    /// Connects to `target` through every hop of a path.
    ///
    /// # Errors
    /// The original cause, and the hop that failed.
    pub async fn connect(
        &self,
        path_choice: &PathChoice,
        target: &Target,
        open_params: &OpenParams,
    ) -> Result<Dialled, DialError> {
        // The lookup of the target's name counts.
        let deadline = self.deadline();
        let target = &*self.permitted_target(path_choice, target).await?;
        if path_choice.path.is_direct() {
            let mut dialled = self.open_target(target, &path_choice.profile).await?;
            if let Some(version) = path_choice.send_proxy {
                self.write_proxy_header(version, &mut dialled, open_params).await?;
            }
            return Ok(dialled);
        }
        let purpose = Purpose::Stream(target.clone());
        // Boxed, because this future is five times as large as that of a direct dial, and the memory of many
        // simultaneous dials is not freed.
        let chain = HopChain::new(self, open_params, deadline);
        Box::pin(chain.extend(&path_choice.path.hops, &path_choice.later_relays, &purpose)).await
    }

    /// Opens a lane or a UDP association over a path that ends at a relay.
    ///
    /// # Errors
    /// The original cause, and the hop that failed; `Unreachable` when the path has no other relay.
    pub async fn open_lane(
        &self,
        path_choice: &PathChoice,
        purpose: &Purpose,
        open_params: &OpenParams,
    ) -> Result<Dialled, DialError> {
        if path_choice.path.is_direct() {
            return Err(Cause::Unreachable.into());
        }
        let dialled = HopChain::new(self, open_params, self.deadline())
            .extend(&path_choice.path.hops, &path_choice.later_relays, purpose)
            .await?;
        // A lane drops late packets, so the kernel must not queue many bytes. A socket that does not support this
        // option has no such queue.
        let _ = set_notsent_lowat(dialled.stream.as_fd(), MAX_UNSENT_LANE);
        Ok(dialled)
    }

    /// Connects to the last hop, an HTTP proxy, and not to the target: for requests in absolute form.
    ///
    /// # Errors
    /// The original cause, and the hop that failed.
    pub async fn connect_to_last_hop(
        &self,
        path_choice: &PathChoice,
        target: &Target,
        open_params: &OpenParams,
    ) -> Result<Dialled, DialError> {
        self.check_target(target)?;
        let (last, previous_hops) = path_choice.path.hops.split_last().expect("invariant: the path has a hop");
        let chain = HopChain::new(self, open_params, self.deadline());
        if previous_hops.is_empty() {
            chain.open_hop(last).await
        } else {
            let dialled = Box::pin(chain.extend(previous_hops, &[], &Purpose::Stream(last.address.clone()))).await;
            dialled.map_err(|error| error.blame_next_hop(last))
        }
    }

    /// Writes the PROXY header of the client, before any byte of the session.
    async fn write_proxy_header(
        &self,
        version: ProxyVersion,
        dialled: &mut Dialled,
        open_params: &OpenParams,
    ) -> Result<(), DialError> {
        let destination = self.destination.unwrap_or(dialled.server.0);
        let connection = ProxiedConnection { source: open_params.client.0, destination };
        let unique_id = open_params.trace.map(|trace| trace.to_string());
        let extensions = Extensions { unique_id: unique_id.as_deref(), tls: self.tls };
        let header = proxy_protocol::write(version, &connection, extensions);
        let result = timeout_at(self.deadline(), dialled.stream.write_all(&header)).await;
        result.map_err(|_| Cause::TimedOut)?.map_err(|error| cause_of(&error).into())
    }

    /// Returns the target to request from the last relay of `path_choice`: a name, or an address of that name. For a
    /// direct path, the caller still has to apply the rules to the addresses.
    async fn permitted_target<'t>(
        &self,
        path_choice: &PathChoice,
        target: &'t Target,
    ) -> Result<Cow<'t, Target>, DialError> {
        match (path_choice.resolve, &target.host, self.server_name) {
            (Resolve::Here, Host::Name(name), _) if !path_choice.path.is_direct() => {
                let lookup = self.names.lookup(name, self.time_limit / 2);
                let address = self.judged(target, async |judge| lookup.first_address(judge).await).await?;
                Ok(Cow::Owned(Target { host: Host::Ip(address), port: target.port }))
            }
            // An outer name may belong to another server. The rules of this relay are checked against the address; the
            // rules of the last relay apply to the addresses to which that relay resolves the name.
            (Resolve::Exit, Host::Ip(_), Some(ServerName { host, may_be_outer: false })) => {
                self.check_target(target)?;
                Ok(Cow::Owned(Target { host: Host::Name(host.clone()), port: target.port }))
            }
            _ if path_choice.path.is_direct() => Ok(Cow::Borrowed(target)),
            _ => self.check_target(target).map(|()| Cow::Borrowed(target)),
        }
    }

    /// Returns the deadline for the setup of the whole path.
    fn deadline(&self) -> Instant {
        Instant::now() + self.time_limit
    }

    /// Returns whether the client may use a connection to `server` that was dialled for `target` earlier, possibly
    /// under the rules of another listener.
    #[must_use]
    pub fn permits(&self, path_choice: &PathChoice, target: &Target, server: ServerAddr) -> bool {
        let address = path_choice.path.is_direct().then(|| server.0.ip());
        self.rules.permits(&target.host, address, target.port)
    }

    /// Denies forbidden targets, as far as the rules can be applied without the addresses of a name that a hop
    /// resolves.
    fn check_target(&self, target: &Target) -> Result<(), DialError> {
        if self.rules.permits(&target.host, None, target.port) { Ok(()) } else { Err(Cause::Denied.into()) }
    }

    async fn open_target(&self, target: &Target, profile: &Profile) -> Result<Dialled, DialError> {
        let outgoing = OutgoingSocket { profile, congestion: self.congestion, marks: self.marks, source: self.source };
        let opening = async |judge: Judge<'_>| open(target, outgoing, self.names, judge, self.deadline()).await;
        let (stream, server) = self.judged(target, opening).await?;
        Ok(Dialled { stream, server, opened: None })
    }

    /// Runs `work` with a function that checks the addresses of the target against the rules.
    async fn judged<T>(
        &self,
        target: &Target,
        work: impl AsyncFnOnce(Judge<'_>) -> Result<T, Cause>,
    ) -> Result<T, DialError> {
        let is_name = matches!(target.host, Host::Name(_));
        // A name on the deny list is not resolved. Other rules apply to the addresses of the name.
        if is_name && self.rules.judge(&target.host, None, target.port) == Err(Denied::Listed) {
            return Err(Cause::Denied.into());
        }
        let is_concealed = Cell::new(false);
        let judge = |ip| {
            if self.rules.permits(&target.host, Some(ip), target.port) {
                return Ok(());
            }
            // The client receives the same error as for a name without addresses.
            let conceals = is_name && self.rules.listener.conceals(ip);
            is_concealed.set(is_concealed.get() || conceals);
            Err(if conceals { Cause::NameNotFound } else { Cause::Denied })
        };
        work(&judge).await.map_err(|cause| match cause {
            Cause::NameNotFound if is_concealed.get() => DialError::private_name(),
            cause => cause.into(),
        })
    }
}

impl Dialled {
    /// Returns whether another dial may succeed if the first relay closes the connection: a ready connection was used,
    /// or the relay has other members.
    #[must_use]
    pub fn can_redial(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.opening.pool.is_some())
    }

    /// Waits for an outstanding answer to OPEN and returns the setup time of each relay; empty if no answer is
    /// outstanding.
    ///
    /// # Errors
    /// The original cause, and the relay that reported it.
    pub async fn wait_answer(&self) -> Result<Vec<Duration>, DialError> {
        let Some(opened) = &self.opened else { return Ok(Vec::new()) };
        // A dropped dial resets the connection; otherwise the relay would continue, and with source address
        // preservation it would use the client's address.
        pump::abort(&self.stream);
        let times = opened.opening.wait_answer(&self.stream, &opened.section.cipher).await?;
        pump::cancel_abort(&self.stream);
        Ok(times)
    }
}

/// Checks an address against the rules: the error is the cause of the denial.
type Judge<'a> = &'a dyn Fn(IpAddr) -> Result<(), Cause>;

/// The settings of a socket that is about to connect.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingSocket<'a> {
    /// The TCP profile of the connection.
    pub profile: &'a Profile,
    /// The congestion controls that profiles request.
    pub congestion: &'a CongestionControls,
    /// The firewall marks of the relay's own packets; `None` if no rule matches on them.
    pub marks: Option<Marks>,
    /// The client whose address is used as the source address; `None` for an address of the relay.
    pub source: Option<ClientAddr>,
}

/// Connects to `to` before `deadline`, at an address that `judge` permits.
///
/// # Errors
/// The true cause.
pub async fn open(
    to: &Target,
    outgoing: OutgoingSocket<'_>,
    names: &Resolver,
    judge: Judge<'_>,
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
                // The lookup gets half of the time, so that a name server without response is not reported as a target
                // without response.
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
    // A program on this host would send its responses directly to the client, so the source is an address of the relay.
    let source = source.filter(|_| !is_local(address.ip()).unwrap_or(false));
    let Some(source) = source else { return connect(address, outgoing, None).await };
    match connect(address, outgoing, Some(source)).await {
        // The client has recently used this port for the same server, and the port is not free yet.
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
        // Set before the profile, which may set a mark of the operator.
        set_mark(socket.as_fd(), if source.is_some() { marks.kept() } else { marks.own() })?;
    }
    outgoing.congestion.apply(socket.as_fd(), outgoing.profile, SocketRole::Dialer);
    if let Some(source) = source {
        set_transparent(socket.as_fd(), true)?;
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
    // A kernel without Multipath TCP carries the section as plain TCP, and the report of the profile says so.
    if profile.mptcp() { make(Protocol::MPTCP).or_else(|_| make(Protocol::TCP)) } else { make(Protocol::TCP) }
}

/// Maps an error of connect(2) to a cause.
pub fn cause_of(error: &io::Error) -> Cause {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::ConnectionRefused => Cause::Refused,
        Kind::TimedOut => Cause::TimedOut,
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof => Cause::Reset,
        Kind::AddrNotAvailable | Kind::AddrInUse | Kind::OutOfMemory | Kind::ResourceBusy => Cause::Exhausted,
        _ if is_exhaustion(error) => Cause::Exhausted,
        // ENETUNREACH, EHOSTUNREACH, EACCES of a `prohibit` route, or an address family that this host does not
        // support.
        _ => Cause::Unreachable,
    }
}

/// Returns whether the error means that this process or host lacks a resource: EMFILE, ENFILE, ENOBUFS, ENOMEM, EAGAIN
/// (no port left).
#[must_use]
pub fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12 | 11))
}

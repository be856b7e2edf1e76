//! Connections to other relays: the handshake, OPEN, and the answer to OPEN.

use std::cell::OnceCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr};
use ekiden_proto::cause::Cause;
use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::section::hello::MAX_MESSAGE;
use ekiden_proto::wire::section::noise::HandshakeError;
use ekiden_proto::wire::section::{
    Hello, NoiseInitiator, Open, OpenAnswer, Purpose, Refusal, ResumptionTicket, TraceId, TransportKeys, Versions,
};
use ekiden_sys::outq::unacknowledged;
use ekiden_sys::recv::append;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::OutgoingSocket;
use super::Resolver;
use super::error::{DialError, FailingRelay};
use super::link::SectionLink;
use crate::config::congestion::CongestionControls;
use crate::config::{Hop, Peering};
use crate::dial;
use crate::pool::{Pools, SessionLoad};
use crate::pump::RecordCipher;
use crate::rules::Marks;

/// Time beyond the deadline of this relay in which an answer is still accepted: the deadlines of the relays on the path
/// started later, and these relays report a more precise cause of a timeout.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// A connection to a relay after mutual authentication, without a session.
#[derive(Debug)]
pub struct ReadyConnection {
    /// The connection to the relay.
    pub stream: TcpStream,
    /// The address of the relay.
    pub server: ServerAddr,
    /// The section, with the usage by its earlier sessions.
    pub link: SectionLink,
    /// The ticket of the handshake, if the connection is new.
    pub resumption: Option<ResumptionTicket>,
    /// Whether the connection came from the pool.
    pub waited: bool,
}

impl ReadyConnection {
    /// Creates a connection from the keys of its handshake.
    pub(super) fn new(stream: TcpStream, server: ServerAddr, mut keys: TransportKeys) -> Self {
        let resumption = keys.resumption.take();
        Self { stream, server, link: SectionLink::new(keys), resumption, waited: false }
    }
}

/// The parameters of a session that relays forward in OPEN.
#[derive(Debug, Clone)]
pub struct OpenParams {
    /// The trace id, if one was assigned.
    pub trace: Option<TraceId>,
    /// The client of the session.
    pub client: ClientAddr,
    /// Whether the client has already received the response that the connection is established.
    pub early: bool,
    /// Whether the session was encrypted so far, and must stay encrypted.
    pub encrypt: bool,
    /// Whether the caller can frame the session's bytes, so that a section can carry another session afterwards.
    pub can_frame: bool,
    /// Number of relays that the session may still cross.
    pub hops_left: u8,
}

/// The context for a connection to a relay. `marks` are the firewall marks of this relay's own packets.
#[derive(Clone, Copy)]
pub struct OutgoingContext<'a> {
    pub names: &'a Resolver,
    pub congestion: &'a CongestionControls,
    pub marks: Option<Marks>,
}

/// Connects to a relay and performs the handshake, or the short handshake if `ticket` is given.
///
/// # Errors
/// The cause, and the hop that failed first.
pub async fn prepare(
    hop: &Hop,
    peering: &Peering,
    ticket: Option<&ResumptionTicket>,
    context: OutgoingContext<'_>,
    deadline: Instant,
) -> Result<ReadyConnection, DialError> {
    let down = |error: DialError| DialError { first_hop_down: true, ..error };
    let connect = || async {
        let OutgoingContext { names, congestion, marks } = context;
        let outgoing = OutgoingSocket { profile: &hop.profile, congestion, marks, source: None };
        let opened = dial::open(&hop.address, outgoing, names, &|_| Ok(()), deadline).await;
        opened.map_err(|cause| down(DialError::at_hop(cause, hop)))
    };
    let (mut stream, mut server) = connect().await?;
    if let Some(ticket) = ticket {
        let (initiator, hello) = NoiseInitiator::resume(ticket, Versions::SUPPORTED);
        if let Ok(transport) = exchange_hello(&mut stream, hop, initiator, &hello, deadline).await {
            return Ok(ReadyConnection::new(stream, server, transport));
        }
        // The relay may have restarted and lost the ticket.
        (stream, server) = connect().await?;
    }
    let transport = handshake(&mut stream, hop, peering, deadline).await.map_err(down)?;
    Ok(ReadyConnection::new(stream, server, transport))
}

/// Authenticates both sides within the deadline.
///
/// # Errors
/// The cause, and the hop.
pub async fn handshake(
    stream: &mut TcpStream,
    hop: &Hop,
    peering: &Peering,
    deadline: Instant,
) -> Result<TransportKeys, DialError> {
    let (initiator, hello) = NoiseInitiator::begin(&peering.own_key, &peering.key, Versions::SUPPORTED);
    exchange_hello(stream, hop, initiator, &hello, deadline).await
}

async fn exchange_hello(
    stream: &mut TcpStream,
    hop: &Hop,
    initiator: NoiseInitiator,
    hello: &[u8],
    deadline: Instant,
) -> Result<TransportKeys, DialError> {
    let handshake = async {
        stream.write_all(hello).await.map_err(PeerHandshakeError::Io)?;
        let answer = read_hello(stream).await?;
        initiator.finish(&answer).map_err(PeerHandshakeError::Handshake)
    };
    let result = timeout_at(deadline, handshake).await;
    result.map_err(|_| DialError::at_hop(Cause::TimedOut, hop))?.map_err(|error| error.dial_error(hop))
}

/// The cause of a failed handshake.
#[derive(Debug)]
pub enum PeerHandshakeError {
    /// The connection has failed.
    Io(io::Error),
    /// The received bytes are not a valid hello.
    Wire(WireError),
    /// The handshake was rejected.
    Handshake(HandshakeError),
}

impl PeerHandshakeError {
    fn dial_error(&self, hop: &Hop) -> DialError {
        let (cause, remark) = match self {
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => (Cause::HopProtocol, None),
            Self::Io(_) => (Cause::Reset, None),
            Self::Wire(error) => (Cause::HopProtocol, Some(error.to_string())),
            Self::Handshake(error @ HandshakeError::Refused(Refusal::WrongKey | Refusal::UnknownPeer)) => {
                (Cause::DeniedByHop, Some(error.to_string()))
            }
            Self::Handshake(error) => (Cause::HopProtocol, Some(error.to_string())),
        };
        DialError { remark, ..DialError::at_hop(cause, hop) }
    }
}

/// Reads a hello. The peer sends no byte after a hello until this relay has answered.
///
/// # Errors
/// The connection failed, or the bytes are not a valid hello.
pub async fn read_hello(stream: &mut TcpStream) -> Result<Hello, PeerHandshakeError> {
    let mut bytes = Vec::with_capacity(Hello::HEADER_LENGTH + MAX_MESSAGE);
    loop {
        // Does not use `AsyncRead`, which treats a short read as an empty socket, although a read also ends at urgent
        // data.
        let read = || append(stream.as_fd(), &mut bytes, Hello::HEADER_LENGTH + MAX_MESSAGE);
        if stream.async_io(Interest::READABLE, read).await.map_err(PeerHandshakeError::Io)? == 0 {
            return Err(PeerHandshakeError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        match Hello::parse(&bytes) {
            Ok((hello, used)) if used == bytes.len() => return Ok(hello),
            Ok(_) => return Err(PeerHandshakeError::Wire(WireError::Invalid("more than a hello"))),
            Err(WireError::Incomplete) => {}
            Err(error) => return Err(PeerHandshakeError::Wire(error)),
        }
    }
}

/// A session for which OPEN has been sent, with its outstanding answer.
#[derive(Debug)]
pub struct SentOpen {
    /// The trace id, which identifies the session on all relays.
    pub trace: TraceId,
    /// The relay to which OPEN was sent.
    pub hop: Arc<Hop>,
    /// The names of the relays after `hop`, as far as they are known.
    pub following: Vec<Box<str>>,
    /// The deadline of the answer.
    pub deadline: Instant,
    /// The pools, if the connection came from a pool: when the connection is dead, the other ready connections of the
    /// same relay may be dead too.
    pub pool: Option<Arc<Pools>>,
    /// The load of the session at the relay, which is updated by the answer.
    pub load: Option<Arc<SessionLoad>>,
    /// When OPEN was sent.
    pub sent_at: Instant,
    /// The setup times from the answer; empty until the answer has been read.
    pub setup_times: OnceCell<Vec<Duration>>,
}

/// The destination and the framing of a session in OPEN.
#[derive(Debug)]
pub struct OpenTarget {
    /// The keys of the relays after the next relay.
    pub path: Vec<PublicKey>,
    /// The task of the last relay.
    pub purpose: Purpose,
    /// Whether the session's bytes are in records.
    pub encrypt: bool,
    /// Whether the connection carries another session after this one.
    pub reusable: bool,
}

/// Sends OPEN. The session's bytes follow.
///
/// # Errors
/// The connection failed.
pub async fn open(
    stream: &mut TcpStream,
    cipher: &RecordCipher,
    open_params: &OpenParams,
    destination: OpenTarget,
) -> io::Result<TraceId> {
    let trace = open_params.trace.unwrap_or_else(TraceId::generate);
    let open = Open {
        early: open_params.early,
        encrypt: destination.encrypt,
        reusable: destination.reusable,
        hops_left: open_params.hops_left.saturating_sub(1),
        trace,
        client: open_params.client,
        path: destination.path,
        purpose: destination.purpose,
    };
    stream.write_all(&cipher.seal_all(&open.write())).await.map(|()| trace)
}

impl SentOpen {
    /// Waits for the answer and returns the setup times, the nearest relay first. Later calls return them again.
    ///
    /// # Errors
    /// The original cause, and the relay that reported it.
    pub async fn wait_answer(&self, stream: &TcpStream, cipher: &RecordCipher) -> Result<Vec<Duration>, DialError> {
        if let Some(times) = self.setup_times.get() {
            return Ok(times.clone());
        }
        let answer = self.read_answer(stream, cipher).await;
        self.record_load(&answer);
        if let Ok(times) = &answer {
            // Only one task reads the answer, so the cell is empty.
            let _ = self.setup_times.set(times.clone());
        }
        // If the kernel of the relay has acknowledged OPEN, the connection is alive, and the timeout was caused by a
        // later hop.
        let is_acknowledged = || unacknowledged(stream.as_fd()).is_ok_and(|bytes| bytes == 0);
        if let (Some(pool), Err(error)) = (&self.pool, &answer)
            && (error.is_disconnect() || error.is_timeout() && !is_acknowledged())
        {
            pool.discard(&self.hop);
        }
        answer
    }

    /// Records the result in the load of the relay: the latency of an answer, and a refusal if the relay has no room or
    /// has closed the connection. Other failures of the connection do not count as an answer.
    fn record_load(&self, answer: &Result<Vec<Duration>, DialError>) {
        let Some(load) = &self.load else { return };
        match answer {
            Ok(times) => {
                let setup_time = times.first().copied().unwrap_or_default();
                load.on_answer(Some(self.sent_at.elapsed().saturating_sub(setup_time)));
            }
            Err(error) => {
                if error.reported_by.is_some() {
                    load.on_answer(None);
                }
                if error.is_refusal() || error.is_disconnect() {
                    load.on_refusal();
                }
            }
        }
    }

    async fn read_answer(&self, stream: &TcpStream, cipher: &RecordCipher) -> Result<Vec<Duration>, DialError> {
        let record = timeout_at(self.deadline + ANSWER_GRACE, cipher.next_record(stream)).await;
        let record = record.map_err(|_| DialError::at_hop(Cause::TimedOut, &*self.hop))?.map_err(|error| {
            let altered = error.kind() == io::ErrorKind::InvalidData;
            DialError::at_hop(if altered { Cause::HopProtocol } else { Cause::Reset }, &*self.hop)
        })?;
        let answer = OpenAnswer::read(&record.record[record.plaintext]);
        let answer = answer.map_err(|_| DialError::at_hop(Cause::HopProtocol, &*self.hop))?;
        match answer.outcome {
            Ok(()) => Ok(answer.relay_times),
            Err(failure) => {
                let name = self.relay_name(failure.relay);
                let hop = failure.is_about_hop.then(|| format!("behind {name}"));
                let reported_by = Some(FailingRelay { place: failure.relay, name });
                Err(DialError { hop, reported_by, ..failure.cause.into() })
            }
        }
    }

    fn relay_name(&self, place: u8) -> String {
        let known_name = || self.following.get(usize::from(place) - 1).map(ToString::to_string);
        match place {
            0 => self.hop.to_string(),
            _ => known_name().unwrap_or_else(|| format!("relay {place} behind {}", self.hop)),
        }
    }
}

//! Calling another relay: the handshake that makes a connection ready, OPEN, and the answer to it.

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

use super::Resolver;
use super::error::{DialError, FailingRelay};
use super::tcp::{self, OutgoingSocket};
use crate::config::congestion::CongestionControls;
use crate::config::{Hop, Peering};
use crate::pool::Pools;
use crate::pump::RecordCipher;
use crate::rules::Marks;

/// How much longer than our own deadline an answer may take: the relays on the path have deadlines too, began a little
/// later, and know better why it took so long.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// A connection to a relay on which both sides know each other, and no session has begun.
#[derive(Debug)]
pub struct ReadyConnection {
    /// The connection.
    pub stream: TcpStream,
    /// Its address.
    pub server: ServerAddr,
    /// What the handshake has brought.
    pub transport: TransportKeys,
    /// Whether it had been made before it was needed.
    pub waited: bool,
}

/// What a session takes along from relay to relay.
#[derive(Debug, Clone)]
pub struct OpenParams {
    /// Its name on all of them, where it has one already.
    pub trace: Option<TraceId>,
    /// Whose it is.
    pub client: ClientAddr,
    /// Whether the client was told "connected" already.
    pub early: bool,
    /// Whether it has been encrypted so far, and so has to stay.
    pub encrypt: bool,
    /// Through how many relays more it may go.
    pub hops_left: u8,
}

/// Connects to a relay and shakes hands with it, the short way if it is `known` from before; `marks` are those of our
/// packets, where rules look for them.
///
/// # Errors
/// The cause, the hop, and that it is the first one that failed.
pub async fn prepare(
    hop: &Hop,
    peering: &Peering,
    known: Option<&ResumptionTicket>,
    (names, congestion, marks): (&Resolver, &CongestionControls, Option<Marks>),
    deadline: Instant,
) -> Result<ReadyConnection, DialError> {
    let down = |error: DialError| DialError { first_hop_down: true, ..error };
    let connect = || async {
        let outgoing = OutgoingSocket { profile: &hop.profile, congestion, marks, source: None };
        let opened = tcp::open(&hop.address, outgoing, names, &|_| Ok(()), deadline).await;
        opened.map_err(|cause| down(DialError::at_hop(cause, hop)))
    };
    let (mut stream, mut server) = connect().await?;
    if let Some(known) = known {
        let begun = NoiseInitiator::resume(known, Versions::SUPPORTED);
        if let Ok(transport) = exchange_hello(&mut stream, hop, begun, deadline).await {
            return Ok(ReadyConnection { stream, server, transport, waited: false });
        }
        // It may have restarted, and forgotten us.
        (stream, server) = connect().await?;
    }
    let transport = handshake(&mut stream, hop, peering, deadline).await.map_err(down)?;
    Ok(ReadyConnection { stream, server, transport, waited: false })
}

/// Finds out whether the other side is the relay it should be, and shows it who we are.
///
/// # Errors
/// The cause and the hop.
pub async fn handshake(
    stream: &mut TcpStream,
    hop: &Hop,
    peering: &Peering,
    deadline: Instant,
) -> Result<TransportKeys, DialError> {
    exchange_hello(stream, hop, NoiseInitiator::begin(&peering.own_key, &peering.key, Versions::SUPPORTED), deadline)
        .await
}

async fn exchange_hello(
    stream: &mut TcpStream,
    hop: &Hop,
    (initiator, hello): (NoiseInitiator, Vec<u8>),
    deadline: Instant,
) -> Result<TransportKeys, DialError> {
    let handshake = async {
        stream.write_all(&hello).await.map_err(PeerHandshakeError::Io)?;
        let answer = read_hello(stream).await?;
        initiator.finish(&answer).map_err(PeerHandshakeError::Handshake)
    };
    let done = timeout_at(deadline, handshake).await;
    done.map_err(|_| DialError::at_hop(Cause::TimedOut, hop))?.map_err(|trouble| trouble.dial_error(hop))
}

/// Why there was no handshake.
#[derive(Debug)]
pub enum PeerHandshakeError {
    /// The connection broke.
    Io(io::Error),
    /// What came was no hello.
    Wire(WireError),
    /// It came to nothing.
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

/// Reads a hello. Nothing can follow it before it has been answered.
///
/// # Errors
/// The connection broke, or what came was none.
pub async fn read_hello(stream: &mut TcpStream) -> Result<Hello, PeerHandshakeError> {
    let mut bytes = Vec::with_capacity(Hello::HEADER_LENGTH + MAX_MESSAGE);
    loop {
        // Not by `AsyncRead`, which takes a short read for an empty socket, and urgent data for that.
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

/// A session that has been opened and not been answered yet.
#[derive(Debug)]
pub struct SentOpen {
    /// The session's name on all relays.
    pub trace: TraceId,
    /// The relay that was asked.
    pub hop: Arc<Hop>,
    /// The names of the relays behind it, as far as they are known.
    pub beyond: Vec<Box<str>>,
    /// Until when it has to answer.
    pub deadline: Instant,
    /// Where the connection came from, if it had waited: the others there may be as dead as this one.
    pub pool: Option<Arc<Pools>>,
    /// What it answered, once that has been read.
    pub answered: OnceCell<Vec<Duration>>,
}

/// Where a session is to go, as OPEN says it.
#[derive(Debug)]
pub struct OpenTarget {
    /// The relays behind the one that is asked.
    pub path: Vec<PublicKey>,
    /// What the last of them is to do.
    pub purpose: Purpose,
    /// Whether the session's bytes are in records.
    pub encrypt: bool,
}

/// Sends OPEN. What is written next is the session's.
///
/// # Errors
/// The connection is broken.
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
        hops_left: open_params.hops_left.saturating_sub(1),
        trace,
        client: open_params.client,
        path: destination.path,
        purpose: destination.purpose,
    };
    stream.write_all(&cipher.seal_all(&open.write())).await.map(|()| trace)
}

impl SentOpen {
    /// Waits for the answer, and says how long each relay took, the nearest first. It may be asked again.
    ///
    /// # Errors
    /// The true cause and who says so.
    pub async fn wait_answer(&self, stream: &TcpStream, cipher: &RecordCipher) -> Result<Vec<Duration>, DialError> {
        if let Some(times) = self.answered.get() {
            return Ok(times.clone());
        }
        let answer = self.read_answer(stream, cipher).await;
        if let Ok(times) = &answer {
            // Nobody else waits for it.
            let _ = self.answered.set(times.clone());
        }
        // A relay that has acknowledged OPEN is alive, and only waits for somebody else.
        let heard = || unacknowledged(stream.as_fd()).is_ok_and(|bytes| bytes == 0);
        if let (Some(pool), Err(error)) = (&self.pool, &answer)
            && (error.is_disconnect() || error.is_timeout() && !heard())
        {
            pool.discard(&self.hop);
        }
        answer
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
                let teller = Some(FailingRelay { place: failure.relay, name });
                Err(DialError { hop, teller, ..failure.cause.into() })
            }
        }
    }

    fn relay_name(&self, place: u8) -> String {
        let behind = || self.beyond.get(usize::from(place) - 1).map(ToString::to_string);
        match place {
            0 => self.hop.to_string(),
            _ => behind().unwrap_or_else(|| format!("relay {place} behind {}", self.hop)),
        }
    }
}

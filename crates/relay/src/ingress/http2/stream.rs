//! One stream: opens its session, and transfers bytes between the stream and the session.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::chunked::write_chunk_head;
use ekiden_proto::wire::http::forward::{BodyCoding, ChunkForwarder};
use ekiden_proto::wire::http::{BodyFraming, ResponseHead};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use hyper::{Method, Request, StatusCode};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::StreamContext;
use super::message::{self, Http1Request};
use crate::ingress::HandshakeReader;
use crate::ingress::listener::ListenerContext;
use crate::pump::{FlowStats, abort, cancel_abort, loopback_pair, wait_idle, write_all};
use crate::session::{IncomingConnection, Origin};

/// Size of the socket buffers of the loopback connection, in bytes. Bytes in these buffers add to those that a session
/// may buffer.
const SOCKET_BUFFER: usize = 64 * 1024;

/// Largest number of bytes in one read from the session.
const MAX_READ: usize = 64 * 1024;

/// Largest number of pieces of a stream that wait to be sent on the client's connection: small pieces use more memory
/// than their bytes.
const MAX_PIECES: usize = 16;

/// Largest size of the interim responses that are forwarded to the client of a stream, in bytes as counted by
/// [`message::header_list_size`]. They have no flow control: all of them may wait to be sent.
const MAX_INTERIM: usize = 32 * 1024;

/// Largest number of bytes that this relay may add to the head of a response.
const OWN_FIELDS: usize = 4096;

/// Time by which the idle timeout of a stream exceeds that of its session, so that normally the session times out first
/// and both end in order.
const IDLE_MARGIN: Duration = Duration::from_secs(5);

/// The outcome of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOutcome {
    /// The client received a response, or the stream was reset by this relay.
    Served,
    /// The client reset the stream before its response.
    Abandoned,
}

/// Why a stream ended early.
#[derive(Debug)]
enum StreamError {
    /// The client has reset the stream, or the connection has failed.
    Client,
    /// The session has reset its connection, or sent no valid response.
    Session,
}

impl From<io::Error> for StreamError {
    fn from(_: io::Error) -> Self {
        Self::Session
    }
}

impl From<h2::Error> for StreamError {
    fn from(_: h2::Error) -> Self {
        Self::Client
    }
}

/// Serves one stream as a session of `listener`.
pub async fn serve_stream(
    client: Rc<StreamContext>,
    listener: Rc<ListenerContext>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> StreamOutcome {
    let (result, stream_end) = match open_session(&client, &listener).await {
        Ok(stream_end) => ("session", Some(stream_end)),
        Err(result) => (result, None),
    };
    listener.services().events.metrics.record_http2_stream(&listener.listener.name, result);
    let Some(stream_end) = stream_end else {
        refuse(&mut respond, result);
        return StreamOutcome::Served;
    };
    // Until the stream has ended in order, a close of the loopback connection is a reset.
    abort(&stream_end);
    let exchange = StreamExchange::new(&stream_end, request.method().clone(), listener.config.limits.head);
    let outcome = tokio::select! {
        outcome = exchange.run(request, &mut respond) => outcome,
        () = wait_idle(&exchange.stats, listener.config.timeouts.idle + IDLE_MARGIN) => Err(StreamError::Session),
    };
    match outcome {
        Ok(()) => cancel_abort(&stream_end),
        Err(StreamError::Session) => respond.send_reset(exchange.reset_reason()),
        Err(StreamError::Client) if !exchange.is_answered.get() => return StreamOutcome::Abandoned,
        Err(StreamError::Client) => {}
    }
    StreamOutcome::Served
}

/// Opens a session, and returns the stream's end of its loopback connection.
///
/// # Errors
/// The limit that is reached, or `exhausted`.
async fn open_session(client: &StreamContext, listener: &Rc<ListenerContext>) -> Result<TcpStream, &'static str> {
    let permit = listener.try_admit(client.address.0.ip())?;
    let (stream_end, session_end) = loopback_pair().await.map_err(|_| "exhausted")?;
    for end in [&stream_end, &session_end] {
        let socket = SockRef::from(end);
        // If this fails, the kernel's default sizes remain.
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER).and_then(|()| socket.set_recv_buffer_size(SOCKET_BUFFER));
    }
    let connection = IncomingConnection {
        carrier: Some(Rc::clone(&client.carrier)),
        user: client.user.clone(),
        ..IncomingConnection::plain(session_end, client.address, Origin::Itself)
    };
    listener.start_session(connection, permit);
    Ok(stream_end)
}

/// Answers a stream for which no session could be opened.
fn refuse(respond: &mut SendResponse<Bytes>, result: &str) {
    let (status, sentence) = match result {
        "client_limit" => (StatusCode::TOO_MANY_REQUESTS, "This relay serves no more sessions of this client.\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "This relay serves no more sessions; try again.\n"),
    };
    // Fails if the client has reset the stream.
    if let Ok(mut sending) = respond.send_response(message::page(status, sentence), false) {
        let _ = sending.send_data(Bytes::from_static(sentence.as_bytes()), true);
    }
}

/// A request and its response, or a tunnel, between the stream and its session.
struct StreamExchange<'a> {
    session: &'a TcpStream,
    method: Method,
    head_limit: usize,
    stats: FlowStats,
    is_answered: Cell<bool>,
    /// A write to the session has failed: the session does not read any more, or has reset its connection.
    write_failed: Cell<bool>,
    /// Permits for pieces of the response that the connection has not sent yet.
    pieces: Arc<Semaphore>,
}

impl<'a> StreamExchange<'a> {
    fn new(session: &'a TcpStream, method: Method, head_limit: usize) -> Self {
        let pieces = Arc::new(Semaphore::new(MAX_PIECES));
        let stats = FlowStats::new(Rc::new(()));
        let (is_answered, write_failed) = (Cell::new(false), Cell::new(false));
        Self { session, method, head_limit, stats, is_answered, write_failed, pieces }
    }

    /// Returns the error code with which the stream is reset after a failure of the session.
    fn reset_reason(&self) -> Reason {
        if self.method == Method::CONNECT { Reason::CONNECT_ERROR } else { Reason::INTERNAL_ERROR }
    }

    /// Transfers both directions until they end.
    async fn run(&self, request: Request<RecvStream>, respond: &mut SendResponse<Bytes>) -> Result<(), StreamError> {
        let (parts, body) = request.into_parts();
        let request = Http1Request::new(parts, !body.is_end_stream());
        write_all(self.session, &request.head).await?;
        let mut upload = pin!(self.upload(body, request.is_chunked));
        let mut download = pin!(self.download(respond));
        let mut is_uploaded = false;
        let is_tunnel = loop {
            tokio::select! {
                biased;
                uploaded = &mut upload, if !is_uploaded => {
                    uploaded?;
                    is_uploaded = true;
                }
                is_tunnel = &mut download => break is_tunnel?,
            }
        };
        if is_tunnel && !is_uploaded {
            tokio::select! {
                uploaded = upload => uploaded?,
                _ = self.session.ready(Interest::ERROR) => return Err(StreamError::Session),
            }
        }
        Ok(())
    }

    /// Transfers the body of the request, or the client's direction of a tunnel. A failed write is not an error: a
    /// session that reads no more may have sent a response.
    async fn upload(&self, mut body: RecvStream, is_chunked: bool) -> Result<(), StreamError> {
        while let Some(data) = body.data().await {
            let data = data?;
            if data.is_empty() {
                continue;
            }
            let chunk_head = if is_chunked { write_chunk_head(data.len() as u64) } else { String::new() };
            let chunk_end: &[u8] = if is_chunked { b"\r\n" } else { b"" };
            for bytes in [chunk_head.as_bytes(), &data, chunk_end] {
                if write_all(self.session, bytes).await.is_err() {
                    self.write_failed.set(true);
                    return Ok(());
                }
            }
            self.stats.record_copied(Direction::Up, data.len());
            // Opens the flow-control window for the same number of bytes.
            body.flow_control().release_capacity(data.len())?;
        }
        if is_chunked {
            self.write_failed.set(write_all(self.session, b"0\r\n\r\n").await.is_err());
        }
        if self.method == Method::CONNECT {
            let _ = SockRef::from(self.session).shutdown(std::net::Shutdown::Write);
        }
        Ok(())
    }

    /// Transfers the response, or the server's direction of a tunnel. Returns whether it is a tunnel.
    async fn download(&self, respond: &mut SendResponse<Bytes>) -> Result<bool, StreamError> {
        let mut reader = HandshakeReader::from_stream(self.session);
        let head = self.read_head(&mut reader, respond).await?;
        let is_tunnel = self.method == Method::CONNECT && (200..300).contains(&head.status);
        let body = if is_tunnel { BodyFraming::UntilClose } else { head.body };
        let response = message::response(head).ok_or(StreamError::Session)?;
        let mut sending = respond.send_response(response, body == BodyFraming::Empty)?;
        self.is_answered.set(true);
        match body {
            BodyFraming::Empty => return Ok(false),
            BodyFraming::Length(length) => self.send_exactly(&mut reader, length, &mut sending).await?,
            BodyFraming::Chunked => self.send_chunks(&mut reader, &mut sending).await?,
            BodyFraming::UntilClose => {
                self.send_up_to(&mut reader, u64::MAX, &mut sending).await?;
                // The kernel reports a reset only once, and the failed write has consumed the report. An unnoticed
                // reset would make a partial response look complete.
                if self.write_failed.get() {
                    return Err(StreamError::Session);
                }
            }
        }
        sending.send_data(Bytes::new(), true)?;
        Ok(is_tunnel)
    }

    /// Reads the head of the final response, and forwards the heads of interim responses, up to [`MAX_INTERIM`].
    async fn read_head(
        &self,
        reader: &mut HandshakeReader<'_>,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<ResponseHead, StreamError> {
        let limit = self.head_limit + OWN_FIELDS;
        let mut interim = 0;
        loop {
            let head = tokio::select! {
                biased;
                _ = poll_fn(|context| respond.poll_reset(context)) => return Err(StreamError::Client),
                head = reader.next(|bytes| ResponseHead::parse(bytes, limit, self.method.as_str())) => {
                    head.map_err(|_| StreamError::Session)?
                }
            };
            if head.status >= 200 {
                return Ok(head);
            }
            let response = message::response(head).ok_or(StreamError::Session)?;
            interim += message::header_list_size(&response);
            if interim <= MAX_INTERIM {
                respond.send_informational(response)?;
            }
        }
    }

    async fn send_exactly(
        &self,
        reader: &mut HandshakeReader<'_>,
        length: u64,
        sending: &mut SendStream<Bytes>,
    ) -> Result<(), StreamError> {
        if self.send_up_to(reader, length, sending).await? < length { Err(StreamError::Session) } else { Ok(()) }
    }

    async fn send_chunks(
        &self,
        reader: &mut HandshakeReader<'_>,
        sending: &mut SendStream<Bytes>,
    ) -> Result<(), StreamError> {
        let mut chunks = ChunkForwarder::new(BodyCoding::Plain);
        while !chunks.is_complete() {
            let framing = tokio::select! {
                biased;
                _ = poll_fn(|context| sending.poll_reset(context)) => return Err(StreamError::Client),
                framing = reader.next(|bytes| chunks.parse(bytes)) => framing.map_err(|_| StreamError::Session)?,
            };
            let size = chunks.on_framing(&framing);
            self.send_exactly(reader, size, sending).await?;
        }
        Ok(())
    }

    /// Sends up to `limit` bytes of the session, starting with those in `reader`. Returns the number of bytes sent.
    async fn send_up_to(
        &self,
        reader: &mut HandshakeReader<'_>,
        limit: u64,
        sending: &mut SendStream<Bytes>,
    ) -> Result<u64, StreamError> {
        let mut sent = 0;
        let early = reader.take(limit);
        for bytes in early.chunks(MAX_READ) {
            let mut rest = bytes;
            while !rest.is_empty() {
                let (place, room) = self.room(sending, rest.len()).await?;
                let (piece, remainder) = rest.split_at(room);
                self.send(piece.to_vec(), place, sending)?;
                sent += room as u64;
                rest = remainder;
            }
        }
        while sent < limit {
            tokio::select! {
                biased;
                _ = poll_fn(|context| sending.poll_reset(context)) => return Err(StreamError::Client),
                readable = self.session.readable() => readable?,
            }
            let length = usize::try_from(limit - sent).unwrap_or(usize::MAX).min(MAX_READ);
            let (place, room) = self.room(sending, length).await?;
            let mut bytes = Vec::with_capacity(room);
            match self.session.try_read_buf(&mut (&mut bytes).limit(room)) {
                Ok(0) => break,
                Ok(count) => {
                    sent += count as u64;
                    self.send(bytes, place, sending)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => sending.reserve_capacity(0),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// Waits until the stream can send a piece. Returns a permit for the piece, and its largest size, at most `length`
    /// bytes.
    async fn room(
        &self,
        sending: &mut SendStream<Bytes>,
        length: usize,
    ) -> Result<(OwnedSemaphorePermit, usize), StreamError> {
        let place = tokio::select! {
            biased;
            place = Arc::clone(&self.pieces).acquire_owned() => place.expect("invariant: the semaphore is never \
                closed"),
            _ = poll_fn(|context| sending.poll_reset(context)) => return Err(StreamError::Client),
        };
        sending.reserve_capacity(length);
        while sending.capacity() == 0 {
            // `None` after a reset.
            poll_fn(|context| sending.poll_capacity(context)).await.ok_or(StreamError::Client)??;
        }
        Ok((place, sending.capacity().min(length)))
    }

    fn send(
        &self,
        mut bytes: Vec<u8>,
        place: OwnedSemaphorePermit,
        sending: &mut SendStream<Bytes>,
    ) -> Result<(), StreamError> {
        if bytes.len() < bytes.capacity() / 2 {
            bytes.shrink_to_fit();
        }
        self.stats.record_copied(Direction::Down, bytes.len());
        sending.send_data(Bytes::from_owner(Piece { bytes, _place: place }), false)?;
        // Releases unused capacity for other streams.
        sending.reserve_capacity(0);
        Ok(())
    }
}

/// A piece of the response that waits to be sent.
struct Piece {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

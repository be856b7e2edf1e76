//! Ingress: reads a client's handshake, from its first byte to a [`ClientRequest`].
//!
//! Every handshake results in a tunnel to a target or in an HTTP request to forward. The tunnel carries a
//! [`Responder`], which answers the client in its protocol. [`HandshakeReader`] buffers the bytes until a parser
//! accepts them. Listeners, admission and the state of a thread are in this module as well. Nothing in this module
//! dials.

pub mod admission;
pub mod gate;
pub mod handoff;
pub mod http;
mod http2;
pub mod listener;
pub mod preface;
mod responder;
pub mod section;
pub mod services;
pub mod shutdown;
mod socks;
pub mod thread;
pub mod transparent;

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{self, Parsed, WireError, socks4, socks5};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::config::ListenerKind;
use super::pump::Endpoint;
use super::session::Session;
use gate::PreDialed;

pub use responder::{Responder, lingering_close, send_and_close};

/// The detail of the log line for a client that begins with a TLS handshake.
const SPEAKS_TLS: &str = "the client speaks TLS, and this listener does not: the URL of the proxy must begin with \
                          http:// or socks5://, not https://";

/// The request of a client.
pub enum ClientRequest {
    /// A connection to a target.
    Tunnel(TunnelRequest),
    /// A UDP association, with the source address of the datagrams that the client has announced.
    Associate(Option<SocketAddr>),
    /// A connection to accept from a peer.
    Bind(BindRequest),
    /// An HTTP request to forward.
    Http(http::ProxyRequest),
    /// A connection to the server that was dialled while the client's first packet waited for its verdict.
    Dialled(Box<PreDialed>),
    /// A connection on which the server has switched to another protocol (RFC 9110, 7.8).
    Upgraded {
        server: Rc<TcpStream>,
        /// Bytes that the client has sent after its request.
        early: Vec<u8>,
    },
}

/// A request for a connection to a target.
pub struct TunnelRequest {
    /// The target that the client asked for.
    pub target: Target,
    /// Bytes that the client sent after its request.
    pub early: Vec<u8>,
    /// Answers the client in its protocol.
    pub responder: Responder,
}

/// A request to accept a connection (RFC 1928, 4).
pub struct BindRequest {
    /// The address of the expected peer. The peer may connect from another port.
    pub peer: SocketAddr,
    /// Bytes that the client sent after its request.
    pub early: Vec<u8>,
}

/// Reads the request of the client. `timeouts.handshake` bounds all reads together, so that a slow sender gains no time.
///
/// # Errors
/// Why the session ended. The client has received its answer, if its protocol has one.
pub async fn accept(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    reader.set_deadline(Some(session.context.config.timeouts.handshake));
    let request = detect_protocol(session, reader).await;
    reader.set_deadline(None);
    request
}

async fn detect_protocol(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let listener = &session.context.listener;
    if let Some(incoming_open) = &session.dial_context.incoming_open {
        let target = incoming_open.open.purpose.target().expect("invariant: only a lane has no target").clone();
        let responder = Responder::Section(Rc::clone(incoming_open));
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), responder }));
    }
    if listener.kind.is_transparent() {
        return transparent::accept(session, reader).await;
    }
    if listener.kind == ListenerKind::Tcp {
        let target = listener.target.clone().expect("invariant: a tcp listener has a target");
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), responder: Responder::Silent }));
    }
    let first = reader.first_byte().await?;
    if reader.next(wire::detect_handshake).await? {
        responder::send_and_close(session.client_end(), &wire::HANDSHAKE_FAILURE).await;
        return Err(EndReason::BadHandshake(SPEAKS_TLS));
    }
    match (listener.kind, first) {
        (ListenerKind::Auto | ListenerKind::Socks, socks4::VERSION) => {
            socks::accept_socks4(session, reader).await.map(ClientRequest::Tunnel)
        }
        (ListenerKind::Auto | ListenerKind::Socks, socks5::VERSION) => socks::accept_socks5(session, reader).await,
        (ListenerKind::Socks, _) => Err(EndReason::BadHandshake("not SOCKS")),
        _ => http::accept(session, reader).await,
    }
}

/// Largest number of bytes in one read.
const STEP: usize = 4096;

/// Reads a stream until a parser has a complete message, with an optional deadline.
pub struct HandshakeReader<'a> {
    from: Endpoint<'a>,
    bytes: Vec<u8>,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Why a request could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// The stream ended (`UnexpectedEof`) or failed.
    Gone(io::ErrorKind),
    /// The deadline has passed.
    Late,
    /// The bytes are not a valid message.
    Wire(WireError),
}

impl From<ReadError> for EndReason {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone(_) => Self::LeftEarly,
            ReadError::Late => Self::HandshakeTimeout,
            ReadError::Wire(WireError::Invalid(reason)) => Self::BadHandshake(reason),
            ReadError::Wire(WireError::TooLarge) => Self::BadHandshake("too large"),
            ReadError::Wire(WireError::Incomplete) => Self::BadHandshake("incomplete"),
        }
    }
}

impl<'a> HandshakeReader<'a> {
    /// Creates a reader of the client's section.
    #[must_use]
    pub fn new(session: &'a Session) -> Self {
        Self::new_at(session.client_end())
    }

    /// Creates a reader of any stream without TLS.
    #[must_use]
    pub fn from_stream(stream: &'a TcpStream) -> Self {
        Self::new_at(Endpoint::plain(stream))
    }

    fn new_at(from: Endpoint<'a>) -> Self {
        Self { from, bytes: Vec::new(), deadline: None }
    }

    /// Returns the stream that is read.
    pub fn source(&self) -> Endpoint<'a> {
        self.from
    }

    /// Bounds all following reads together by `span`; `None` removes the deadline.
    pub fn set_deadline(&mut self, span: Option<Duration>) {
        self.deadline = span.map(|span| Box::pin(sleep(span)));
    }

    /// Waits for the first byte, returns it and leaves it in the buffer.
    ///
    /// # Errors
    /// [`ReadError::Gone`] or [`ReadError::Late`].
    pub async fn first_byte(&mut self) -> Result<u8, ReadError> {
        while self.bytes.is_empty() {
            poll_fn(|cx| self.poll_more(cx)).await?;
        }
        Ok(self.bytes[0])
    }

    /// Reads until `parse` returns a value, and removes the bytes of that value from the buffer.
    ///
    /// # Errors
    /// [`ReadError`]; bytes that are not a valid message stay in the buffer.
    pub fn next<T>(&mut self, parse: impl Fn(&[u8]) -> Parsed<T>) -> impl Future<Output = Result<T, ReadError>> {
        poll_fn(move |cx| {
            loop {
                match parse(&self.bytes) {
                    Ok((value, used)) => {
                        self.bytes.drain(..used);
                        if self.bytes.is_empty() {
                            // The next message may arrive minutes later; an idle session holds no buffer.
                            self.bytes = Vec::new();
                        }
                        return Poll::Ready(Ok(value));
                    }
                    Err(WireError::Incomplete) => ready!(self.poll_more(cx))?,
                    Err(error) => return Poll::Ready(Err(ReadError::Wire(error))),
                }
            }
        })
    }

    /// Whether the buffer begins with a complete message.
    pub fn has_message<T>(&self, parse: impl Fn(&[u8]) -> Parsed<T>) -> bool {
        parse(&self.bytes).is_ok()
    }

    /// Reads more bytes into the buffer. Ready when bytes have been read, at the end of the stream, or at the deadline.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        loop {
            ready!(self.poll_readable(cx))?;
            match self.from.try_read(&mut self.bytes, STEP) {
                Ok(0) => return Poll::Ready(Err(ReadError::Gone(io::ErrorKind::UnexpectedEof))),
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(ReadError::Gone(error.kind()))),
            }
        }
    }

    /// Ready when the stream is readable, or at the deadline.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ReadError>> {
        if let Poll::Ready(readable) = self.from.poll_readable(cx) {
            return Poll::Ready(readable.map_err(|error| ReadError::Gone(error.kind())));
        }
        let Some(deadline) = &mut self.deadline else { return Poll::Pending };
        deadline.as_mut().poll(cx).map(|()| Err(ReadError::Late))
    }

    /// Takes up to `limit` buffered bytes.
    pub fn take(&mut self, limit: u64) -> Vec<u8> {
        let count = usize::try_from(limit).map_or(self.bytes.len(), |limit| limit.min(self.bytes.len()));
        let rest = self.bytes.split_off(count);
        std::mem::replace(&mut self.bytes, rest)
    }

    /// Takes all buffered bytes.
    pub fn take_all(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Whether the buffer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the buffer starts like an HTTP request.
    #[must_use]
    pub fn is_http(&self) -> bool {
        self.bytes.first().is_some_and(u8::is_ascii_alphabetic)
    }
}

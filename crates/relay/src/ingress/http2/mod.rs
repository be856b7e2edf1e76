//! HTTP/2 clients (RFC 9113): tunnels and requests as streams of one TLS connection.
//!
//! Each stream becomes a session of its own: one end of a loopback connection is the session's client connection, and
//! [`stream`] translates between the other end, in HTTP/1.1, and the stream. A session therefore does not depend on
//! HTTP/2, except for the [`CarrierConnection`] that it reports.

mod message;
mod stream;

use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ekiden_proto::addr::ClientAddr;
use ekiden_sys::queued::{notsent_lowat, set_notsent_lowat};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use hyper::Request;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::admission::{CarrierPermit, UnprovenPermit};
use super::listener::ListenerContext;
use crate::pump::tls::TlsCipher;
use crate::pump::tls_stream::{TlsConnection, TlsStream};
use crate::session::{CarrierConnection, IncomingConnection};
use stream::{StreamOutcome, serve_stream};

/// Timeout for the end of a connection without a place in the limits.
const NO_PLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// Largest number of concurrent streams of one connection; browsers use about a hundred.
const MAX_STREAMS: u32 = 256;

/// Flow-control window of a stream, in bytes: enough for 80 Mbit/s on a path of 50 ms.
const STREAM_WINDOW: u32 = 512 * 1024;

/// Flow-control window of a connection, in bytes: the sum of the windows of all streams, so that blocked streams do not
/// block the others.
const CONNECTION_WINDOW: u32 = MAX_STREAMS * STREAM_WINDOW;

/// Largest number of bytes of a stream that wait in this process to be sent on the client's connection.
const SEND_BUFFER: usize = 128 * 1024;

/// Largest number of unsent bytes of a connection in the kernel. They are sent before the bytes of a stream that has
/// just become ready.
const MAX_UNSENT: u32 = 128 * 1024;

/// Largest number of consecutive streams that the client may reset before they have a response. A client that opens and
/// resets streams costs this relay more than it costs the client (CVE-2023-44487).
const MAX_ABANDONED: u32 = 128;

/// The client of a connection, shared by the sessions of all streams.
struct StreamContext {
    listener: Rc<ListenerContext>,
    carrier: Rc<CarrierConnection>,
    address: ClientAddr,
    /// The name in the client's certificate.
    user: Option<Box<str>>,
}

/// Serves the streams of a connection whose handshake has selected HTTP/2, until its end.
pub async fn serve(
    listener: Rc<ListenerContext>,
    connection: IncomingConnection,
    cipher: TlsCipher,
    permit: UnprovenPermit,
) {
    let IncomingConnection { stream, address, user, .. } = connection;
    bound_unsent(&stream);
    let _open = listener.services().events.metrics.track_http2_connection(&listener.listener.name);
    let connection = Rc::new(TlsConnection { stream: Rc::new(stream), cipher });
    let deadline = Instant::now() + listener.config.timeouts.handshake;
    let handshake = settings(&listener).handshake(TlsStream::new(Rc::clone(&connection)));
    let opening = tokio::select! {
        biased;
        () = permit.evicted() => return listener.record_evicted(),
        opening = listener.thread.drain_state.work_first(timeout(listener.config.timeouts.handshake, handshake)) => opening,
    };
    // Otherwise the client has not started HTTP/2 in time, the handshake has failed, or the relay is about to end.
    let Some(Ok(Ok(http))) = opening else { return };
    let carrier = Rc::new(CarrierConnection::new(&listener, connection));
    let context = Rc::new(StreamContext { listener, carrier, address, user });
    let place = Some(ConnectionPermit::Pending(permit));
    let mut server = Server { http, context, streams: JoinSet::new(), place, deadline, closing: false, abandoned: 0 };
    server.run().await;
    let Server { http, mut streams, place: _place, .. } = server;
    // Streams that have not ended are reset. The tasks of the other streams may still pass received bytes on to their
    // sessions.
    drop(http);
    while streams.join_next().await.is_some() {}
}

fn settings(listener: &ListenerContext) -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buffer_size(SEND_BUFFER)
        .max_header_list_size(u32::try_from(listener.config.limits.head).unwrap_or(u32::MAX));
    builder
}

/// Limits the unsent bytes in the kernel to [`MAX_UNSENT`], unless the profile sets a smaller limit.
fn bound_unsent(stream: &tokio::net::TcpStream) {
    if notsent_lowat(stream.as_fd()).is_ok_and(|bytes| bytes == 0 || bytes > MAX_UNSENT) {
        // Without the limit, streams only wait longer for each other.
        let _ = set_notsent_lowat(stream.as_fd(), MAX_UNSENT);
    }
}

/// The place of a connection in the limits.
enum ConnectionPermit {
    /// A connection without streams has a place like that of a connection whose handshake is not complete.
    Pending(UnprovenPermit),
    /// A connection with streams needs no place of its own: its sessions have places.
    Carrier { _permit: CarrierPermit },
}

impl ConnectionPermit {
    async fn evicted(place: Option<&Self>) {
        match place {
            Some(Self::Pending(permit)) => permit.evicted().await,
            _ => std::future::pending().await,
        }
    }
}

/// The server's side of one connection.
struct Server {
    http: Connection<TlsStream, Bytes>,
    context: Rc<StreamContext>,
    streams: JoinSet<StreamOutcome>,
    /// The place of the connection; `None` after an eviction.
    place: Option<ConnectionPermit>,
    /// Time at which a connection without streams is closed.
    deadline: Instant,
    /// Whether GOAWAY has been sent.
    closing: bool,
    abandoned: u32,
}

impl Server {
    /// Serves streams until the connection ends or fails.
    async fn run(&mut self) {
        loop {
            tokio::select! {
                biased;
                accepted = self.http.accept() => match accepted {
                    Some(Ok((request, respond))) => self.on_request(request, respond),
                    Some(Err(_)) | None => return,
                },
                Some(ended) = self.streams.join_next() => self.on_stream_end(ended.unwrap_or(StreamOutcome::Served)),
                () = self.context.listener.thread.drain_state.wait_begun(), if !self.closing => self.close(),
                () = ConnectionPermit::evicted(self.place.as_ref()) => self.on_evicted(),
                () = sleep_until(self.deadline), if self.streams.is_empty() => {
                    if self.closing {
                        // The client has not closed the connection after GOAWAY.
                        return;
                    }
                    self.close();
                }
            }
        }
    }

    fn on_request(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        // Each stream uses the configuration in force.
        let listener = self.context.listener.thread.current_listener(&self.context.listener);
        self.place = match self.place.take() {
            Some(ConnectionPermit::Pending(permit)) => {
                permit.carry().map(|permit| ConnectionPermit::Carrier { _permit: permit })
            }
            carrier => carrier,
        };
        let (Some(listener), Some(_)) = (listener, &self.place) else {
            // The client may repeat the request on another connection (RFC 9113, 8.7).
            respond.send_reset(Reason::REFUSED_STREAM);
            return self.close();
        };
        self.streams.spawn_local(serve_stream(Rc::clone(&self.context), listener, request, respond));
    }

    fn on_stream_end(&mut self, outcome: StreamOutcome) {
        self.abandoned = if outcome == StreamOutcome::Abandoned { self.abandoned + 1 } else { 0 };
        if self.abandoned > MAX_ABANDONED {
            self.http.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        if self.streams.is_empty() {
            let timeouts = &self.context.listener.config.timeouts;
            self.deadline = Instant::now() + if self.closing { timeouts.handshake } else { timeouts.keep_alive };
            // Without streams the connection takes an unproven place again, so that it can be evicted for another
            // connection.
            self.place = self.context.listener.enter_pending(self.context.address).map(ConnectionPermit::Pending);
            if self.place.is_none() {
                self.close_soon();
            }
        }
    }

    fn on_evicted(&mut self) {
        self.context.listener.record_evicted();
        self.place = None;
        self.close_soon();
    }

    /// Closes a connection that has no place in the limits, but still a descriptor, also if the client does not react.
    fn close_soon(&mut self) {
        self.close();
        self.deadline = self.deadline.min(Instant::now() + NO_PLACE_TIMEOUT);
    }

    /// Sends GOAWAY. Open streams may finish.
    fn close(&mut self) {
        if !self.closing {
            self.closing = true;
            self.deadline = Instant::now() + self.context.listener.config.timeouts.handshake;
            self.http.graceful_shutdown();
        }
    }
}

//! Connections that begin with a PROXY header, a TLS handshake, or both, before a session begins.
//!
//! Until the preface is complete, the connection has a pending place, like a relay's connection without a session. The
//! client counts for the limits under the address in the header, and a client that does not complete a handshake takes
//! no place of a session.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::addr::ClientAddr;
use ekiden_proto::event::{EndReason, Event};
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::proxy_protocol::{MAX_HEADER, ProxiedConnection, parse};
use ekiden_proto::wire::x509::subject_name;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;

use super::ReadError;
use super::admission::{Client, UnprovenPermit};
use super::http::send_error;
use super::http2;
use super::listener::{ListenerContext, canonical};
use crate::config::{HTTP2, TlsListener};
use crate::events::Events;
use crate::pump::tls::{TlsCipher, TlsError};
use crate::pump::{Endpoint, abort};
use crate::session::{IncomingConnection, Origin};

/// The content type of the first TLS record (RFC 8446, 5.1).
const HANDSHAKE_RECORD: u8 = 22;

/// The detail of the log line for a client that does not begin with a TLS handshake.
const SPEAKS_NO_TLS: &str =
    "the client does not speak TLS, and this listener does: the URL of the proxy must begin with https://";

/// The detail of the log line for a client whose certificate has no name.
const NAMELESS: &str = "the certificate has no common name, DNS name or email address";

/// The part of the preface that is read next.
#[derive(Clone, Copy)]
enum Part {
    ProxyHeader,
    Tls,
}

impl Part {
    /// Returns the detail of the log line for a client that does not complete the part.
    const fn missing(self) -> &'static str {
        match self {
            Self::ProxyHeader => "no complete PROXY header",
            Self::Tls => "no complete TLS handshake",
        }
    }
}

/// Why a preface is not complete, and the detail for the log.
type PrefaceEnd = (EndReason, Option<String>);

/// Reads the preface of a connection from `peer`, and admits the client.
pub async fn admit_client(context: Rc<ListenerContext>, stream: TcpStream, peer: ClientAddr, permit: UnprovenPermit) {
    let mut connection = IncomingConnection::plain(stream, peer, Origin::Itself);
    let mut part = Part::ProxyHeader;
    let reading = timeout(context.config.timeouts.handshake, read_preface(&context, &mut connection, &mut part));
    let read = tokio::select! {
        biased;
        () = permit.evicted() => return context.record_evicted(),
        read = context.thread.drain_state.work_first(reading) => read,
    };
    // The relay is about to end.
    let Some(read) = read else { return };
    if matches!(part, Part::Tls) {
        let result = match &read {
            Ok(Ok(())) => "completed",
            Ok(Err(_)) => "failed",
            Err(_) => "timed_out",
        };
        context.services().events.metrics.record_tls_handshake(&context.listener.name, result);
    }
    if let Err((end, detail)) = read.unwrap_or(Err((EndReason::HandshakeTimeout, None))) {
        let is_silent = matches!(end, EndReason::HandshakeTimeout | EndReason::LeftEarly);
        let detail = detail.or_else(|| is_silent.then(|| part.missing().to_owned()));
        return context.reject(connection, end, detail);
    }
    if let Some(cipher) = connection.tls.take_if(|cipher| cipher.has_selected(HTTP2)) {
        return http2::serve(context, connection, cipher, permit).await;
    }
    // An evicted connection has lost its pending place.
    let Some(_permit) = permit.prove() else {
        return context.record_evicted();
    };
    match context.admit_later(Client::Address(connection.address.0.ip())).await {
        Ok(permit) => context.start_session(connection, permit),
        Err(end) => {
            if end == EndReason::ClientLimit {
                abort(&connection.stream);
            }
            context.reject(connection, end, None);
        }
    }
}

async fn read_preface(
    context: &ListenerContext,
    connection: &mut IncomingConnection,
    part: &mut Part,
) -> Result<(), PrefaceEnd> {
    if context.listener.is_load_balancer(connection.address.0.ip()) {
        let header = read_header(&mut connection.stream).await.map_err(|error| (error.into(), None))?;
        if let Some(ProxiedConnection { source, destination }) = header {
            connection.address = ClientAddr(canonical(source));
            connection.origin = Origin::Proxied { destination: canonical(destination) };
        }
    }
    if let Some(tls) = &context.listener.tls {
        *part = Part::Tls;
        let config = server_config(&context.services().events, &context.listener.name, tls);
        let cipher = accept_tls(&connection.stream, config).await?;
        if let Some(certificate) = cipher.client_certificate() {
            let name =
                subject_name(&certificate).ok_or_else(|| (EndReason::Unauthenticated, Some(NAMELESS.to_owned())))?;
            connection.user = Some(name.into());
        }
        connection.tls = Some(cipher);
    }
    Ok(())
}

/// Reads a header and no byte after it: bytes are peeked, and consumed when they are known to belong to the header.
async fn read_header(stream: &mut TcpStream) -> Result<Option<ProxiedConnection>, ReadError> {
    let read_error = |error: io::Error| ReadError::Gone(error.kind());
    let (mut header, mut peeked) = (Vec::new(), vec![0; MAX_HEADER]);
    loop {
        let count = stream.peek(&mut peeked).await.map_err(read_error)?;
        if count == 0 {
            return Err(ReadError::Gone(io::ErrorKind::UnexpectedEof));
        }
        let previous_length = header.len();
        header.extend_from_slice(&peeked[..count]);
        let (parsed, consumed) = match parse(&header) {
            Ok((connection, length)) => (Some(connection), length - previous_length),
            Err(WireError::Incomplete) => (None, count),
            Err(error) => return Err(ReadError::Wire(error)),
        };
        stream.read_exact(&mut peeked[..consumed]).await.map_err(read_error)?;
        if let Some(connection) = parsed {
            return Ok(connection);
        }
    }
}

/// Returns the TLS configuration of a listener, with the certificate reloaded if its files have changed.
pub fn server_config(events: &Events, listener: &str, tls: &TlsListener) -> Arc<ServerConfig> {
    let (config, reload) = tls.server_config();
    match reload {
        None => {}
        Some(Ok(())) => {
            events.metrics.record_certificate_reload(listener, "accepted");
            tls.expiry().iter().for_each(|expiry| events.metrics.set_certificate_expiry(listener, expiry.end));
        }
        Some(Err(error)) => {
            events.metrics.record_certificate_reload(listener, "rejected");
            let message = format!("listener {listener}: the previous certificate remains in use: expected {error}");
            events.emit(&Event::Warning { message });
        }
    }
    config
}

async fn accept_tls(stream: &TcpStream, config: Arc<ServerConfig>) -> Result<TlsCipher, PrefaceEnd> {
    let mut first = [0];
    let count = stream.peek(&mut first).await.map_err(|error| (ReadError::Gone(error.kind()).into(), None))?;
    if count == 1 && first[0] != HANDSHAKE_RECORD {
        if first[0].is_ascii_alphabetic() {
            send_error(Endpoint::plain(stream), 400, "This proxy requires TLS: its URL must begin with https://").await;
        }
        return Err((EndReason::BadHandshake(SPEAKS_NO_TLS), None));
    }
    TlsCipher::accept(stream, config).await.map_err(|error| match error {
        TlsError::Gone(kind) => (ReadError::Gone(kind).into(), None),
        TlsError::Protocol(error) => (EndReason::BadHandshake("TLS handshake failed"), Some(format!("TLS: {error}"))),
    })
}

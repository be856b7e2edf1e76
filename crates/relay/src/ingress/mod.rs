//! Ingress: reads a client's handshake, from its first byte to a [`ClientRequest`].
//!
//! Every protocol ends in a tunnel to a target or in an HTTP request to forward. The tunnel carries a [`Responder`], which
//! answers the client in its protocol. Listeners, admission and the state of a thread are here as well. Nothing in here
//! dials.

pub mod admission;
pub mod gate;
pub mod http;
pub mod listener;
pub mod load;
mod reader;
mod responder;
pub mod section;
pub mod services;
pub mod shutdown;
mod socks;
pub mod thread;
pub mod transparent;

use std::rc::Rc;

use ekiden_proto::addr::Target;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{socks4, socks5, tls};
use tokio::net::TcpStream;

use crate::config::ListenerKind;
use crate::ingress::gate::PreDialed;
use crate::session::Session;

pub use reader::HandshakeReader;
pub use responder::{Responder, lingering_close, write_all};

/// The detail of the log line for a client that begins with a TLS handshake.
const SPEAKS_TLS: &str = "the client speaks TLS, and this listener does not: the proxy's URL has to begin with http:// or \
                          socks5://, not https://";

/// The request of a client.
pub enum ClientRequest {
    /// A connection to a target.
    Tunnel(TunnelRequest),
    /// An HTTP request to forward.
    Http(Box<http::ProxyRequest>),
    /// The server was dialled while the first packet of the client waited.
    Dialled(Box<PreDialed>),
    /// The server has agreed to another protocol on this connection (RFC 9110, 7.8).
    Upgraded {
        /// The server's section.
        server: Rc<TcpStream>,
        /// Bytes that the client sent after its request.
        early: Vec<u8>,
    },
}

/// A request for a connection.
pub struct TunnelRequest {
    /// The target.
    pub target: Target,
    /// Bytes that the client sent after its request.
    pub early: Vec<u8>,
    /// Answers the client.
    pub responder: Responder,
}

/// Reads the request of the client. `timeouts.handshake` bounds all reads together, so that a slow sender gains no time.
///
/// # Errors
/// The end of the session. The client has its answer, if its protocol has one.
pub async fn accept(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    reader.set_deadline(Some(session.context.config.timeouts.handshake));
    let request = detect_protocol(session, reader).await;
    reader.set_deadline(None);
    request
}

async fn detect_protocol(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let listener = &session.context.listener;
    if let Some(incoming_open) = &session.dial_context.incoming_open {
        let target = incoming_open.open.purpose.target().expect("invariant: a lane wants to go nowhere").clone();
        let responder = Responder::Section(Rc::clone(incoming_open));
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), responder }));
    }
    if listener.kind.is_transparent() {
        return transparent::accept(session);
    }
    if listener.kind == ListenerKind::Tcp {
        let target = listener.target.clone().expect("invariant: a tcp listener has a target");
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), responder: Responder::Silent }));
    }
    let first = reader.first_byte().await?;
    if reader.next(tls::detect_handshake).await? {
        responder::send_and_close(&session.client, &tls::HANDSHAKE_FAILURE).await;
        return Err(EndReason::BadHandshake(SPEAKS_TLS));
    }
    match (listener.kind, first) {
        (ListenerKind::Auto | ListenerKind::Socks, socks4::VERSION) => {
            socks::accept_socks4(session, reader).await.map(ClientRequest::Tunnel)
        }
        (ListenerKind::Auto | ListenerKind::Socks, socks5::VERSION) => {
            socks::accept_socks5(session, reader).await.map(ClientRequest::Tunnel)
        }
        (ListenerKind::Socks, _) => Err(EndReason::BadHandshake("not SOCKS")),
        _ => http::accept(session, reader).await,
    }
}

//! The ways in: from a client's first bytes to what it wants.
//!
//! Every protocol ends in a [`Membership`]: a tunnel to a target, or an HTTP request to be forwarded. How the client is told
//! of success or failure travels with the tunnel as its [`Manner`].

pub mod http;
mod inbox;
mod manner;
pub mod section;
mod socks;
pub mod transparent;

use std::rc::Rc;

use ekiden_proto::addr::Target;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::{socks4, socks5, tls};
use tokio::net::TcpStream;

use crate::config::ListenerKind;
use crate::gate::PreDialed;
use crate::session::Session;

pub use inbox::HandshakeReader;
pub use manner::{Responder, lingering_close, write_all};

/// The detail of the log line for a client that begins with a TLS handshake.
const SPEAKS_TLS: &str = "the client speaks TLS, and this listener does not: the proxy's URL has to begin with http:// or \
                          socks5://, not https://";

/// What a client wants.
pub enum ClientRequest {
    /// To be connected to a target.
    Tunnel(TunnelRequest),
    /// An HTTP request to be forwarded.
    Http(Box<http::ProxyRequest>),
    /// What was dialled while its first packet waited.
    Dialled(Box<PreDialed>),
    /// To go on as the server agreed: the connection has changed to another protocol (RFC 9110, 7.8).
    Upgraded {
        /// The server's section.
        server: Rc<TcpStream>,
        /// What the client sent behind its request.
        early: Vec<u8>,
    },
}

/// A connection to be made.
pub struct TunnelRequest {
    /// Where to.
    pub target: Target,
    /// What the client sent behind its request.
    pub early: Vec<u8>,
    /// How the client wants to hear of it.
    pub manner: Responder,
}

/// Finds out what the client wants, within the handshake deadline: all reads together, so that a client that sends a
/// byte now and then has no more time than others.
///
/// # Errors
/// How the session ended instead. The client has been told, where its protocol has words for it.
pub async fn accept(session: &Session, inbox: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    inbox.set_deadline(Some(session.entrance.config.timeouts.handshake));
    let wish = detect_protocol(session, inbox).await;
    inbox.set_deadline(None);
    wish
}

async fn detect_protocol(session: &Session, inbox: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let listener = &session.entrance.listener;
    if let Some(arrival) = &session.errand.arrival {
        let target = arrival.open.purpose.target().expect("invariant: a lane wants to go nowhere").clone();
        let manner = Responder::Section(Rc::clone(arrival));
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), manner }));
    }
    if listener.kind.is_transparent() {
        return transparent::accept(session);
    }
    if listener.kind == ListenerKind::Tcp {
        let target = listener.target.clone().expect("invariant: a tcp listener has a target");
        return Ok(ClientRequest::Tunnel(TunnelRequest { target, early: Vec::new(), manner: Responder::Silent }));
    }
    let first = inbox.first_byte().await?;
    if inbox.next(tls::detect_handshake).await? {
        manner::send_and_close(&session.client, &tls::HANDSHAKE_FAILURE).await;
        return Err(EndReason::BadHandshake(SPEAKS_TLS));
    }
    match (listener.kind, first) {
        (ListenerKind::Auto | ListenerKind::Socks, socks4::VERSION) => {
            socks::accept_socks4(session, inbox).await.map(ClientRequest::Tunnel)
        }
        (ListenerKind::Auto | ListenerKind::Socks, socks5::VERSION) => {
            socks::accept_socks5(session, inbox).await.map(ClientRequest::Tunnel)
        }
        (ListenerKind::Socks, _) => Err(EndReason::BadHandshake("not SOCKS")),
        _ => http::accept(session, inbox).await,
    }
}

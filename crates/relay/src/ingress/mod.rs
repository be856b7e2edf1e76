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
use crate::gate::Ahead;
use crate::session::Session;

pub use inbox::Inbox;
pub use manner::{Manner, hang_up, write_all};

/// The detail of the log line for a client that begins with a TLS handshake.
const SPEAKS_TLS: &str = "the client speaks TLS, and this listener does not: the proxy's URL has to begin with http:// or \
                          socks5://, not https://";

/// What a client wants.
pub enum Wish {
    /// To be connected to a target.
    Tunnel(Tunnel),
    /// An HTTP request to be forwarded.
    Http(Box<http::Asked>),
    /// What was dialled while its first packet waited.
    Dialled(Box<Ahead>),
    /// To go on as the server agreed: the connection has changed to another protocol (RFC 9110, 7.8).
    Upgraded {
        /// The server's section.
        server: Rc<TcpStream>,
        /// What the client sent behind its request.
        early: Vec<u8>,
    },
}

/// A connection to be made.
pub struct Tunnel {
    /// Where to.
    pub target: Target,
    /// What the client sent behind its request.
    pub early: Vec<u8>,
    /// How the client wants to hear of it.
    pub manner: Manner,
}

/// Finds out what the client wants, within the handshake deadline: all reads together, so that a client that sends a
/// byte now and then has no more time than others.
///
/// # Errors
/// How the session ended instead. The client has been told, where its protocol has words for it.
pub async fn accept(session: &Session, inbox: &mut Inbox<'_>) -> Result<Wish, EndReason> {
    inbox.bound(Some(session.entrance.config.timeouts.handshake));
    let wish = listen(session, inbox).await;
    inbox.bound(None);
    wish
}

async fn listen(session: &Session, inbox: &mut Inbox<'_>) -> Result<Wish, EndReason> {
    let listener = &session.entrance.listener;
    if let Some(arrival) = &session.errand.arrival {
        let target = arrival.open.purpose.target().expect("invariant: a lane wants to go nowhere").clone();
        let manner = Manner::Section(Rc::clone(arrival));
        return Ok(Wish::Tunnel(Tunnel { target, early: Vec::new(), manner }));
    }
    if listener.kind.is_transparent() {
        return transparent::accept(session);
    }
    if listener.kind == ListenerKind::Tcp {
        let target = listener.target.clone().expect("invariant: a tcp listener has a target");
        return Ok(Wish::Tunnel(Tunnel { target, early: Vec::new(), manner: Manner::Silent }));
    }
    let first = inbox.first_byte().await?;
    if inbox.next(tls::detect_handshake).await? {
        manner::last_words(&session.client, &tls::HANDSHAKE_FAILURE).await;
        return Err(EndReason::BadHandshake(SPEAKS_TLS));
    }
    match (listener.kind, first) {
        (ListenerKind::Auto | ListenerKind::Socks, socks4::VERSION) => {
            socks::accept_socks4(session, inbox).await.map(Wish::Tunnel)
        }
        (ListenerKind::Auto | ListenerKind::Socks, socks5::VERSION) => {
            socks::accept_socks5(session, inbox).await.map(Wish::Tunnel)
        }
        (ListenerKind::Socks, _) => Err(EndReason::BadHandshake("not SOCKS")),
        _ => http::accept(session, inbox).await,
    }
}

//! HTTP clients: CONNECT becomes a tunnel, a request in absolute form is forwarded (RFC 9110, RFC 9112).
//!
//! [`accept`] reads and checks one request; [`serve`] forwards it and waits for the next on the same connection, which
//! may go to another server. `exchange` is one request and its answer, by whatever
//! way and connection, `conversation` what is said on one, `body` what lies between heads, `kept` the idle
//! server connections, `reply` our own answers.

mod body;
mod conversation;
mod exchange;
mod ftp;
mod kept;
mod reply;
mod request_log;
mod rewriting;
mod upstream;

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::http::{RequestHead, RequestTarget, auth, rewrite};
use tokio::time::timeout;

use super::inbox::Trouble;
use super::manner::last_words;
use super::{Inbox, Manner, Tunnel, Wish};
use crate::session::Session;
use crate::users::AuthError;

pub use ftp::row as ftp_row;
pub use kept::Kept;
pub use reply::{of_dial, tell};

use exchange::After;

/// A request to be forwarded: its target is in absolute form.
pub struct Asked {
    head: RequestHead,
}

/// Reads the head of one request and decides what it is.
///
/// # Errors
/// How the session ended; the client has been told.
pub async fn accept(session: &Session, inbox: &mut Inbox<'_>) -> Result<Wish, EndReason> {
    let limit = session.entrance.config.limits.head;
    let head = match inbox.next(|bytes| RequestHead::parse(bytes, limit)).await {
        Ok(head) => head,
        Err(trouble) => return Err(refuse(session, inbox.holds_http(), trouble).await),
    };
    authenticate(session, &head).await?;
    match &head.target {
        RequestTarget::Authority(target) => {
            let target = target.clone();
            Ok(Wish::Tunnel(Tunnel { target, early: inbox.take_all(), manner: Manner::Connect }))
        }
        RequestTarget::Absolute { .. } => Ok(Wish::Http(Box::new(Asked { head }))),
        RequestTarget::Origin(_) | RequestTarget::Asterisk => {
            last_words(&session.client, &reply::page(400, "Bad Request", reply::NOT_A_SERVER)).await;
            Err(EndReason::BadHandshake("a request to a server, not to a proxy"))
        }
    }
}

async fn refuse(session: &Session, has_begun: bool, trouble: Trouble) -> EndReason {
    match &trouble {
        Trouble::Gone(_) => {}
        Trouble::Late if has_begun => tell(&session.client, 408, "Request Timeout").await,
        Trouble::Late => {}
        Trouble::Wire(WireError::TooLarge) => tell(&session.client, 431, "Request Header Fields Too Large").await,
        Trouble::Wire(_) => tell(&session.client, 400, "Bad Request").await,
    }
    trouble.into()
}

async fn authenticate(session: &Session, head: &RequestHead) -> Result<(), EndReason> {
    let entrance = session.errand.in_force();
    let Some(users) = &entrance.listener.users else { return Ok(()) };
    let verdict = match head.headers.get("Proxy-Authorization").and_then(auth::parse_basic) {
        Some((user, password)) => session.authenticate(users, &user, &password).await,
        None => Err(AuthError::WrongCredentials),
    };
    match verdict {
        Ok(()) => return Ok(()),
        Err(AuthError::WrongCredentials) => last_words(&session.client, &reply::challenge()).await,
        Err(AuthError::Overloaded) => last_words(&session.client, &reply::overloaded()).await,
        Err(AuthError::ClientGone) => {}
    }
    verdict.map_err(EndReason::from)
}

/// Forwards a request, and returns what the client wants next.
///
/// # Errors
/// How the session ended.
pub async fn serve(session: &Session, inbox: &mut Inbox<'_>, asked: Asked) -> Result<Wish, EndReason> {
    match exchange::run(session, inbox, asked.head).await? {
        After::Upgraded(server) => Ok(Wish::Upgraded { server, early: inbox.take_all() }),
        After::Close => {
            super::hang_up(&session.client).await;
            Err(EndReason::Finished)
        }
        After::Next => next(session, inbox).await,
    }
}

/// Waits for the next request; a client that closes instead has simply finished.
async fn next(session: &Session, inbox: &mut Inbox<'_>) -> Result<Wish, EndReason> {
    let timeouts = &session.entrance.config.timeouts;
    match session.entrance.worker.leaving.or(timeout(timeouts.keep_alive, inbox.first_byte())).await {
        Some(Ok(Ok(_))) => {}
        Some(Ok(Err(_))) | None => return Err(EndReason::Finished),
        Some(Err(_)) => return Err(EndReason::Idle),
    }
    // Each request of a client uses the configuration in force, however old the connection of the client is.
    if !session.errand.renew() {
        tell(&session.client, 503, "Service Unavailable").await;
        return Err(EndReason::Finished);
    }
    inbox.bound(Some(timeouts.handshake));
    let wish = Box::pin(accept(session, inbox)).await;
    inbox.bound(None);
    wish
}

/// Whether the client's connection outlives this exchange.
fn client_stays(session: &Session, head: &RequestHead) -> bool {
    rewrite::is_keep_alive(head.version, &head.headers) && !session.entrance.worker.leaving.has_begun()
}

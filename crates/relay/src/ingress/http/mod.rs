//! HTTP clients: CONNECT becomes a tunnel, a request in absolute form is forwarded (RFC 9110, RFC 9112).
//!
//! [`accept`] reads and checks one request; [`serve`] forwards it and waits for the next request on the same
//! connection, which may have another target. `forward` handles one request and its response over any path and
//! connection, `exchange` the messages on one connection, `body` the message bodies, `upstream` the server connections,
//! `upstream_pool` the idle server connections of all threads, `responses` the relay's own responses.

mod body;
mod exchange;
mod forward;
mod ftp;
mod pac;
mod responses;
mod rewriting;
mod upstream;
mod upstream_pool;

use ekiden_proto::event::EndReason;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::http::{RequestHead, RequestTarget, auth, rewrite};
use tokio::time::timeout;

use super::ReadError;
use super::responder::send_and_close;
use super::{ClientRequest, HandshakeReader, Responder, TunnelRequest};
use crate::config::users::AuthError;
use crate::dial::DialError;
use crate::session::Session;

pub use ftp::row as ftp_row;
pub use responses::{dial_error_response, send_error};
pub use upstream_pool::UpstreamPool;

use exchange::RequestLog;
use forward::ClientConnection;

/// A request to forward; its target is in absolute form.
pub struct ProxyRequest {
    head: Box<RequestHead>,
}

/// Reads and classifies the head of one request.
///
/// # Errors
/// Why the session ended. The client has received an answer.
pub async fn accept(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let limit = session.context.config.limits.head;
    let head = match reader.next(|bytes| RequestHead::parse(bytes, limit)).await {
        Ok(head) => head,
        Err(error) => return Err(refuse(session, reader.is_http(), error).await),
    };
    // Before authentication: browsers send no proxy password with a request for the script.
    if pac::is_requested(&session.dial_context.current_listener().listener, &head) {
        return Err(pac::send(session, &head).await);
    }
    authenticate(session, &head).await?;
    match &head.target {
        RequestTarget::Authority(target) => {
            let target = target.clone();
            Ok(ClientRequest::Tunnel(TunnelRequest { target, early: reader.take_all(), responder: Responder::Connect }))
        }
        RequestTarget::Absolute { .. } => Ok(ClientRequest::Http(ProxyRequest { head: Box::new(head) })),
        RequestTarget::Origin(_) | RequestTarget::Asterisk => {
            send_and_close(session.client_end(), &responses::page(400, "Bad Request", responses::NOT_A_SERVER)).await;
            Err(EndReason::BadHandshake("a request to a server, not to a proxy"))
        }
    }
}

async fn refuse(session: &Session, has_begun: bool, error: ReadError) -> EndReason {
    match &error {
        ReadError::Gone(_) => {}
        ReadError::Late if has_begun => send_error(session.client_end(), 408, "Request Timeout").await,
        ReadError::Late => {}
        ReadError::Wire(WireError::TooLarge) => {
            send_error(session.client_end(), 431, "Request Header Fields Too Large").await
        }
        ReadError::Wire(_) => send_error(session.client_end(), 400, "Bad Request").await,
    }
    error.into()
}

async fn authenticate(session: &Session, head: &RequestHead) -> Result<(), EndReason> {
    let context = session.dial_context.current_listener();
    let Some(users) = session.users_to_ask(&context) else { return Ok(()) };
    let verdict = match head.headers.get("Proxy-Authorization").and_then(auth::parse_basic) {
        Some((user, password)) => session.authenticate(users, &user, &password).await,
        None => Err(AuthError::WrongCredentials),
    };
    match verdict {
        Ok(()) => return Ok(()),
        Err(AuthError::WrongCredentials) => send_and_close(session.client_end(), &responses::challenge()).await,
        Err(AuthError::Overloaded) => send_and_close(session.client_end(), &responses::overloaded()).await,
        Err(AuthError::ClientGone) => {}
    }
    verdict.map_err(EndReason::from)
}

/// Forwards a request, and returns the next request. Only the larger parts of the future are boxed: the rest uses the
/// space that the pump uses in other sessions.
///
/// # Errors
/// Why the session ended.
pub fn serve(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    request: ProxyRequest,
) -> impl Future<Output = Result<ClientRequest, EndReason>> {
    // Not an async function, whose future would store its arguments twice.
    session.dial_context.require_raw_sections();
    async move {
        match forward::run(session, reader, request.head).await? {
            ClientConnection::Upgraded(server) => Ok(ClientRequest::Upgraded { server, early: reader.take_all() }),
            ClientConnection::Close => {
                Box::pin(super::lingering_close(session.client_end())).await;
                Err(EndReason::Finished)
            }
            ClientConnection::Next => Box::pin(next_request(session, reader)).await,
        }
    }
}

/// Answers a request that the limits of the listener or of the user do not allow.
pub async fn refuse_request(session: &Session, request: &ProxyRequest, error: &DialError) -> EndReason {
    session.set_target(forward::target_of(&request.head));
    let mut log = RequestLog::new(session, &request.head);
    forward::give_up(session, error, &mut log).await
}

/// Waits for the next request. If the client closes its connection instead, the session has finished.
async fn next_request(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let timeouts = &session.context.config.timeouts;
    match session.context.thread.drain_state.work_first(timeout(timeouts.keep_alive, reader.first_byte())).await {
        Some(Ok(Ok(_))) => {}
        Some(Ok(Err(_))) | None => return Err(EndReason::Finished),
        Some(Err(_)) => return Err(EndReason::Idle),
    }
    // Each request uses the configuration in force, regardless of the age of the client's connection.
    if !session.dial_context.refresh_listener() {
        Box::pin(send_error(session.client_end(), 503, "Service Unavailable")).await;
        return Err(EndReason::Finished);
    }
    reader.set_deadline(Some(timeouts.handshake));
    let request = Box::pin(accept(session, reader)).await;
    reader.set_deadline(None);
    request
}

/// Whether the client's connection may carry another request after this exchange.
fn is_persistent(session: &Session, head: &RequestHead) -> bool {
    rewrite::is_keep_alive(head.version, &head.headers) && !session.context.thread.drain_state.is_draining()
}

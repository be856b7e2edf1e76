//! One request and its response.
//!
//! Both directions run at the same time: a response may arrive before the request's body has been sent (100 Continue,
//! 413), and a complete response ends the exchange. A repeatable request may use an idle connection; if that connection
//! turns out to be dead, the request is repeated once on a new connection. Other requests never use an idle connection.

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::http::{RequestHead, RequestTarget, Scheme};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::exchange::RequestLog;
use super::exchange::{DeliveredResponse, exchange};
use super::rewriting::{self, OutgoingRequest};
use super::upstream::{self, Upstream};
use super::{ftp, responses, send_error};
use crate::dial::DialError;
use crate::ingress::HandshakeReader;
use crate::ingress::responder::send_and_close;
use crate::path::{self, PathChoice};
use crate::pump;
use crate::session::{ClientEnd, Session, connect_by_paths, wait_client_end};

/// The state of the client's connection after an exchange.
pub enum ClientConnection {
    /// The client may send another request.
    Next,
    /// The connection must be closed.
    Close,
    /// The connection has switched to another protocol, with this server.
    Upgraded(Rc<TcpStream>),
}

/// Why an exchange failed.
pub enum ExchangeError {
    /// The section to the server, or to this `http` hop, ended before the first byte of a response.
    NoAnswer(Option<Box<str>>),
    /// Dialling failed; the error is reported to the client.
    Dial(Box<DialError>),
    /// The session has ended, and no response can be sent.
    Ended(EndReason),
}

impl From<Cause> for ExchangeError {
    fn from(cause: Cause) -> Self {
        DialError::from(cause).into()
    }
}

impl From<DialError> for ExchangeError {
    fn from(error: DialError) -> Self {
        Self::Dial(Box::new(error))
    }
}

impl From<EndReason> for ExchangeError {
    fn from(end: EndReason) -> Self {
        Self::Ended(end)
    }
}

/// Forwards one request and its response.
///
/// # Errors
/// Why the session ended.
pub async fn run(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    mut head: Box<RequestHead>,
) -> Result<ClientConnection, EndReason> {
    if !rewriting::decrement_max_forwards(&mut head) {
        let (status, reason) = if head.method == "OPTIONS" { (200, "OK") } else { (405, "Method Not Allowed") };
        Box::pin(send_error(session.client_end(), status, reason)).await;
        return Err(EndReason::Finished);
    }
    let RequestTarget::Absolute { scheme, target, .. } = &head.target else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    session.set_target(target);
    match scheme {
        Scheme::Ftp => Box::pin(ftp::run(session, reader, *head)).await,
        Scheme::Https => {
            Box::pin(send_error(session.client_end(), 501, "Use CONNECT for https")).await;
            Err(EndReason::BadHandshake("https without CONNECT"))
        }
        Scheme::Http => forward(session, reader, head).await,
    }
}

/// Forwards a request to a server, or to a hop that handles any scheme.
///
/// # Errors
/// Why the session ended.
pub async fn forward(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    head: Box<RequestHead>,
) -> Result<ClientConnection, EndReason> {
    let mut log = RequestLog::new(session, &head);
    match try_paths(session, reader, head, &mut log).await {
        Ok(after) => Ok(after),
        Err(ExchangeError::Ended(end)) => {
            pump::abort(&session.client);
            Err(end)
        }
        Err(ExchangeError::NoAnswer(hop)) => {
            let error = DialError { hop: hop.map(String::from), ..Cause::Reset.into() };
            Err(Box::pin(give_up(session, &error, &mut log)).await)
        }
        Err(ExchangeError::Dial(error)) => Err(Box::pin(give_up(session, &error, &mut log)).await),
    }
}

/// Tries the paths in order until the first hop of one accepts the connection.
async fn try_paths(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    head: Box<RequestHead>,
    log: &mut RequestLog<'_>,
) -> Result<ClientConnection, ExchangeError> {
    let mut path_choices = session.dial_context.paths(target_of(&head))?;
    if matches!(head.target, RequestTarget::Absolute { scheme: Scheme::Ftp, .. }) {
        // Only an `http` hop translates; a server of FTP does not understand the request.
        path_choices.retain(|path_choice| path_choice.path.http_hop().is_some());
    }
    if path::racing_count(&path_choices) > 1
        && path_choices.iter().all(|path_choice| path_choice.path.http_hop().is_none())
    {
        return Box::pin(race(session, reader, path_choices, head, log)).await;
    }
    let mut failure = None;
    let mut head = Some(head);
    for (at, path_choice) in path_choices.iter().enumerate() {
        session.dial_context.on_attempt(path_choice);
        // A copy is kept as long as there is another path to try.
        let attempt_head = if at + 1 < path_choices.len() { head.clone() } else { head.take() };
        let Some(attempt_head) = attempt_head else { break };
        let mut outgoing = rewriting::rewrite_request(session, path_choice, attempt_head);
        match Box::pin(try_idle_then_fresh(session, reader, path_choice, path_choices.len(), &mut outgoing, log)).await
        {
            Err(ExchangeError::Dial(error)) if error.first_hop_down => {
                session.dial_context.on_failure(path_choice, &error);
                failure = Some(error);
            }
            decided => return decided,
        }
    }
    Err(failure.map_or_else(|| Cause::HopFailed.into(), ExchangeError::Dial))
}

/// Races several paths, because too few measurements exist to choose one.
async fn race(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    path_choices: Vec<PathChoice>,
    head: Box<RequestHead>,
    log: &mut RequestLog<'_>,
) -> Result<ClientConnection, ExchangeError> {
    let started_at = Instant::now();
    let connected = Box::pin(connect_by_paths(&session.dial_context, target_of(&head), path_choices)).await?;
    let (path_choice, mut outgoing) =
        (&connected.path_choice, rewriting::rewrite_request(session, &connected.path_choice, head));
    let mut upstream = upstream::from_dialled(session, path_choice, connected.dialled, started_at).await?;
    let delivered = watched_exchange(session, reader, &mut outgoing, &mut upstream, log).await?;
    Ok(after_exchange(session, path_choice, &outgoing, upstream, delivered))
}

/// Returns the target of a request in absolute form.
pub fn target_of(head: &RequestHead) -> &Target {
    let RequestTarget::Absolute { target, .. } = &head.target else {
        unreachable!("invariant: only requests in absolute form are forwarded")
    };
    target
}

/// Sends the cause of the failure to the client, and closes the connection.
pub async fn give_up(session: &Session, error: &DialError, log: &mut RequestLog<'_>) -> EndReason {
    log.status = error.cause_for_client().http_status();
    session.release_upstream();
    let page = responses::dial_error_response(error, !session.context.listener.admits_unauthenticated());
    send_and_close(session.client_end(), if log.method == "HEAD" { responses::head_only(&page) } else { &page }).await;
    session.record_dial_error(error)
}

/// Uses an idle connection if the request is repeatable, and otherwise, or if the idle connection is dead, a new one.
/// `path_choice` is one of `path_count` paths.
#[expect(clippy::manual_async_fn, reason = "an async function holds its arguments twice")]
fn try_idle_then_fresh(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    path_choice: &PathChoice,
    path_count: usize,
    outgoing: &mut OutgoingRequest,
    log: &mut RequestLog<'_>,
) -> impl Future<Output = Result<ClientConnection, ExchangeError>> {
    async move {
        let take_idle = || upstream::take_idle(session, path_choice, &outgoing.target);
        let mut upstream = if let Some(idle) = outgoing.repeatable.then(take_idle).flatten() {
            idle
        } else {
            Box::pin(upstream::dial(session, path_choice, path_count, &outgoing.target)).await?
        };
        loop {
            let is_reused = upstream.exchanges > 0;
            match watched_exchange(session, reader, outgoing, &mut upstream, log).await {
                Err(ExchangeError::NoAnswer(_)) if is_reused => {
                    session.context.services().events.metrics.record_upstream_reuse("stale");
                }
                delivered => {
                    return delivered
                        .map(|delivered| after_exchange(session, path_choice, outgoing, upstream, delivered));
                }
            }
            upstream = Box::pin(upstream::dial(session, path_choice, path_count, &outgoing.target)).await?;
        }
    }
}

/// Exchanges the messages, unless the client closes its connection or nothing is transferred for the idle timeout.
fn watched_exchange(
    session: &Session,
    reader: &mut HandshakeReader<'_>,
    outgoing: &mut OutgoingRequest,
    upstream: &mut Upstream,
    log: &mut RequestLog<'_>,
) -> impl Future<Output = Result<DeliveredResponse, ExchangeError>> {
    // Not an async function, whose future would store its arguments twice.
    log.reused = upstream.exchanges > 0;
    async move {
        tokio::select! {
            biased;
            finished = exchange(session, reader, outgoing, upstream, log) => finished,
            // The client is not read after its request is complete, so the end of its stream is polled for.
            end = wait_client_gone(session) => Err(end.into()),
            // Before the response has begun, the timeout is reported with a status; afterwards the connection is
            // aborted.
            () = pump::wait_idle(&session.stats, session.context.config.timeouts.idle) => {
                Err(if log.status == 0 { Cause::TimedOut.into() } else { EndReason::Idle.into() })
            }
        }
    }
}

/// Puts the server's connection into the pool if it can carry other requests, and returns the state of the client's
/// connection.
fn after_exchange(
    session: &Session,
    path_choice: &PathChoice,
    outgoing: &OutgoingRequest,
    upstream: Upstream,
    delivered: DeliveredResponse,
) -> ClientConnection {
    match delivered {
        DeliveredResponse { upgraded: true, .. } => ClientConnection::Upgraded(upstream.stream),
        DeliveredResponse { server_keep_alive, client_keep_alive, .. } => {
            session.release_upstream();
            if server_keep_alive {
                upstream::release(session, path_choice, &outgoing.target, upstream);
            }
            if client_keep_alive { ClientConnection::Next } else { ClientConnection::Close }
        }
    }
}

/// Completes when the client has closed or reset its connection. The future of the rare case is boxed, because this
/// future is part of every exchange.
pub async fn wait_client_gone(session: &Session) -> EndReason {
    match wait_client_end(session.client_end()).await {
        ClientEnd::Closed => Box::pin(wait_half_closed_client(session)).await,
        ClientEnd::Reset => EndReason::ResetByClient,
    }
}

/// Completes after a reset by a client that has closed its half, or after the half-close timeout without progress. Such
/// a client may have left or may wait for the response; the relay cannot distinguish the two.
async fn wait_half_closed_client(session: &Session) -> EndReason {
    tokio::select! {
        _ = session.client.ready(Interest::ERROR) => EndReason::ResetByClient,
        () = pump::wait_idle(&session.stats, session.context.config.timeouts.half_close_idle) => EndReason::HalfCloseIdle,
    }
}

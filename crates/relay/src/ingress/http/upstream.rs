//! The server's side of an exchange: the request target for a hop or a server, and the connection, which is new or
//! comes from the pool of idle connections and is returned to it.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::addr::{ServerAddr, Target};
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::http::{Headers, auth};
use tokio::net::TcpStream;

use super::upstream_pool::{IdleUpstream, UpstreamKey};
use crate::config::{Hop, HopKind};
use crate::dial::link::earlier_sessions;
use crate::dial::{AnswerFuture, DialError, Dialled, PlainSection, into_plain};
use crate::path::PathChoice;
use crate::session::Session;

/// A connection to a server, or to an `http` hop that receives requests in absolute form.
pub struct Upstream {
    /// The section to the server or to the `http` hop, or a bridge to the section.
    pub stream: Rc<TcpStream>,
    /// The section, if `stream` is a bridge to it.
    section: Option<Rc<TcpStream>>,
    /// The peer of the section.
    pub server: ServerAddr,
    /// Number of exchanges that the connection has carried.
    pub exchanges: u32,
    /// The outstanding answer of a relay.
    pub answer: Option<Box<RelayAnswer>>,
}

/// An outstanding answer of a relay.
pub struct RelayAnswer {
    /// The answer to OPEN, or why the path is not established.
    pub answer: AnswerFuture,
    /// Time at which dialling started.
    pub started_at: Instant,
}

/// Returns the target of the request line: the path for a server, the absolute form for an `http` hop. The absolute
/// form starts with `origin` (scheme, user and authority); for a hop with credentials, these are set in `headers`.
pub fn request_target(hop: Option<&Hop>, origin: &str, path_and_query: &str, headers: &mut Headers) -> String {
    let Some(hop) = hop else { return path_and_query.to_owned() };
    if let HopKind::Http(Some(credentials)) = &hop.kind {
        let value = auth::write_basic(credentials.user.as_bytes(), credentials.password.as_bytes());
        headers.set("Proxy-Authorization", value);
    }
    // OPTIONS of a whole server has no path in absolute form (RFC 9112, 3.2.4).
    let path = if path_and_query == "*" { "" } else { path_and_query };
    format!("{origin}{path}")
}

/// Takes an idle connection on the path, if there is one.
pub fn take_idle(session: &Session, path_choice: &PathChoice, target: &Target) -> Option<Upstream> {
    let context = session.dial_context.current_listener();
    if context.listener.keep_client_address || path_choice.send_proxy.is_some() {
        // Idle connections carry the addresses of other clients.
        return None;
    }
    let dialler = session.dial_context.dialler_for(&context, 1);
    let permits = |server| dialler.permits(path_choice, target, server);
    let key = UpstreamKey::new(&context.config, &context.listener.access, path_choice, target);
    let IdleUpstream { stream, section, server, exchanges } = context.services().upstream_pool.take(&key, permits)?;
    // If the registration fails for lack of memory, the dial of a new connection reports the error.
    let stream = Rc::new(TcpStream::from_std(stream).ok()?);
    let section = section.map(TcpStream::from_std).transpose().ok()?.map(Rc::new);
    let to_server = section.as_ref().unwrap_or(&stream);
    session.on_connected(server, Rc::clone(to_server), Instant::now());
    session.start_section(Direction::Up, to_server, exchanges);
    Some(Upstream { stream, section, server, exchanges, answer: None })
}

/// Dials a new connection by one of `path_count` candidate paths.
pub async fn dial(
    session: &Session,
    path_choice: &PathChoice,
    path_count: usize,
    target: &Target,
) -> Result<Upstream, DialError> {
    let started_at = Instant::now();
    let (context, open_params) = (session.dial_context.current_listener(), session.dial_context.open_params());
    let dialler = session.dial_context.dialler_for(&context, path_count);
    let dialled = match path_choice.path.http_hop() {
        Some(_) => dialler.connect_to_last_hop(path_choice, target, &open_params).await?,
        None => dialler.connect(path_choice, target, &open_params).await?,
    };
    from_dialled(session, path_choice, dialled, started_at).await
}

/// Turns a connection that was dialled by `path_choice` into an upstream connection.
pub async fn from_dialled(
    session: &Session,
    path_choice: &PathChoice,
    dialled: Dialled,
    started_at: Instant,
) -> Result<Upstream, DialError> {
    let earlier = earlier_sessions(dialled.opened.as_ref().and_then(|opened| opened.reuse.as_ref()));
    session.dial_context.on_dialled(&dialled);
    let PlainSection { stream, section, server, answer } = into_plain(dialled).await?;
    session.on_connected(server, Rc::clone(&section), started_at);
    session.start_section(Direction::Up, &section, earlier);
    let answer = answer.map(|answer| Box::new(RelayAnswer { answer: blame_http_hop(path_choice, answer), started_at }));
    let section = (!Rc::ptr_eq(&section, &stream)).then_some(section);
    Ok(Upstream { stream, section, server, exchanges: 0, answer })
}

/// Attributes a failure to the `http` hop. The relays before the hop report it as their target, but for the client the
/// hop is not the target.
fn blame_http_hop(path_choice: &PathChoice, answer: AnswerFuture) -> AnswerFuture {
    let Some(hop) = path_choice.path.http_hop().map(Arc::clone) else { return answer };
    Box::pin(async move { answer.await.map_err(|error| error.blame_next_hop(hop)) })
}

/// Puts the connection into the pool for the next request, on any thread. The session has released the section before.
pub fn release(session: &Session, path_choice: &PathChoice, target: &Target, upstream: Upstream) {
    let context = session.dial_context.current_listener();
    if context.listener.keep_client_address || path_choice.send_proxy.is_some() {
        return;
    }
    // A connection that cannot be taken out of the runtime is closed.
    let Some(idle) = into_idle(upstream) else { return };
    let key = UpstreamKey::new(&context.config, &context.listener.access, path_choice, target);
    context.services().upstream_pool.put(key, idle, &context.config);
}

/// Takes the connection out of the runtime of this thread; `None` if no descriptors are left.
fn into_idle(upstream: Upstream) -> Option<IdleUpstream> {
    let stream = Rc::into_inner(upstream.stream);
    debug_assert!(stream.is_some(), "a released connection has no other owner");
    let section = upstream.section.map(|section| section.as_fd().try_clone_to_owned()).transpose().ok()?;
    Some(IdleUpstream {
        stream: stream?.into_std().ok()?,
        section: section.map(std::net::TcpStream::from),
        server: upstream.server,
        exchanges: upstream.exchanges + 1,
    })
}

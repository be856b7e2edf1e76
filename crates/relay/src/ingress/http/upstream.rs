//! The server's side of an exchange: which way requests for a target go, and a connection that goes it.

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::addr::{ServerAddr, Target};
use ekiden_proto::wire::http::{Headers, auth};
use tokio::net::TcpStream;

use crate::config::{Hop, HopKind};
use crate::dial::{Answer, DialError, Dialled, Plain, plain};
use crate::path::Way;
use crate::session::Session;

/// A connection to a server, or to an `http` hop that is asked in absolute form.
pub struct Upstream {
    /// The connection.
    pub stream: Rc<TcpStream>,
    /// What it is connected to.
    pub server: ServerAddr,
    /// Whether it carried a request before.
    pub reused: bool,
    /// What a relay on the way has still to say, and since when.
    pub answer: Option<(Answer, Instant)>,
}

/// Connections with the same key are as good as each other.
pub fn key(way: &Way, target: &Target) -> String {
    // Not by the path's name, which may mean other hops after a reload.
    let hops: Vec<String> = way.path.hops.iter().map(|hop| format!("{}://{}", hop.kind.word(), hop.address)).collect();
    let by = hops.join(",");
    if way.path.http_hop().is_some() { by } else { format!("{target} by {by}") }
}

/// What stands in the request line: the path for a server; for an `http` hop everything, from `origin` with scheme and
/// user on, and it also gets its credentials.
pub fn request_target(hop: Option<&Hop>, origin: &str, path_and_query: &str, headers: &mut Headers) -> String {
    let Some(hop) = hop else { return path_and_query.to_owned() };
    if let HopKind::Http(Some(credentials)) = &hop.kind {
        let value = auth::basic_value(credentials.user.as_bytes(), credentials.password.as_bytes());
        headers.set("Proxy-Authorization", value);
    }
    // OPTIONS of a whole server has no path in absolute form (RFC 9112, 3.2.4).
    let path = if path_and_query == "*" { "" } else { path_and_query };
    format!("{origin}{path}")
}

/// An idle connection that goes this way, where there is one.
pub fn idle(session: &Session, way: &Way, target: &Target) -> Option<Upstream> {
    if session.entrance.listener.keep_client_address {
        // They have the addresses of other clients.
        return None;
    }
    let permits = |server| session.errand.dialler_for(1).permits(way, target, server);
    let (stream, server) = session.entrance.worker.kept.take(&key(way, target), permits)?;
    session.reached(server, Rc::clone(&stream), Instant::now());
    Some(Upstream { stream, server, reused: true, answer: None })
}

/// A new connection, by one of so many `ways` that may have to be tried.
pub async fn fresh(session: &Session, way: &Way, ways: usize, target: &Target) -> Result<Upstream, DialError> {
    let asked = Instant::now();
    let (dialler, journey) = (session.errand.dialler_for(ways), session.errand.journey());
    let dialled = match way.path.http_hop() {
        Some(_) => dialler.connect_to_last_hop(way, target, &journey).await?,
        None => dialler.connect(way, target, &journey).await?,
    };
    of(session, dialled, asked).await
}

/// The connection that was dialled.
pub async fn of(session: &Session, dialled: Dialled, asked: Instant) -> Result<Upstream, DialError> {
    let Plain { stream, section, server, trace, answer } = plain(dialled).await?;
    session.reached(server, section, asked);
    session.errand.is_known_as(trace);
    Ok(Upstream { stream, server, reused: false, answer: answer.map(|answer| (answer, asked)) })
}

/// Keeps the connection for the next request.
pub fn keep(session: &Session, way: &Way, target: &Target, upstream: Upstream) {
    if session.entrance.listener.keep_client_address {
        return;
    }
    let config = &session.entrance.config;
    let (span, most) = (config.timeouts.kept_idle, config.limits.kept_connections);
    session.entrance.worker.kept.give(key(way, target), upstream.stream, upstream.server, span, most);
}

//! The server's side of an exchange: which way requests for a target go, and a connection that goes it.

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::addr::{ServerAddr, Target};
use ekiden_proto::wire::http::{Headers, auth};
use tokio::net::TcpStream;

use crate::dial::DialError;
use crate::session::Session;

/// A connection to a server, or to an `http` hop that is asked in absolute form.
pub struct Upstream {
    /// The connection.
    pub stream: Rc<TcpStream>,
    /// What it is connected to.
    pub server: ServerAddr,
    /// Whether it carried a request before.
    pub reused: bool,
}

/// The `http` hop that is asked, where that is not the server itself.
pub fn asked_hop(session: &Session) -> Option<String> {
    session.entrance.dialler().http_hop().map(ToString::to_string)
}

/// Connections with the same key are as good as each other.
pub fn way(session: &Session, target: &Target) -> String {
    let path = &session.entrance.path;
    match session.entrance.dialler().http_hop() {
        Some(_) => path.to_string(),
        None => format!("{target} by {path}"),
    }
}

/// What stands in the request line: the path for a server; for an `http` hop everything, from `origin` with scheme and
/// user on, and it also gets its credentials.
pub fn request_target(session: &Session, origin: &str, path_and_query: &str, headers: &mut Headers) -> String {
    let Some(hop) = session.entrance.dialler().http_hop() else { return path_and_query.to_owned() };
    if let Some(credentials) = &hop.credentials {
        let value = auth::basic_value(credentials.user.as_bytes(), credentials.password.as_bytes());
        headers.set("Proxy-Authorization", value);
    }
    // OPTIONS of a whole server has no path in absolute form (RFC 9112, 3.2.4).
    let path = if path_and_query == "*" { "" } else { path_and_query };
    format!("{origin}{path}")
}

/// An idle connection that goes this way, where there is one.
pub fn idle(session: &Session, target: &Target) -> Option<Upstream> {
    let permits = |server| session.entrance.dialler().permits(target, server);
    let (stream, server) = session.entrance.worker.kept.take(&way(session, target), permits)?;
    session.reached(server, Rc::clone(&stream), Instant::now());
    Some(Upstream { stream, server, reused: true })
}

/// A new connection.
pub async fn fresh(session: &Session, target: &Target) -> Result<Upstream, DialError> {
    let asked = Instant::now();
    let dialler = session.entrance.dialler();
    let dialled = match dialler.http_hop() {
        Some(_) => dialler.connect_to_last_hop(target).await?,
        None => dialler.connect(target).await?,
    };
    let stream = Rc::new(dialled.stream);
    session.reached(dialled.server, Rc::clone(&stream), asked);
    Ok(Upstream { stream, server: dialled.server, reused: false })
}

/// Keeps the connection for the next request.
pub fn keep(session: &Session, target: &Target, upstream: Upstream) {
    let config = &session.entrance.config;
    let (span, most) = (config.timeouts.kept_idle, config.limits.kept_connections);
    session.entrance.worker.kept.give(way(session, target), upstream.stream, upstream.server, span, most);
}

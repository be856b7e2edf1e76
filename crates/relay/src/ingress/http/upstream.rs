//! The server's side of an exchange: the request line for a hop or a server, the connection, and idle connections that
//! are kept for later requests on the same path.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::addr::{ServerAddr, Target};
use ekiden_proto::key::PublicKey;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::http::{Headers, auth};
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::config::{Config, Hop, HopKind, Path};
use crate::dial::{AnswerFuture, DialError, Dialled, PlainSection, into_plain};
use crate::ingress::services::Services;
use crate::path::PathChoice;
use crate::rules::Marks;
use crate::session::Session;

/// A connection to a server, or to an `http` hop that is asked in absolute form.
pub struct Upstream {
    /// The section to the server or to the `http` hop.
    pub stream: Rc<TcpStream>,
    /// The peer of the section.
    pub server: ServerAddr,
    /// Whether the connection has carried a request before.
    pub reused: bool,
    /// The outstanding answer of a relay, and when OPEN was sent.
    pub answer: Option<(AnswerFuture, Instant)>,
}

/// The target of the request line: the path for a server; for an `http` hop the absolute form, starting at `origin`
/// with scheme and user, and the hop's credentials in `headers`.
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

/// An idle connection on the path, if there is one.
pub fn take_idle(session: &Session, way: &PathChoice, target: &Target) -> Option<Upstream> {
    let context = session.dial_context.current_listener();
    if context.listener.keep_client_address {
        // They have the addresses of other clients.
        return None;
    }
    let dialler = session.dial_context.dialler_for(&context, 1);
    let permits = |server| dialler.permits(way, target, server);
    let (stream, server) =
        context.thread.upstream_pool.take(&UpstreamKey::new(&context.config, way, target), permits)?;
    session.on_connected(server, Rc::clone(&stream), Instant::now());
    Some(Upstream { stream, server, reused: true, answer: None })
}

/// A new connection by one of `ways` candidate paths.
pub async fn dial(session: &Session, way: &PathChoice, ways: usize, target: &Target) -> Result<Upstream, DialError> {
    let asked = Instant::now();
    let (context, open_params) = (session.dial_context.current_listener(), session.dial_context.open_params());
    let dialler = session.dial_context.dialler_for(&context, ways);
    let dialled = match way.path.http_hop() {
        Some(_) => dialler.connect_to_last_hop(way, target, &open_params).await?,
        None => dialler.connect(way, target, &open_params).await?,
    };
    from_dialled(session, way, dialled, asked).await
}

/// The connection that was dialled by `way`.
pub async fn from_dialled(
    session: &Session,
    way: &PathChoice,
    dialled: Dialled,
    asked: Instant,
) -> Result<Upstream, DialError> {
    let PlainSection { stream, section, server, trace, answer } = into_plain(dialled).await?;
    session.on_connected(server, section, asked);
    session.dial_context.set_trace(trace);
    let answer = answer.map(|answer| (blame_http_hop(way, answer), asked));
    Ok(Upstream { stream, server, reused: false, answer })
}

/// The relays before an `http` hop report the hop as their target. For the client the hop is not the target.
fn blame_http_hop(way: &PathChoice, answer: AnswerFuture) -> AnswerFuture {
    let Some(hop) = way.path.http_hop().map(Arc::clone) else { return answer };
    Box::pin(async move { answer.await.map_err(|error| error.blame_next_hop(hop)) })
}

/// Keeps the connection for the next request.
pub fn release(session: &Session, way: &PathChoice, target: &Target, upstream: Upstream) {
    let context = session.dial_context.current_listener();
    if context.listener.keep_client_address {
        return;
    }
    let key = UpstreamKey::new(&context.config, way, target);
    context.thread.upstream_pool.put(key, upstream.stream, upstream.server, &context.config);
}

/// All parameters of dialling: two connections with equal keys are interchangeable.
///
/// Hops are compared as in the pools: protocol, address, keys, encryption, credentials and profile. The name of the
/// path is left out, because it may mean other hops after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamKey {
    hops: Vec<Arc<Hop>>,
    beyond: Vec<PublicKey>,
    /// `None` for an `http` hop, where one connection serves all targets.
    target: Option<Target>,
    /// The profile of the section to the target; `None` for a path with hops, which have profiles of their own.
    profile: Option<Arc<Profile>>,
    marks: Option<Marks>,
    dns_servers: Vec<SocketAddr>,
}

impl UpstreamKey {
    /// The key of a connection for `target` that is dialled by `way` under `config`.
    #[must_use]
    pub fn new(config: &Config, way: &PathChoice, target: &Target) -> Self {
        Self {
            hops: way.path.hops.clone(),
            beyond: way.beyond.clone(),
            target: way.path.http_hop().is_none().then(|| target.clone()),
            profile: way.path.is_direct().then(|| Arc::clone(&way.profile)),
            marks: config.needed_marks(),
            dns_servers: config.dns_servers.clone(),
        }
    }

    /// Whether a session under `config` can ask for such a connection.
    fn is_valid_for(&self, config: &Config) -> bool {
        if (self.marks, &self.dns_servers) != (config.needed_marks(), &config.dns_servers) {
            return false;
        }
        if let Some(profile) = &self.profile {
            let goes = |paths: &[Arc<Path>]| paths.iter().any(|path| path.is_direct());
            return config.routes.iter().any(|route| route.profile == *profile && (route.auto || goes(&route.paths)));
        }
        let is_known = self.hops.iter().all(|hop| config.relays.contains(hop));
        is_known && (config.has_auto_route() || config.paths().iter().any(|path| path.hops == self.hops))
    }
}

impl Hash for UpstreamKey {
    /// Hashes only a part, which differs between most keys. Equality compares all parts.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.target.hash(state);
        self.hops.iter().for_each(|hop| hop.name.hash(state));
    }
}

/// The idle connections of one thread.
pub struct UpstreamPool {
    services: Arc<Services>,
    by_key: RefCell<HashMap<UpstreamKey, Vec<IdleUpstream>>>,
    /// The configuration in force; `None` before the first.
    config: RefCell<Option<Arc<Config>>>,
}

struct IdleUpstream {
    stream: Rc<TcpStream>,
    server: ServerAddr,
    until: Instant,
}

impl UpstreamPool {
    /// A pool without connections.
    #[must_use]
    pub fn new(services: Arc<Services>) -> Self {
        Self { services, by_key: RefCell::default(), config: RefCell::default() }
    }

    /// Closes the connections that no session under `config` can ask for.
    pub fn apply_config(&self, config: &Arc<Config>) {
        self.by_key.borrow_mut().retain(|key, _| key.is_valid_for(config));
        self.config.replace(Some(Arc::clone(config)));
    }

    /// The most recently used live connection with this key to a permitted server.
    pub fn take(&self, key: &UpstreamKey, permits: impl Fn(ServerAddr) -> bool) -> Option<(Rc<TcpStream>, ServerAddr)> {
        let mut by_key = self.by_key.borrow_mut();
        let found = by_key.get_mut(key).and_then(|idle| {
            while let Some(at) = idle.iter().rposition(|upstream_pool| permits(upstream_pool.server)) {
                let last = idle.remove(at);
                if is_alive(&last.stream) {
                    return Some((last.stream, last.server));
                }
                self.services.events.metrics.record_upstream_reuse("stale");
            }
            None
        });
        self.services.events.metrics.record_upstream_reuse(if found.is_some() { "hit" } else { "miss" });
        found
    }

    /// Keeps a connection that was dialled under `config`, within the limits of `config`. A connection that no session under the
    /// configuration in force can ask for is closed.
    pub fn put(&self, key: UpstreamKey, stream: Rc<TcpStream>, server: ServerAddr, config: &Arc<Config>) {
        let in_force = self.config.borrow();
        if in_force.as_ref().is_some_and(|now| !Arc::ptr_eq(now, config) && !key.is_valid_for(now)) {
            return;
        }
        let mut by_key = self.by_key.borrow_mut();
        if by_key.values().map(Vec::len).sum::<usize>() < config.limits.kept_connections {
            let until = Instant::now() + config.timeouts.kept_idle;
            by_key.entry(key).or_default().push(IdleUpstream { stream, server, until });
        }
    }

    /// Closes connections that were idle for too long or that the server has closed.
    pub fn expire(&self) {
        let now = Instant::now();
        self.by_key.borrow_mut().retain(|_, idle| {
            idle.retain(|upstream_pool| upstream_pool.until > now && is_alive(&upstream_pool.stream));
            !idle.is_empty()
        });
    }
}

/// An idle connection is alive while nothing is readable: unexpected bytes count as an end.
fn is_alive(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    matches!(SockRef::from(stream).peek(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

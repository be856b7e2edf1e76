//! Idle connections to servers and `http` hops, kept for later requests on the same path.

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
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::config::{Config, Hop, Path};
use crate::ingress::services::Services;
use crate::path::PathChoice;
use crate::rules::Marks;

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
    /// An empty pool.
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

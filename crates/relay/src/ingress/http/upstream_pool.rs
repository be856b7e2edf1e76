//! Idle connections to servers and `http` hops, for later requests on the same path.
//!
//! All threads share the pool (docs/decisions/0009). An idle connection is registered with no runtime; the thread of
//! the next session registers it with its own. The lock is held while one connection is moved. About once a second one
//! thread polls all connections under the lock, with one system call.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ekiden_proto::addr::{Host, ServerAddr, Target};
use ekiden_proto::key::PublicKey;
use ekiden_proto::profile::Profile;

use crate::config::{AccessRules, Config, Hop, Path, Resolve};
use crate::events::Events;
use crate::path::PathChoice;
use crate::pool::{find_ended, is_alive};
use crate::rules::Marks;

/// Shortest interval of checks for ended connections. It is below the interval at which each thread tidies up, so that
/// the jitter of a timer does not delay a check by a whole interval.
const CHECK_INTERVAL: Duration = Duration::from_millis(900);

/// All parameters of dialling: two connections with equal keys are interchangeable.
///
/// Hops are compared as in the pools: protocol, address, keys, encryption, credentials and profile. The name of the
/// path is left out, because it may refer to other hops after a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamKey {
    hops: Vec<Arc<Hop>>,
    later_relays: Vec<PublicKey>,
    /// The target; `None` for an `http` hop, where one connection serves all targets.
    target: Option<Target>,
    /// The profile of the section to the target; `None` for a path with hops, which have profiles of their own.
    profile: Option<Arc<Profile>>,
    /// The rules that have permitted the address of the target's name, if this relay has resolved the name for a hop:
    /// the pool does not know that address, so the rules of another session cannot be applied to it.
    rules: Option<AccessRules>,
    marks: Option<Marks>,
    dns_servers: Vec<SocketAddr>,
}

impl UpstreamKey {
    /// Returns the key of a connection for `target` that is dialled by `path_choice` under `config`, and under the
    /// `rules` of a listener.
    #[must_use]
    pub fn new(config: &Config, rules: &AccessRules, path_choice: &PathChoice, target: &Target) -> Self {
        let target = path_choice.path.http_hop().is_none().then(|| target.clone());
        let has_name = target.as_ref().is_some_and(|target| matches!(target.host, Host::Name(_)));
        let resolves_for_hop = path_choice.resolve == Resolve::Here && has_name && !path_choice.path.is_direct();
        Self {
            hops: path_choice.path.hops.clone(),
            later_relays: path_choice.later_relays.clone(),
            target,
            profile: path_choice.path.is_direct().then(|| Arc::clone(&path_choice.profile)),
            rules: resolves_for_hop.then(|| rules.clone()),
            marks: config.needed_marks(),
            dns_servers: config.dns_servers.clone(),
        }
    }

    /// Returns the key under which sessions under `config` look up such a connection; `None` if no session can use it.
    /// The hops of the key are those of `config`, so that a lookup recognises them by their addresses in memory:
    /// otherwise each comparison would compute the public halves of the own keys.
    fn adapted_to(mut self, config: &Config) -> Option<Self> {
        if (self.marks, &self.dns_servers) != (config.needed_marks(), &config.dns_servers) {
            return None;
        }
        if let Some(profile) = &self.profile {
            let has_direct = |paths: &[Arc<Path>]| paths.iter().any(|path| path.is_direct());
            let mut routes = config.routes.iter();
            return routes
                .any(|route| route.profile == *profile && (route.auto || has_direct(&route.paths)))
                .then_some(self);
        }
        let current_hop = |hop| config.relays.iter().find(|current_hop| *current_hop == hop).map(Arc::clone);
        self.hops = self.hops.iter().map(current_hop).collect::<Option<_>>()?;
        let is_used = config.has_auto_route() || config.paths().iter().any(|path| path.hops == self.hops);
        is_used.then_some(self)
    }
}

impl Hash for UpstreamKey {
    /// Hashes only the fields that differ between most keys. Equality compares all fields.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.target.hash(state);
        self.hops.iter().for_each(|hop| hop.name.hash(state));
    }
}

/// The idle connections of the process.
#[derive(Debug)]
pub struct UpstreamPool {
    events: Arc<Events>,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// The connections of each key, the most recently used last.
    connections: HashMap<UpstreamKey, Vec<KeptUpstream>>,
    /// The configuration in force; `None` before the first configuration and after the pool is closed, when no
    /// connection is kept.
    config: Option<Arc<Config>>,
    /// Time of the next check for ended connections.
    check_at: Option<Instant>,
}

/// A connection that no session uses and that is registered with no runtime.
#[derive(Debug)]
pub struct IdleUpstream {
    /// The connection to the server or hop, or the near end of a bridge.
    pub stream: TcpStream,
    /// The section, if the connection is a bridge to it: a duplicate, because the bridge owns the section.
    pub section: Option<TcpStream>,
    /// The peer of the section.
    pub server: ServerAddr,
    /// Number of exchanges that the connection has carried.
    pub exchanges: u32,
}

#[derive(Debug)]
struct KeptUpstream {
    idle: IdleUpstream,
    expires_at: Instant,
}

impl UpstreamPool {
    /// Creates a pool without connections.
    #[must_use]
    pub fn new(events: Arc<Events>) -> Self {
        Self { events, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches to `config`, and closes the connections that no session under `config` can use.
    pub fn apply_config(&self, config: &Arc<Config>) {
        let mut state = self.lock();
        state.config = Some(Arc::clone(config));
        let mut closed = Vec::new();
        for (key, idle) in std::mem::take(&mut state.connections) {
            match key.adapted_to(config) {
                Some(key) => drop(state.connections.insert(key, idle)),
                None => closed.push(idle),
            }
        }
        drop(state);
        drop(closed);
    }

    /// Takes the most recently used live connection with this key to a permitted server.
    pub fn take(&self, key: &UpstreamKey, permits: impl Fn(ServerAddr) -> bool) -> Option<IdleUpstream> {
        let (metrics, now) = (&self.events.metrics, Instant::now());
        while let Some(last) = self.pop(key, &permits) {
            if last.expires_at > now && is_alive(&last.idle.stream) {
                metrics.record_upstream_reuse("hit");
                return Some(last.idle);
            }
            metrics.record_upstream_reuse("stale");
        }
        metrics.record_upstream_reuse("miss");
        None
    }

    fn pop(&self, key: &UpstreamKey, permits: impl Fn(ServerAddr) -> bool) -> Option<KeptUpstream> {
        let mut state = self.lock();
        let idle = state.connections.get_mut(key)?;
        let last = idle.iter().rposition(|upstream| permits(upstream.idle.server))?;
        Some(idle.remove(last))
    }

    /// Adds a connection that was dialled under `config`, within the limits in force. A connection that no session
    /// under the configuration in force can use is closed.
    pub fn put(&self, key: UpstreamKey, idle: IdleUpstream, config: &Arc<Config>) {
        let mut state = self.lock();
        let Some(in_force) = state.config.clone() else { return };
        let key = if Arc::ptr_eq(&in_force, config) { Some(key) } else { key.adapted_to(&in_force) };
        let Some(key) = key else { return };
        if state.connections.values().map(Vec::len).sum::<usize>() < in_force.limits.kept_connections {
            let expires_at = Instant::now() + in_force.timeouts.kept_idle;
            state.connections.entry(key).or_default().push(KeptUpstream { idle, expires_at });
        }
    }

    /// Closes connections that have been idle for too long or that the server has closed. Every thread calls this
    /// function periodically; the first call after the interval does the work for all threads.
    pub fn expire(&self, now: Instant) {
        let mut state = self.lock();
        if state.check_at.is_some_and(|check_at| now < check_at) {
            return;
        }
        state.check_at = Some(now + CHECK_INTERVAL);
        let closed = state.remove_ended(now);
        drop(state);
        drop(closed);
    }

    /// Closes all connections. From now on no connection is kept.
    pub fn close(&self) {
        let mut state = self.lock();
        let closed = std::mem::take(&mut *state);
        drop(state);
        drop(closed);
    }
}

impl PoolState {
    /// Removes and returns the connections that have ended or have been idle for too long.
    fn remove_ended(&mut self, now: Instant) -> Vec<KeptUpstream> {
        let entries: Vec<_> = std::mem::take(&mut self.connections).into_iter().collect();
        let idle = entries.iter().flat_map(|(_, idle)| idle);
        let mut ended = find_ended(idle.map(|upstream| &upstream.idle.stream)).into_iter();
        let mut removed = Vec::new();
        for (key, idle) in entries {
            let (retained, expired): (Vec<_>, Vec<_>) = idle.into_iter().partition(|upstream| {
                let has_ended = ended.next().unwrap_or(false);
                upstream.expires_at > now && !has_ended
            });
            removed.extend(expired);
            if !retained.is_empty() {
                self.connections.insert(key, retained);
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    //! Connections over loopback, without HTTP servers.

    use std::io::{self, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpListener};
    use std::os::fd::AsFd;

    use ekiden_proto::key::PrivateKey;
    use ekiden_sys::outq::unacknowledged;

    use super::*;
    use crate::config::{HopKind, LogConfig, Peering};
    use crate::events::log::Log;
    use crate::testing::{config_listening_at, wait_until};

    fn config(hops: &[Arc<Hop>], most: usize) -> Arc<Config> {
        let mut config = config_listening_at("http://127.0.0.1:0");
        if !hops.is_empty() {
            config.set_paths_through(hops.to_vec());
        }
        config.limits.kept_connections = most;
        Arc::new(config)
    }

    /// Returns a new hop object with this key.
    fn hop(own_key: &PrivateKey) -> Arc<Hop> {
        let kind =
            HopKind::Section(Peering { key: own_key.public_key(), own_key: Arc::new(own_key.clone()), encrypt: false });
        let address = Target::parse("192.0.2.1:7000", None).unwrap();
        Arc::new(Hop { name: "osaka".into(), kind, address, profile: Arc::default(), group: None })
    }

    /// The key of a connection by the first path of the first route.
    fn key(config: &Config, port: u16) -> UpstreamKey {
        let route = &config.routes[0];
        let (path, profile) = (Arc::clone(&route.paths[0]), Arc::clone(&route.profile));
        let path_choice = PathChoice::new(path, profile);
        let target = Target::parse("192.0.2.2", Some(port)).unwrap();
        UpstreamKey::new(config, &config.listeners[0].access, &path_choice, &target)
    }

    struct TestPool {
        pool: UpstreamPool,
        config: Arc<Config>,
        listener: TcpListener,
    }

    impl TestPool {
        fn new(config: Arc<Config>) -> Self {
            let (log, _writer) = Log::start(LogConfig::default()).unwrap();
            let pool = UpstreamPool::new(Events::new(log));
            pool.apply_config(&config);
            Self { pool, config, listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap() }
        }

        /// Puts a connection into the pool. Returns the server's end of the connection.
        fn keep(&self, port: u16) -> TcpStream {
            let address = self.listener.local_addr().unwrap();
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nonblocking(true).unwrap();
            let idle = IdleUpstream { stream, section: None, server: ServerAddr(address), exchanges: 1 };
            self.pool.put(key(&self.config, port), idle, &self.config);
            self.listener.accept().unwrap().0
        }

        /// Takes a connection from the pool. Returns its local address, which is the server's peer address.
        fn take(&self, port: u16) -> Option<SocketAddr> {
            self.pool.take(&key(&self.config, port), |_| true).map(|idle| idle.stream.local_addr().unwrap())
        }

        /// Whether the pool has closed its end of the connection. A connection that the pool does not hold must end.
        fn is_closed(&self, server: &TcpStream) -> bool {
            // After a reset the server's end has no peer.
            let is_kept = server.peer_addr().is_ok_and(|near| {
                let state = self.pool.lock();
                state.connections.values().flatten().any(|kept| kept.idle.stream.local_addr().unwrap() == near)
            });
            if is_kept {
                return false;
            }
            server.set_nonblocking(true).unwrap();
            // An end of stream, or a reset where the pool left bytes unread.
            wait_until("the end of a connection that the pool does not hold", || match server.peek(&mut [0]) {
                Ok(count) => count == 0,
                Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
            });
            true
        }
    }

    /// Waits until the bytes and the FIN of the server have arrived at the pool's end.
    fn wait_delivered(server: &TcpStream) {
        wait_until("the acknowledgement", || unacknowledged(server.as_fd()).unwrap() == 0);
    }

    #[test]
    fn the_most_recently_used_live_connection_is_taken() {
        let test = TestPool::new(config(&[], 8));
        let servers = [(); 3].map(|()| test.keep(1));
        let _other = test.keep(2);
        let mut talking = test.keep(1);
        talking.write_all(b"!").unwrap();
        let closed = test.keep(1);
        closed.shutdown(Shutdown::Write).unwrap();
        [&talking, &closed].into_iter().for_each(wait_delivered);
        let found = [test.take(1), test.take(1)];
        assert_eq!(found, [2, 1].map(|at| Some(servers[at].peer_addr().unwrap())));
        assert!(test.pool.take(&key(&test.config, 1), |_| false).is_none(), "no permitted server");
        assert_eq!([test.take(1), test.take(1)], [Some(servers[0].peer_addr().unwrap()), None]);
    }

    #[test]
    fn expired_connections_are_closed_once_per_interval() {
        let test = TestPool::new(config(&[], 8));
        let (now, live) = (Instant::now(), test.keep(1));
        let mut talking = [test.keep(1), test.keep(2)];
        talking.iter_mut().for_each(|server| server.write_all(b"!").unwrap());
        talking.iter().for_each(wait_delivered);
        test.pool.expire(now);
        assert!(talking.iter().all(|server| test.is_closed(server)) && !test.is_closed(&live));
        let mut late = test.keep(3);
        late.write_all(b"!").unwrap();
        wait_delivered(&late);
        test.pool.expire(now + CHECK_INTERVAL / 2);
        assert!(!test.is_closed(&late), "another thread has just checked");
        test.pool.expire(now + CHECK_INTERVAL);
        assert!(test.is_closed(&late) && !test.is_closed(&live));
        test.pool.expire(now + test.config.timeouts.kept_idle + Duration::from_secs(1));
        assert!(test.is_closed(&live) && test.take(1).is_none());
    }

    #[test]
    fn pool_limit_covers_all_keys() {
        let test = TestPool::new(config(&[], 2));
        let servers = [1, 2, 3].map(|port| test.keep(port));
        assert_eq!(servers.each_ref().map(|server| test.is_closed(server)), [false, false, true]);
        test.take(1).unwrap();
        assert!(!test.is_closed(&test.keep(3)), "a place is free");
    }

    #[test]
    fn after_a_reload_equal_hops_are_the_same_object() {
        let own_key = PrivateKey::generate();
        let before = config(&[hop(&own_key)], 8);
        let mut test = TestPool::new(Arc::clone(&before));
        let servers = [test.keep(1), test.keep(2)];
        let lent = test.pool.take(&key(&before, 2), |_| true).unwrap();
        test.config = config(&[hop(&own_key)], 8);
        test.pool.apply_config(&test.config);
        // A session that began before the reload releases its connection after it.
        test.pool.put(key(&before, 2), lent, &before);
        let same = |key: &UpstreamKey| key.hops.iter().all(|hop| Arc::ptr_eq(hop, &test.config.relays[0]));
        assert!(test.pool.lock().connections.keys().all(same));
        assert_eq!([1, 2].map(|port| test.take(port)), servers.map(|server| server.peer_addr().ok()));
    }

    #[test]
    fn connections_are_closed_after_hop_removal_and_pool_close() {
        let before = config(&[hop(&PrivateKey::generate())], 8);
        let test = TestPool::new(before);
        let idle = test.keep(1);
        test.pool.apply_config(&config(&[hop(&PrivateKey::generate())], 8));
        assert!(test.is_closed(&idle) && test.is_closed(&test.keep(1)));
        test.pool.apply_config(&test.config);
        let idle = test.keep(1);
        test.pool.close();
        assert!(test.is_closed(&idle) && test.is_closed(&test.keep(1)));
    }
}

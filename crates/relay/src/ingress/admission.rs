//! Admission: limits the connections that the relay serves at once, in total and for each client, and the connections
//! of relays and load balancers that have not begun a session yet.
//!
//! A place is held by a permit. Dropping the permit returns exactly the places that it has taken; no other function
//! returns places.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_proto::addr;
use ekiden_proto::key::PublicKey;
use tokio::sync::Notify;

/// The key under which `limits.sessions_per_client` counts a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// The source address of the client's connection.
    Address(IpAddr),
    /// A relay from the listener's `peers`. The client addresses that the relay reports are not counted.
    Peer(PublicKey),
}

/// The counts of sessions and connections, shared by all threads.
#[derive(Debug, Default)]
pub struct Admission {
    sessions: AtomicUsize,
    /// Number of connections that carry sessions as streams.
    carriers: AtomicUsize,
    clients: Mutex<HashMap<Client, usize>>,
    pending: Mutex<Pending>,
    /// Notified when a session ends.
    freed: Notify,
}

/// Connections without a session: of relays before OPEN, and of clients before their PROXY header and TLS handshake are
/// complete.
#[derive(Debug, Default)]
struct Pending {
    /// Number of proven connections: a record has been authenticated, or the preface is complete.
    proven: usize,
    /// The unproven connections by source address; for IPv6, by the first 64 bits.
    unproven: HashMap<IpAddr, Unproven>,
    /// Number of connections in `unproven`.
    count: usize,
    next: u64,
}

/// The unproven connections of one source address, the oldest first. The notification of a connection is sent when it
/// is evicted.
#[derive(Debug, Default)]
struct Unproven {
    /// Connections that may be about to open a session.
    fresh: BTreeMap<u64, Arc<Notify>>,
    /// Connections that are kept ready for a later session.
    idle: BTreeMap<u64, Arc<Notify>>,
}

impl Admission {
    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Returns the number of sessions, of connections that carry sessions as streams, and of connections without a
    /// session.
    pub fn connections(&self) -> usize {
        let pending = self.pending();
        self.sessions() + self.carriers.load(Ordering::Relaxed) + pending.proven + pending.count
    }

    /// Takes a place among the sessions of a client; `None` if `limit` places are taken.
    pub fn enter_client(self: &Arc<Self>, client: Client, limit: Option<usize>) -> Option<ClientPermit> {
        let mut clients = self.clients();
        let count = clients.get(&client).copied().unwrap_or(0);
        if limit.is_some_and(|limit| count >= limit) {
            return None;
        }
        clients.insert(client, count + 1);
        Some(ClientPermit { admission: Arc::clone(self), client })
    }

    /// Completes when fewer than `limit` sessions are open.
    pub async fn wait_below(&self, limit: usize) {
        loop {
            let mut freed = pin!(self.freed.notified());
            // Register before the check, so that no end of a session is missed.
            freed.as_mut().enable();
            if self.sessions() < limit {
                return;
            }
            freed.await;
        }
    }

    /// Takes a place for a connection without a session. If `limit` places are taken, evicts the oldest unproven
    /// connection of the source address with the most of them. Returns `None` if all connections are proven.
    pub fn enter_pending(self: &Arc<Self>, source: IpAddr, limit: usize) -> Option<UnprovenPermit> {
        let (source, mut pending) = (addr::source_prefix(source), self.pending());
        if pending.proven + pending.count >= limit {
            let (largest, oldest) = pending.oldest_of_largest()?;
            pending.evict(largest, oldest);
        }
        let (number, evicted) = (pending.next, Arc::new(Notify::new()));
        pending.next += 1;
        pending.count += 1;
        pending.unproven.entry(source).or_default().fresh.insert(number, Arc::clone(&evicted));
        Some(UnprovenPermit { admission: Arc::clone(self), source, number, evicted })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<Client, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Returns the oldest unproven connection of the source address with the most of them; among several such
    /// addresses, the oldest of all.
    fn oldest_of_largest(&self) -> Option<(IpAddr, u64)> {
        let oldest = self
            .unproven
            .iter()
            .filter_map(|(source, connections)| Some((connections.len(), Reverse(connections.oldest()?), *source)));
        oldest.max().map(|(_, Reverse(oldest), source)| (source, oldest))
    }

    fn evict(&mut self, source: IpAddr, number: u64) {
        if let Some(evicted) = self.remove(source, number) {
            evicted.notify_one();
        }
    }

    /// Removes an unproven connection; `None` if it has been removed before.
    fn remove(&mut self, source: IpAddr, number: u64) -> Option<Arc<Notify>> {
        let connections = self.unproven.get_mut(&source)?;
        let removed = connections.fresh.remove(&number).or_else(|| connections.idle.remove(&number))?;
        if connections.len() == 0 {
            self.unproven.remove(&source);
        }
        self.count -= 1;
        Some(removed)
    }
}

impl Unproven {
    fn len(&self) -> usize {
        self.fresh.len() + self.idle.len()
    }

    fn oldest(&self) -> Option<u64> {
        [&self.fresh, &self.idle].into_iter().filter_map(|queue| Some(*queue.first_key_value()?.0)).min()
    }
}

/// A place among the sessions of one client.
#[derive(Debug)]
pub struct ClientPermit {
    admission: Arc<Admission>,
    client: Client,
}

impl ClientPermit {
    /// Takes a place among all sessions without a limit, for a connection that has already been accepted.
    pub fn enter(self) -> SessionPermit {
        self.admission.sessions.fetch_add(1, Ordering::Relaxed);
        SessionPermit { client: self }
    }

    /// Takes a place among all sessions, unless `limit` places are taken.
    ///
    /// # Errors
    /// All places are taken. The error returns the client's place.
    pub fn try_enter(self, limit: usize) -> Result<SessionPermit, Self> {
        let increment = |sessions| (sessions < limit).then_some(sessions + 1);
        match self.admission.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, increment) {
            Ok(_) => Ok(SessionPermit { client: self }),
            Err(_) => Err(self),
        }
    }

    /// As [`Self::try_enter`], but waits for a place.
    pub async fn enter_below(mut self, limit: usize) -> SessionPermit {
        loop {
            match self.try_enter(limit) {
                Ok(permit) => return permit,
                Err(client) => self = client,
            }
            self.admission.wait_below(limit).await;
        }
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut clients = self.admission.clients();
        let count = clients.get_mut(&self.client).expect("invariant: a permit is counted");
        *count -= 1;
        if *count == 0 {
            clients.remove(&self.client);
        }
    }
}

/// A place for a session: among all sessions, and among those of its client.
#[derive(Debug)]
pub struct SessionPermit {
    client: ClientPermit,
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let admission = &self.client.admission;
        admission.sessions.fetch_sub(1, Ordering::Relaxed);
        admission.freed.notify_waiters();
    }
}

/// A place for a connection without a session: of a relay before the first authenticated record, because its hello may
/// be a replay, or of a client before its preface is complete.
#[derive(Debug)]
pub struct UnprovenPermit {
    admission: Arc<Admission>,
    source: IpAddr,
    number: u64,
    evicted: Arc<Notify>,
}

impl UnprovenPermit {
    /// Completes when the connection has been evicted.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Marks a connection as idle: it is not about to open a session. If its source address has more than `limit` idle
    /// connections, the oldest of them is evicted.
    pub fn idle(&self, limit: Option<usize>) {
        let mut pending = self.admission.pending();
        // An evicted connection is no longer listed.
        let Some(connections) = pending.unproven.get_mut(&self.source) else { return };
        let Some(evicted) = connections.fresh.remove(&self.number) else { return };
        connections.idle.insert(self.number, evicted);
        let oldest = connections.idle.first_key_value().map(|(number, _)| *number);
        if let Some(oldest) = oldest.filter(|_| limit.is_some_and(|limit| connections.idle.len() > limit)) {
            pending.evict(self.source, oldest);
        }
    }

    /// Marks a connection as proven: a record was authenticated, so the connection is not a replay, or its preface is
    /// complete. A proven connection cannot be evicted. `None` if the connection has been evicted.
    pub fn prove(self) -> Option<ProvenPermit> {
        let mut pending = self.admission.pending();
        pending.remove(self.source, self.number)?;
        pending.proven += 1;
        Some(ProvenPermit { admission: Arc::clone(&self.admission) })
    }

    /// Exchanges the place for a carrier permit: the connection carries sessions from now on, and these take places of
    /// their own. `None` if the connection has been evicted.
    pub fn carry(self) -> Option<CarrierPermit> {
        self.admission.pending().remove(self.source, self.number)?;
        self.admission.carriers.fetch_add(1, Ordering::Relaxed);
        Some(CarrierPermit { admission: Arc::clone(&self.admission) })
    }
}

impl Drop for UnprovenPermit {
    fn drop(&mut self) {
        // Does nothing if the connection has been evicted or proven.
        self.admission.pending().remove(self.source, self.number);
    }
}

/// A place for a proven connection that waits for a place among the sessions.
#[derive(Debug)]
pub struct ProvenPermit {
    admission: Arc<Admission>,
}

impl Drop for ProvenPermit {
    fn drop(&mut self) {
        self.admission.pending().proven -= 1;
    }
}

/// Counts a connection that carries sessions as streams.
#[derive(Debug)]
pub struct CarrierPermit {
    admission: Arc<Admission>,
}

impl Drop for CarrierPermit {
    fn drop(&mut self) {
        self.admission.carriers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_evicted(permit: &UnprovenPermit) -> bool {
        pin!(permit.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// A peer and an address are different clients, and so are two addresses.
    #[test]
    fn session_limit_applies_per_client() {
        let admission = Arc::new(Admission::default());
        let enter = |client| admission.enter_client(client, Some(2));
        let (one, other) = (Client::Address(source(1)), Client::Address(source(2)));
        let (first, second) = (enter(one).unwrap(), enter(one).unwrap().enter());
        assert!(enter(one).is_none());
        assert!(enter(other).is_some() && enter(Client::Peer(PublicKey([1; 32]))).is_some());
        assert!(admission.enter_client(one, None).is_some(), "no limit");
        drop(second);
        let second = enter(one).unwrap();
        assert!(enter(one).is_none());
        drop((first, second));
        assert!(admission.clients().is_empty(), "a returned place leaves no entry");
        assert_eq!(admission.sessions(), 0);
    }

    /// A session that waits for one of the places of the relay already holds a place of its client, which it returns
    /// once.
    #[test]
    fn session_takes_and_returns_a_total_and_a_client_place() {
        let admission = Arc::new(Admission::default());
        let client = |last| admission.enter_client(Client::Address(source(last)), Some(1)).unwrap();
        let session = client(1).try_enter(1).unwrap();
        let waiting = client(2).try_enter(1).unwrap_err();
        assert_eq!((admission.sessions(), admission.clients().len()), (1, 2));
        let accepted = waiting.enter();
        assert_eq!(admission.sessions(), 2, "a connection that was accepted is not refused");
        drop(session);
        drop(client(1).try_enter(1).unwrap_err());
        drop(accepted);
        assert_eq!((admission.sessions(), admission.clients().len()), (0, 0));
    }

    #[test]
    fn session_end_wakes_waiters() {
        let admission = Arc::new(Admission::default());
        let client = |last| admission.enter_client(Client::Address(source(last)), None).unwrap();
        let session = client(1).enter();
        let mut context = Context::from_waker(Waker::noop());
        let (mut listener, mut opened) = (Box::pin(admission.wait_below(1)), Box::pin(client(2).enter_below(1)));
        assert!(listener.as_mut().poll(&mut context).is_pending());
        assert!(opened.as_mut().poll(&mut context).is_pending());
        drop(session);
        assert!(listener.as_mut().poll(&mut context).is_ready());
        let Poll::Ready(session) = opened.as_mut().poll(&mut context) else {
            panic!("the client still waits for a place")
        };
        assert_eq!(admission.sessions(), 1);
        // A dropped waiter leaves no entry.
        let mut opened = Box::pin(client(3).enter_below(1));
        assert!(opened.as_mut().poll(&mut context).is_pending());
        drop((opened, session));
        assert_eq!((admission.sessions(), admission.clients().len()), (0, 0));
    }

    #[test]
    fn oldest_idle_connection_of_a_source_is_evicted() {
        let admission = Arc::new(Admission::default());
        let enter = |last| admission.enter_pending(source(last), 10).unwrap();
        let (other_source, all) = (enter(9), [(); 4].map(|()| enter(1)));
        other_source.idle(Some(2));
        // The order in which connections become idle does not matter: the youngest stay.
        for at in [1, 0, 3, 2, 3] {
            all[at].idle(Some(2));
        }
        assert_eq!(all.each_ref().map(is_evicted), [true, true, false, false]);
        assert!(!is_evicted(&other_source));
        assert_eq!(admission.connections(), 3);
        all[0].idle(Some(2));
        drop(all);
        assert_eq!(admission.connections(), 1, "an evicted connection returns no place");
        drop(other_source);
        assert!(admission.pending().unproven.is_empty());
    }

    #[test]
    fn eviction_prefers_the_source_with_most_unproven_connections() {
        let admission = Arc::new(Admission::default());
        let enter = |last| admission.enter_pending(source(last), 4);
        let all = [enter(1), enter(2), enter(2), enter(3), enter(4), enter(5)].map(Option::unwrap);
        // First a connection of address 2, which has two; then the oldest of the addresses with one connection.
        assert_eq!(all.each_ref().map(is_evicted), [true, true, false, false, false, false]);
        assert_eq!(admission.connections(), 4);
    }

    /// A host can use every address of its /64.
    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let admission = Arc::new(Admission::default());
        let enter = |text: &str| admission.enter_pending(text.parse().unwrap(), 4).unwrap();
        let relay = [enter("2001:db8:1::1"), enter("2001:db8:1::1")];
        let others = ["2001:db8:2::1", "2001:db8:2::2", "2001:db8:2::3", "2001:db8:2::4"].map(enter);
        assert_eq!(relay.each_ref().map(is_evicted), [true, false]);
        assert_eq!(others.each_ref().map(is_evicted), [true, false, false, false]);
    }

    #[test]
    fn a_proven_connection_is_not_evicted() {
        let admission = Arc::new(Admission::default());
        let enter = || admission.enter_pending(source(1), 2);
        let (first, second) = (enter().unwrap(), enter().unwrap());
        let first = first.prove().unwrap();
        let third = enter().unwrap();
        assert!(is_evicted(&second) && second.prove().is_none());
        let third = third.prove().unwrap();
        assert!(enter().is_none(), "all are proven");
        assert_eq!(admission.connections(), 2);
        drop((first, third));
        assert_eq!(admission.connections(), 0);
    }

    #[test]
    fn carrier_connection_frees_its_place_and_is_counted() {
        let admission = Arc::new(Admission::default());
        let enter = || admission.enter_pending(source(1), 1).unwrap();
        let carrier = enter().carry().unwrap();
        let waiting = enter();
        assert!(!is_evicted(&waiting), "the carrier's place is free");
        assert_eq!(admission.connections(), 2);
        let evicted = enter();
        let _newer = enter();
        assert!(evicted.carry().is_none());
        drop((carrier, waiting));
        assert_eq!(admission.connections(), 1);
    }
}

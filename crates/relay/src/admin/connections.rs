//! Places for connections of the admin listener, and which connection yields when there is no place.
//!
//! A connection is unproven until it has sent a valid request, with the token where the listener has one. When all places
//! are taken, an unproven connection yields to a new one, so connections without a request delay no other request.
//! The source address with the most such connections yields first, and of these the oldest connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// All connections of the listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    permits: Arc<Semaphore>,
    unproven: Arc<Mutex<UnprovenConnections>>,
}

/// The connections that may have to yield, in the order of their arrival.
#[derive(Default)]
struct UnprovenConnections {
    next_number: u64,
    connections: BTreeMap<u64, (Option<IpAddr>, oneshot::Sender<()>)>,
}

/// The place of one connection; the place is free when this is dropped.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    _permit: OwnedSemaphorePermit,
}

/// Completes when the connection has to yield its place; never after it was proven.
pub(super) struct EvictionSignal(oneshot::Receiver<()>);

impl ConnectionSlots {
    /// `places` free places.
    pub fn new(places: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(places)), unproven: Arc::default() }
    }

    /// Takes a place for a connection from `source`. If all are taken, an unproven connection loses its place; if there
    /// is none, this waits for the end of an answer.
    pub async fn admit(&self, source: Option<IpAddr>) -> (ConnectionSlot, EvictionSignal) {
        let taken = Arc::clone(&self.permits).try_acquire_owned();
        let permit = match taken {
            Ok(permit) => permit,
            Err(_) => {
                self.evict();
                let waiting = Arc::clone(&self.permits).acquire_owned();
                waiting.await.expect("invariant: the semaphore is never closed")
            }
        };
        let (sender, receiver) = oneshot::channel();
        let mut unproven = self.lock_unproven();
        let number = unproven.next_number;
        unproven.next_number += 1;
        unproven.connections.insert(number, (source, sender));
        drop(unproven);
        (ConnectionSlot { number, slots: self.clone(), _permit: permit }, EvictionSignal(receiver))
    }

    /// Evicts one unproven connection. Returns false if there is none.
    pub fn evict(&self) -> bool {
        let mut unproven = self.lock_unproven();
        let Some(number) = unproven.eviction_candidate() else { return false };
        let displaced = unproven.connections.remove(&number);
        // A connection that has just ended has nothing to give up.
        displaced.is_some_and(|(_, sender)| sender.send(()).is_ok())
    }

    fn lock_unproven(&self) -> MutexGuard<'_, UnprovenConnections> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnprovenConnections {
    /// The oldest connection of the source that has the most.
    fn eviction_candidate(&self) -> Option<u64> {
        let mut sources: HashMap<Option<IpAddr>, (usize, u64)> = HashMap::new();
        for (number, (source, _)) in &self.connections {
            sources.entry(*source).or_insert((0, *number)).0 += 1;
        }
        let most = sources.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)));
        most.map(|(_, oldest)| oldest)
    }
}

impl ConnectionSlot {
    /// Marks the connection as proven: it keeps its place until it ends.
    pub fn mark_proven(&self) {
        self.slots.lock_unproven().connections.remove(&self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.mark_proven();
    }
}

impl EvictionSignal {
    /// Completes when the connection has to yield.
    pub async fn wait(self) {
        if self.0.await.is_err() {
            // The connection was proven.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Duration, timeout};

    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    fn source(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// The connections that have to yield.
    async fn yielded(all: Vec<EvictionSignal>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for (number, one) in all.into_iter().enumerate() {
            if timeout(SOON, one.wait()).await.is_ok() {
                numbers.push(number);
            }
        }
        numbers
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_the_largest_source_yields() {
        let crowd = ConnectionSlots::new(4);
        let mut places = Vec::new();
        let mut all = Vec::new();
        for last in [1, 2, 2, 3] {
            let (place, yields) = crowd.admit(source(last)).await;
            places.push(Some(place));
            all.push(yields);
        }
        assert!(crowd.evict());
        places[1] = None;
        assert!(crowd.evict(), "all have one connection, and number 0 is the oldest");
        places[0] = None;
        assert_eq!(yielded(all).await, [0, 1]);
        drop(places);
        assert!(!crowd.evict(), "nothing is left");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_has_proven_itself_keeps_its_place() {
        let crowd = ConnectionSlots::new(2);
        let (first, first_yields) = crowd.admit(source(1)).await;
        let (second, second_yields) = crowd.admit(source(1)).await;
        first.mark_proven();
        let third = tokio::spawn({
            let crowd = crowd.clone();
            async move { crowd.admit(source(1)).await }
        });
        timeout(SOON, second_yields.wait()).await.expect("it has proven nothing");
        drop(second);
        let (third, _) = third.await.unwrap();
        third.mark_proven();
        assert!(timeout(SOON, first_yields.wait()).await.is_err());
        assert!(timeout(SOON, crowd.admit(source(2))).await.is_err(), "both places have answers under way");
        drop(first);
        assert!(timeout(SOON, crowd.admit(source(2))).await.is_ok());
    }
}

//! Connections of the admin listener: the limit of their number, the eviction of connections at this limit, and the
//! write timeout.
//!
//! A connection is unproven until it has sent a valid request, with the token if the listener requires one. When all
//! slots are taken, an unproven connection is evicted for a new one, so connections without a request do not delay
//! other requests. The source address with the most unproven connections loses one first: its oldest. A client that
//! stops reading is disconnected.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Sleep, sleep};

/// The slots for connections of the listener.
#[derive(Clone)]
pub(super) struct ConnectionSlots {
    permits: Arc<Semaphore>,
    unproven: Arc<Mutex<UnprovenConnections>>,
}

/// The connections that can be evicted, in the order of their arrival.
#[derive(Default)]
struct UnprovenConnections {
    next_number: u64,
    connections: BTreeMap<u64, (Option<IpAddr>, oneshot::Sender<()>)>,
}

/// The slot of a connection; freed on drop.
pub(super) struct ConnectionSlot {
    number: u64,
    slots: ConnectionSlots,
    _permit: OwnedSemaphorePermit,
}

/// Completes when the connection is evicted. Never completes once the connection is proven.
pub(super) struct EvictionSignal(oneshot::Receiver<()>);

impl ConnectionSlots {
    /// Creates `places` free slots, one for each connection.
    pub fn new(places: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(places)), unproven: Arc::default() }
    }

    /// Takes a slot for a connection from `source`. If all are taken, one unproven connection is evicted; if there is
    /// none, this waits until a proven connection ends.
    pub async fn admit(&self, source: Option<IpAddr>) -> (ConnectionSlot, EvictionSignal) {
        let result = Arc::clone(&self.permits).try_acquire_owned();
        let permit = match result {
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

    /// Evicts an unproven connection. Returns false if there is none.
    pub fn evict(&self) -> bool {
        let mut unproven = self.lock_unproven();
        let Some(number) = unproven.eviction_candidate() else { return false };
        let displaced = unproven.connections.remove(&number);
        // Sending fails if the connection has just ended.
        displaced.is_some_and(|(_, sender)| sender.send(()).is_ok())
    }

    fn lock_unproven(&self) -> MutexGuard<'_, UnprovenConnections> {
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnprovenConnections {
    /// The oldest connection of the source address with the most connections.
    fn eviction_candidate(&self) -> Option<u64> {
        let mut sources: HashMap<Option<IpAddr>, (usize, u64)> = HashMap::new();
        for (number, (source, _)) in &self.connections {
            sources.entry(*source).or_insert((0, *number)).0 += 1;
        }
        let largest = sources.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)));
        largest.map(|(_, oldest)| oldest)
    }
}

impl ConnectionSlot {
    /// Marks the connection as proven: it is not evicted any more.
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
    /// Completes when the connection is evicted.
    pub async fn wait(self) {
        if self.0.await.is_err() {
            // The connection was proven.
            std::future::pending().await
        }
    }
}

/// Maximum time for which a write can be blocked because the client reads nothing.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream with a write timeout.
pub(super) struct WriteTimeoutStream<S> {
    connection: S,
    /// Runs since a write was blocked; `None` while no write is.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    /// Creates a stream without a blocked write.
    pub fn new(connection: S) -> Self {
        Self { connection, timer: None }
    }

    /// Returns the result of a write, or runs the timeout while the write is blocked.
    fn poll_outcome<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.timer = None;
            return result;
        }
        ready!(self.timer.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.connection).poll_write(cx, bytes);
        self.poll_outcome(result, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.connection).poll_write_vectored(cx, parts);
        self.poll_outcome(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{Duration, Instant, timeout};

    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    fn source(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns the indices of the evicted connections.
    async fn evicted(all: Vec<EvictionSignal>) -> Vec<usize> {
        let mut numbers = Vec::new();
        for (number, signal) in all.into_iter().enumerate() {
            if timeout(SOON, signal.wait()).await.is_ok() {
                numbers.push(number);
            }
        }
        numbers
    }

    #[tokio::test(start_paused = true)]
    async fn oldest_connection_of_the_largest_source_is_evicted() {
        let slots = ConnectionSlots::new(4);
        let mut places = Vec::new();
        let mut all = Vec::new();
        for last in [1, 2, 2, 3] {
            let (place, eviction) = slots.admit(source(last)).await;
            places.push(Some(place));
            all.push(eviction);
        }
        assert!(slots.evict());
        places[1] = None;
        assert!(slots.evict(), "all have one connection, and number 0 is the oldest");
        places[0] = None;
        assert_eq!(evicted(all).await, [0, 1]);
        drop(places);
        assert!(!slots.evict(), "no connection is left");
    }

    #[tokio::test(start_paused = true)]
    async fn proven_connection_keeps_its_slot() {
        let slots = ConnectionSlots::new(2);
        let (first, first_eviction) = slots.admit(source(1)).await;
        let (second, second_eviction) = slots.admit(source(1)).await;
        first.mark_proven();
        let third = tokio::spawn({
            let slots = slots.clone();
            async move { slots.admit(source(1)).await }
        });
        timeout(SOON, second_eviction.wait()).await.expect("the unproven connection is evicted");
        drop(second);
        let (third, _) = third.await.unwrap();
        third.mark_proven();
        assert!(timeout(SOON, first_eviction.wait()).await.is_err());
        assert!(timeout(SOON, slots.admit(source(2))).await.is_err(), "both slots hold proven connections");
        drop(first);
        assert!(timeout(SOON, slots.admit(source(2))).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn write_times_out_when_the_client_does_not_read() {
        let (near, _far) = duplex(10);
        let began = Instant::now();
        let error = WriteTimeoutStream::new(near).write_all(&[0; 11]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn write_succeeds_when_the_client_reads_slowly() {
        let (near, mut far) = duplex(10);
        let reading = tokio::spawn(async move {
            for _ in 0..4 {
                sleep(WRITE_TIMEOUT / 2).await;
                far.read_exact(&mut [0; 10]).await.unwrap();
            }
        });
        WriteTimeoutStream::new(near).write_all(&[0; 40]).await.unwrap();
        reading.await.unwrap();
    }
}

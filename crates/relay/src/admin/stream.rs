//! `/api/stream`: a snapshot of the relay every second, as a server-sent event.
//!
//! Snapshots are taken once for all readers, and only while there are readers. Only the newest snapshot is kept: a slow
//! reader misses some, and uses no additional memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::snapshot::SnapshotSource;

/// Maximum number of readers.
const MAX_READERS: usize = 16;

/// Time between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);

/// The newest snapshot and its readers.
pub(super) struct SnapshotStream {
    /// The latest snapshot; empty while there is no reader.
    latest: watch::Sender<Bytes>,
    permits: Arc<Semaphore>,
    reader_arrived: Notify,
}

impl SnapshotStream {
    /// Creates a stream without readers.
    pub fn new() -> Self {
        let (latest, _) = watch::channel(Bytes::new());
        Self { latest, permits: Arc::new(Semaphore::new(MAX_READERS)), reader_arrived: Notify::new() }
    }

    /// Adds a reader; `None` if the maximum number of readers is reached.
    pub fn subscribe(&self) -> Option<SnapshotReader> {
        let place = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let mut newest = self.latest.subscribe();
        // Marked, so that a new reader gets the current snapshot at once.
        newest.mark_changed();
        self.reader_arrived.notify_one();
        Some(SnapshotReader { next: Box::pin(next_snapshot(newest)), _permit: place })
    }

    /// Publishes snapshots while there are readers. Never returns.
    pub async fn publish(self: Arc<Self>, mut source: SnapshotSource) {
        let mut tick = interval(SNAPSHOT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.latest.receiver_count() == 0 {
                self.latest.send_replace(Bytes::new());
                source.reset();
                self.reader_arrived.notified().await;
                tick.reset_immediately();
                continue;
            }
            tick.tick().await;
            self.latest.send_replace(source.next_event().await);
        }
    }
}

/// A snapshot, and the receiver of the following ones.
type NextSnapshot = (Bytes, watch::Receiver<Bytes>);

/// A reader of the stream, with its place among the readers and its pending snapshot. Used as the body of a response.
pub(super) struct SnapshotReader {
    next: Pin<Box<dyn Future<Output = Option<NextSnapshot>> + Send>>,
    _permit: OwnedSemaphorePermit,
}

async fn next_snapshot(mut newest: watch::Receiver<Bytes>) -> Option<NextSnapshot> {
    loop {
        newest.changed().await.ok()?;
        let snapshot = newest.borrow_and_update().clone();
        if !snapshot.is_empty() {
            return Some((snapshot, newest));
        }
    }
}

impl Body for SnapshotReader {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(ready!(self.next.as_mut().poll(cx)).map(|(snapshot, newest)| {
            self.next = Box::pin(next_snapshot(newest));
            Ok(Frame::data(snapshot))
        }))
    }
}

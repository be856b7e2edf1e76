//! `/api/stream`: once a second a snapshot of the relay, as a server-sent event.
//!
//! It is made once for all readers, and only while there are any. A reader holds the newest one and no other: who reads
//! slowly misses some, and costs no memory.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::snapshot::Source;

/// Most readers at once.
const MOST_READERS: usize = 16;

/// Time between two snapshots.
const PERIOD: Duration = Duration::from_secs(1);

/// The newest snapshot, and who reads it.
pub(super) struct Stream {
    /// Empty while nobody reads.
    newest: watch::Sender<Bytes>,
    places: Arc<Semaphore>,
    awaited: Notify,
}

impl Stream {
    /// Nobody reads yet.
    pub fn new() -> Self {
        let (newest, _) = watch::channel(Bytes::new());
        Self { newest, places: Arc::new(Semaphore::new(MOST_READERS)), awaited: Notify::new() }
    }

    /// One more reader; none when there are as many as may be.
    pub fn subscribe(&self) -> Option<Reader> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let mut newest = self.newest.subscribe();
        // Whoever comes later begins with what the others have.
        newest.mark_changed();
        self.awaited.notify_one();
        Some(Reader { next: Box::pin(next(newest)), _place: place })
    }

    /// Makes snapshots for as long as somebody reads.
    pub async fn publish(self: Arc<Self>, mut source: Source) {
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if self.newest.receiver_count() == 0 {
                self.newest.send_replace(Bytes::new());
                source.rest();
                self.awaited.notified().await;
                tick.reset_immediately();
                continue;
            }
            tick.tick().await;
            self.newest.send_replace(source.snapshot().await);
        }
    }
}

/// A snapshot, and where the one after it comes.
type Next = (Bytes, watch::Receiver<Bytes>);

/// A reader's place, and what it waits for.
pub(super) struct Reader {
    next: Pin<Box<dyn Future<Output = Option<Next>> + Send>>,
    _place: OwnedSemaphorePermit,
}

async fn next(mut newest: watch::Receiver<Bytes>) -> Option<Next> {
    loop {
        newest.changed().await.ok()?;
        let snapshot = newest.borrow_and_update().clone();
        if !snapshot.is_empty() {
            return Some((snapshot, newest));
        }
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(ready!(self.next.as_mut().poll(cx)).map(|(snapshot, newest)| {
            self.next = Box::pin(next(newest));
            Ok(Frame::data(snapshot))
        }))
    }
}

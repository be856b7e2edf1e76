//! Whether the end of a worker is near.

use tokio::sync::watch;

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It is not.
    Stays,
    /// Another process takes what is new.
    Retires,
    /// Nobody does.
    Drains,
}

/// Tells those of a worker who wait for something new when it is not worth it any more.
#[derive(Debug)]
pub struct Leaving(watch::Sender<Stage>);

impl Leaving {
    pub(super) fn not_yet() -> Self {
        Self(watch::Sender::new(Stage::Stays))
    }

    /// Another process takes what is new.
    pub(super) fn retire(&self) {
        self.0.send_replace(Stage::Retires);
    }

    /// The relay is about to end.
    pub(super) fn drain(&self) {
        self.0.send_replace(Stage::Drains);
    }

    /// Whether nothing more is accepted.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow() > Stage::Stays
    }

    /// Completes when nothing more is accepted.
    pub async fn begins(&self) {
        self.reaches(Stage::Retires).await;
    }

    /// What `next` completes with, or `None` when the relay is about to end. What is ready at the same moment goes
    /// first: it has come here, so nobody else would take it.
    pub async fn or<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            next = next => Some(next),
            () = self.reaches(Stage::Drains) => None,
        }
    }

    async fn reaches(&self, wanted: Stage) {
        // An error means that the worker is gone, which is an end as well.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_is_ready_when_the_relay_is_about_to_end_is_served() {
        // Where nothing says which comes first, it is drawn.
        for _ in 0..64 {
            let leaving = Leaving::not_yet();
            leaving.drain();
            assert_eq!(leaving.or(ready(1)).await, Some(1));
            assert_eq!(leaving.or(pending::<()>()).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_come_here_may_go_on_when_another_process_takes_what_is_new() {
        let leaving = Leaving::not_yet();
        assert!(!leaving.has_begun());
        leaving.retire();
        assert!(leaving.has_begun());
        leaving.begins().await;
        let waits = leaving.or(pending::<()>());
        tokio::pin!(waits);
        assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
        leaving.drain();
        assert_eq!(waits.await, None);
    }
}

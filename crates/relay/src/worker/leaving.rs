//! Whether the end of a worker is near.

use tokio::sync::watch;

/// In this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrainStage {
    /// It is not.
    Stays,
    /// Another process takes what is new.
    Retires,
    /// Nobody does.
    Drains,
}

/// Tells those of a worker who wait for something new when it is not worth it any more.
#[derive(Debug)]
pub struct DrainState(watch::Sender<DrainStage>);

impl DrainState {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(DrainStage::Stays))
    }

    /// Another process takes what is new.
    pub(super) fn retire(&self) {
        self.0.send_replace(DrainStage::Retires);
    }

    /// The relay is about to end.
    pub(super) fn drain(&self) {
        self.0.send_replace(DrainStage::Drains);
    }

    /// Whether nothing more is accepted.
    pub fn is_draining(&self) -> bool {
        *self.0.borrow() > DrainStage::Stays
    }

    /// Completes when nothing more is accepted.
    pub async fn wait_begun(&self) {
        self.wait_stage(DrainStage::Retires).await;
    }

    /// What `next` completes with, or `None` when the relay is about to end. What is ready at the same moment goes
    /// first: it has come here, so nobody else would take it.
    pub async fn work_first<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            next = next => Some(next),
            () = self.wait_stage(DrainStage::Drains) => None,
        }
    }

    async fn wait_stage(&self, wanted: DrainStage) {
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
            let drain_state = DrainState::new();
            drain_state.drain();
            assert_eq!(drain_state.work_first(ready(1)).await, Some(1));
            assert_eq!(drain_state.work_first(pending::<()>()).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_come_here_may_go_on_when_another_process_takes_what_is_new() {
        let drain_state = DrainState::new();
        assert!(!drain_state.is_draining());
        drain_state.retire();
        assert!(drain_state.is_draining());
        drain_state.wait_begun().await;
        let waits = drain_state.work_first(pending::<()>());
        tokio::pin!(waits);
        assert!(timeout(Duration::from_secs(1), &mut waits).await.is_err());
        drain_state.drain();
        assert_eq!(waits.await, None);
    }
}

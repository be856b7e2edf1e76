//! How a worker stops what takes in connections.

use tokio::sync::watch;

/// Tells a task to stop: by a change, or by the end of the sender.
#[derive(Debug)]
pub struct StopSignal(watch::Receiver<()>);

impl StopSignal {
    /// That of the tasks of one service.
    #[must_use]
    pub fn subscribe(sender: &watch::Sender<()>) -> Self {
        Self(sender.subscribe())
    }

    /// What `next` completes with, or `None` when told to stop. What is ready at the same moment is left alone: another
    /// process may be there for it by then, and a worker that leaves would send it away.
    pub async fn stop_first<T>(&mut self, next: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.0.changed() => None,
            next = next => Some(next),
        }
    }
}

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
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(DrainStage::Stays))
    }

    /// Another process takes what is new.
    pub(crate) fn retire(&self) {
        self.0.send_replace(DrainStage::Retires);
    }

    /// The relay is about to end.
    pub(crate) fn drain(&self) {
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
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn what_is_ready_when_told_to_stop_is_left_alone() {
        // Where nothing says which comes first, it is drawn.
        for _ in 0..64 {
            let sender = watch::Sender::new(());
            let mut stops = [StopSignal::subscribe(&sender), StopSignal::subscribe(&sender)];
            assert_eq!(stops[0].stop_first(ready(1)).await, Some(1));
            sender.send_replace(());
            assert_eq!(stops[0].stop_first(ready(1)).await, None);
            drop(sender);
            assert_eq!(stops[1].stop_first(ready(1)).await, None);
        }
    }

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

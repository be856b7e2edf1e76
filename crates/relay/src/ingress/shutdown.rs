//! Signals that stop accept loops and end waiting tasks: on reload, upgrade and drain.

use tokio::sync::watch;

/// Stops a task: when the sender sends a value or is dropped.
#[derive(Debug)]
pub struct StopSignal(watch::Receiver<()>);

impl StopSignal {
    /// Subscribes a task to the stop signal of `sender`.
    #[must_use]
    pub fn subscribe(sender: &watch::Sender<()>) -> Self {
        Self(sender.subscribe())
    }

    /// Returns the result of `next`, or `None` after the stop signal. The stop signal wins over a result that is ready
    /// at the same moment: another process may already serve new connections, and a draining worker would reject them.
    pub async fn stop_first<T>(&mut self, next: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            _ = self.0.changed() => None,
            next = next => Some(next),
        }
    }
}

/// Stages of a worker, in chronological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DrainStage {
    /// The worker accepts connections.
    Stays,
    /// Another process accepts new connections.
    Retires,
    /// No process accepts new connections.
    Drains,
}

/// The stage of a worker, for its tasks that wait for new work.
#[derive(Debug)]
pub struct DrainState(watch::Sender<DrainStage>);

impl DrainState {
    pub fn new() -> Self {
        Self(watch::Sender::new(DrainStage::Stays))
    }

    /// Sets the stage: another process accepts new connections from now on.
    pub fn retire(&self) {
        self.0.send_replace(DrainStage::Retires);
    }

    /// Sets the stage: no process accepts new connections, and the relay is about to end.
    pub fn drain(&self) {
        self.0.send_replace(DrainStage::Drains);
    }

    /// Whether this worker has stopped accepting connections.
    pub fn is_draining(&self) -> bool {
        *self.0.borrow() > DrainStage::Stays
    }

    /// Completes when this worker stops accepting connections.
    pub async fn wait_begun(&self) {
        self.wait_stage(DrainStage::Retires).await;
    }

    /// Returns the result of `next`, or `None` when the relay is about to end. A result that is ready at the same
    /// moment wins: no other process would serve it.
    pub async fn work_first<T>(&self, next: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            next = next => Some(next),
            () = self.wait_stage(DrainStage::Drains) => None,
        }
    }

    async fn wait_stage(&self, target_stage: DrainStage) {
        // An error means that the sender was dropped: the worker has ended, which counts as drained.
        let _ = self.0.subscribe().wait_for(|stage| *stage >= target_stage).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use std::time::Duration;
    use tokio::time::timeout;

    #[tokio::test]
    async fn stop_signal_precedes_ready_work() {
        // An unbiased `select!` polls a random branch first, so a single round could pass by chance.
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
    async fn ready_work_precedes_draining() {
        // An unbiased `select!` polls a random branch first, so a single round could pass by chance.
        for _ in 0..64 {
            let drain_state = DrainState::new();
            drain_state.drain();
            assert_eq!(drain_state.work_first(ready(1)).await, Some(1));
            assert_eq!(drain_state.work_first(pending::<()>()).await, None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retired_relay_continues_work_until_drained() {
        let drain_state = DrainState::new();
        assert!(!drain_state.is_draining());
        drain_state.retire();
        assert!(drain_state.is_draining());
        drain_state.wait_begun().await;
        let work = drain_state.work_first(pending::<()>());
        tokio::pin!(work);
        assert!(timeout(Duration::from_secs(1), &mut work).await.is_err());
        drain_state.drain();
        assert_eq!(work.await, None);
    }
}

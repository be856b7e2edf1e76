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

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

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
}

//! Asking the workers about themselves.

use tokio::sync::{mpsc, oneshot};

use crate::worker::{Command, StatusQuery, WorkerCounts, WorkerStatus};

/// All worker threads.
#[derive(Clone)]
pub(super) struct WorkerHandles(pub Vec<mpsc::Sender<Command>>);

impl WorkerHandles {
    /// What each of them has to say in numbers.
    pub async fn counts(&self) -> Vec<WorkerCounts> {
        self.query_all(Command::Count).await
    }

    /// What all of them say together.
    pub async fn describe(&self, request: StatusQuery) -> WorkerStatus {
        let mut all = WorkerStatus::default();
        for description in self.query_all(|answer| Command::Describe(request.clone(), answer)).await {
            all.add(description);
        }
        all
    }

    /// Asks all at once, so that the slowest says how long it takes. A worker that is gone has nothing to say.
    async fn query_all<T>(&self, command: impl Fn(oneshot::Sender<T>) -> Command) -> Vec<T> {
        let mut answers = Vec::with_capacity(self.0.len());
        for worker in &self.0 {
            let (answer, answered) = oneshot::channel();
            if worker.send(command(answer)).await.is_ok() {
                answers.push(answered);
            }
        }
        let mut all = Vec::with_capacity(answers.len());
        for answered in answers {
            all.extend(answered.await);
        }
        all
    }
}

//! Exports sessions to a collector in batches. A batch that cannot be exported is dropped and not sent again: late
//! exports are of no use, and the queue must be bounded.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ekiden_proto::event::Event;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{CollectorConnection, ExportError};
use super::otlp::{Span, export_request};
use super::{EndedSession, ExportSettings, TraceMetrics, spans};
use crate::events::Events;

/// Maximum number of sessions in one batch.
const MAX_BATCH: usize = 256;

/// Time for which sessions are collected for one batch.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// The delay after the first failure, and the longest delay.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Exports closed sessions to the collector.
pub struct Exporter {
    settings: Arc<ExportSettings>,
    metrics: TraceMetrics,
    events: Weak<Events>,
}

impl Exporter {
    /// Creates an exporter, which connects to the collector in [`Self::run`].
    pub fn new(settings: Arc<ExportSettings>, metrics: TraceMetrics, events: Weak<Events>) -> Self {
        Self { settings, metrics, events }
    }

    /// Exports ended sessions until `queue` is closed.
    pub async fn run(&self, mut queue: mpsc::Receiver<EndedSession>, mut shutdown: watch::Receiver<()>) {
        let mut connection = CollectorConnection::new(Arc::clone(&self.settings));
        let (mut batch, mut failures) = (Vec::with_capacity(MAX_BATCH), 0);
        while fill_batch(&mut queue, &mut batch).await {
            let result = self.export(&mut connection, &batch).await;
            batch.clear();
            let Err(error) = result else {
                failures = 0;
                continue;
            };
            if failures == 0 {
                self.warn(&error);
            }
            failures += 1;
            tokio::select! {
                () = sleep(retry_delay(failures)) => {}
                _ = shutdown.changed() => {}
            }
        }
    }

    async fn export(&self, connection: &mut CollectorConnection, batch: &[EndedSession]) -> Result<(), ExportError> {
        let sessions = batch.len() as u64;
        let spans: Vec<Span> =
            batch.iter().flat_map(|session| spans::session_spans(session, &self.settings.traces)).collect();
        let body = export_request(&self.settings.traces.name, &spans).expect("invariant: spans can be written as JSON");
        let result = connection.post(body).await;
        match &result {
            Ok(rejected) => {
                // The collector counts rejected spans; each rejected span counts as one refused session, up to the size
                // of the batch.
                let refused = (*rejected).min(sessions);
                self.metrics.record_sent(sessions - refused);
                self.metrics.record_refused(refused);
            }
            Err(ExportError::Rejected(_)) => self.metrics.record_refused(sessions),
            Err(ExportError::Unreachable(_)) => self.metrics.record_unreachable(sessions),
        }
        result.map(drop)
    }

    /// Warns once per outage.
    fn warn(&self, error: &ExportError) {
        let Some(events) = self.events.upgrade() else { return };
        let address = &self.settings.traces.collector.address;
        let message = format!(
            "traces: the collector at {address} {error}: sessions continue, and ekiden_traced_sessions_total counts \
             those not exported; start the collector, or remove [traces] and reload"
        );
        events.emit(&Event::Warning { message });
    }
}

/// Waits for a session, and then for further sessions of the same batch. Returns false when the queue is closed.
async fn fill_batch(queue: &mut mpsc::Receiver<EndedSession>, batch: &mut Vec<EndedSession>) -> bool {
    if queue.recv_many(batch, MAX_BATCH).await == 0 {
        return false;
    }
    let deadline = Instant::now() + BATCH_DELAY;
    while batch.len() < MAX_BATCH {
        match timeout_at(deadline, queue.recv_many(batch, MAX_BATCH - batch.len())).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    true
}

/// Returns the delay after `failures` consecutive failures.
fn retry_delay(failures: u32) -> Duration {
    let (first, longest) = RETRY_DELAYS;
    first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

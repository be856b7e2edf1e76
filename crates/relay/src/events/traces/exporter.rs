//! Exports sessions to a collector in batches. Rejected sessions are dropped: late exports are worthless, and the queue
//! must have a bound.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ekiden_proto::event::Event;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::connection::{CollectorConnection, ExportError};
use super::otlp::{Span, export_request};
use super::{EndedSession, ExportSettings, TraceMetrics, spans};
use crate::events::Events;

/// Most sessions that are told at once.
const MAX_BATCH: usize = 256;

/// How long they are gathered.
const BATCH_DELAY: Duration = Duration::from_secs(1);

/// The first pause after a failure, and the longest.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Exports closed sessions to the collector.
pub struct Exporter {
    settings: Arc<ExportSettings>,
    metrics: TraceMetrics,
    events: Weak<Events>,
}

impl Exporter {
    /// Nothing was told yet.
    pub fn new(settings: Arc<ExportSettings>, metrics: TraceMetrics, events: Weak<Events>) -> Self {
        Self { settings, metrics, events }
    }

    /// Tells of all that have ended, until there will be no more.
    pub async fn run(&self, mut ended: mpsc::Receiver<EndedSession>, mut closing: watch::Receiver<()>) {
        let mut connection = CollectorConnection::new(Arc::clone(&self.settings));
        let (mut batch, mut failures) = (Vec::with_capacity(MAX_BATCH), 0);
        while fill_batch(&mut ended, &mut batch).await {
            let told = self.export(&mut connection, &batch).await;
            batch.clear();
            let Err(trouble) = told else {
                failures = 0;
                continue;
            };
            if failures == 0 {
                self.warn(&trouble);
            }
            failures += 1;
            tokio::select! {
                () = sleep(retry_delay(failures)) => {}
                _ = closing.changed() => {}
            }
        }
    }

    async fn export(&self, connection: &mut CollectorConnection, batch: &[EndedSession]) -> Result<(), ExportError> {
        let sessions = batch.len() as u64;
        let spans: Vec<Span> =
            batch.iter().flat_map(|ended| spans::session_spans(ended, &self.settings.traces)).collect();
        let body = export_request(&self.settings.traces.name, &spans).expect("invariant: spans can be written as JSON");
        let answer = connection.post(body).await;
        match &answer {
            Ok(rejected) => {
                // The collector counts spans; a session with any rejected span counts as refused.
                let refused = (*rejected).min(sessions);
                self.metrics.record_sent(sessions - refused);
                self.metrics.record_refused(refused);
            }
            Err(ExportError::Rejected(_)) => self.metrics.record_refused(sessions),
            Err(ExportError::Unreachable(_)) => self.metrics.record_unreachable(sessions),
        }
        answer.map(drop)
    }

    /// Warns once per outage.
    fn warn(&self, trouble: &ExportError) {
        let Some(events) = self.events.upgrade() else { return };
        let address = &self.settings.traces.collector.address;
        let message = format!(
            "traces: the collector at {address} {trouble}: sessions go on, and those it is not told of are counted in \
             ekiden_traced_sessions_total; start it, or take [traces] out and reload"
        );
        events.emit(&Event::Warning { message });
    }
}

/// Waits for some, and then a while for more; false when there will be none.
async fn fill_batch(ended: &mut mpsc::Receiver<EndedSession>, batch: &mut Vec<EndedSession>) -> bool {
    if ended.recv_many(batch, MAX_BATCH).await == 0 {
        return false;
    }
    let until = Instant::now() + BATCH_DELAY;
    while batch.len() < MAX_BATCH {
        match timeout_at(until, ended.recv_many(batch, MAX_BATCH - batch.len())).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    true
}

/// The pause after so many failures in a row.
fn retry_delay(failures: u32) -> Duration {
    let (first, longest) = RETRY_DELAYS;
    first.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

//! Sessions as OpenTelemetry has them, where `[traces]` asks for it: in each relay on its path a session is a span with
//! spans for its parts, all under the one trace whose name crosses relays with it. A thread tells of those that have ended.
//!
//! No session ever waits for it: what finds the queue full, or no collector, is dropped and counted.

mod connection;
mod exporter;
mod ids;
mod otlp;
mod spans;

use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use ekiden_proto::event::SessionClosed;
use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::section::TraceId;
use exporter::Exporter;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::config;
use crate::events::Events;

pub use super::metrics::traces::TraceMetrics;

/// Most sessions that wait to be told of.
const MAX_QUEUED: usize = 4096;

/// How long is tried to tell of the last ones when the relay ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A handle to the exporter, which may not run.
pub struct TraceHandle {
    metrics: TraceMetrics,
    exporter: RwLock<Option<ExportThread>>,
}

/// The settings of the exporter.
#[derive(Debug, Clone, PartialEq)]
struct ExportSettings {
    traces: config::TracesConfig,
    /// The mark of the relay's own packets, so that its rules do not catch the export.
    mark: Option<u32>,
}

/// A session that has ended.
#[derive(Debug)]
struct EndedSession {
    trace: TraceId,
    /// The relay that opened the session.
    sender: Option<PublicKey>,
    closed: Box<SessionClosed>,
    ended_at: SystemTime,
}

struct ExportThread {
    settings: Arc<ExportSettings>,
    queue: mpsc::Sender<EndedSession>,
    /// Dropped to end the thread.
    shutdown: watch::Sender<()>,
    thread: JoinHandle<()>,
}

impl TraceHandle {
    /// A handle without an exporter.
    #[must_use]
    pub fn new(metrics: TraceMetrics) -> Self {
        Self { metrics, exporter: RwLock::default() }
    }

    /// Tells as `config` says from now on.
    ///
    /// # Errors
    /// The kernel's, when there are no more threads.
    pub fn apply_config(&self, config: &config::Config, events: &Arc<Events>) -> io::Result<()> {
        let mark = config.needed_marks().map(|marks| marks.own());
        let wanted = config.traces.clone().map(|traces| ExportSettings { traces, mark });
        let mut telling = self.exporter.write().unwrap_or_else(PoisonError::into_inner);
        if telling.as_ref().map(|telling| &*telling.settings) == wanted.as_ref() {
            return Ok(());
        }
        // The exporter before exports its queue and ends by itself.
        *telling = match wanted {
            Some(settings) => Some(ExportThread::start(settings, self.metrics.clone(), Arc::downgrade(events))?),
            None => None,
        };
        Ok(())
    }

    /// Queues a closed session for export, if its trace is sampled.
    pub fn on_session_closed(&self, closed: Box<SessionClosed>, sender: Option<PublicKey>) {
        let telling = self.exporter.read().unwrap_or_else(PoisonError::into_inner);
        let Some(telling) = &*telling else { return };
        let trace = closed.trace.unwrap_or_else(TraceId::generate);
        if !telling.settings.traces.sample_ratio.is_sampled(trace) {
            return;
        }
        let ended = EndedSession { trace, sender, closed, ended_at: SystemTime::now() };
        if telling.queue.try_send(ended).is_err() {
            self.metrics.record_queue_full();
        }
    }

    /// Exports the queue within a short time, and ends the exporter.
    pub fn close(&self) {
        let telling = self.exporter.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ExportThread { queue: ended, shutdown: closing, thread, .. }) = telling {
            drop((ended, closing));
            // A thread that has panicked has ended, too.
            let _ = thread.join();
        }
    }
}

impl ExportThread {
    fn start(settings: ExportSettings, counts: TraceMetrics, events: Weak<Events>) -> io::Result<Self> {
        let settings = Arc::new(settings);
        let (ended, waiting) = mpsc::channel(MAX_QUEUED);
        let (closing, closed) = watch::channel(());
        let exporter = Exporter::new(Arc::clone(&settings), counts, events);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = async move {
            tokio::select! {
                () = exporter.run(waiting, closed.clone()) => {}
                () = flush_deadline(closed) => {}
            }
        };
        let thread = std::thread::Builder::new().name("traces".to_owned()).spawn(move || runtime.block_on(run))?;
        Ok(Self { settings, queue: ended, shutdown: closing, thread })
    }
}

/// Completes some time after the end was asked for.
async fn flush_deadline(mut closing: watch::Receiver<()>) {
    // The sender sends nothing: its drop is the signal.
    let _ = closing.changed().await;
    sleep(FLUSH_TIMEOUT).await;
}

impl fmt::Debug for TraceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! Sessions as OpenTelemetry spans, if `[traces]` is configured. Each relay on the path of a session exports a span for
//! the session, with child spans for its phases. All spans have the same trace id, which the relays forward. A thread
//! exports ended sessions.
//!
//! No session waits for the export: when the queue is full or the collector cannot be reached, the spans of the session
//! are dropped and counted.

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
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use crate::config;
use crate::events::Events;

pub use super::metrics::traces::TraceMetrics;

/// Maximum number of ended sessions in the export queue.
const MAX_QUEUED: usize = 4096;

/// Time for the export of the remaining queue when the relay ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// A handle to the exporter, which runs only if traces are configured.
pub struct TraceHandle {
    metrics: TraceMetrics,
    exporter: RwLock<Option<ExportThread>>,
}

/// The settings of the exporter.
#[derive(Debug, Clone, PartialEq)]
struct ExportSettings {
    traces: config::TracesConfig,
    /// The firewall mark of the relay's own packets, so that the rules of the relay do not intercept the export.
    mark: Option<u32>,
}

/// A session that has ended.
#[derive(Debug)]
struct EndedSession {
    trace: TraceId,
    /// The relay that opened the session; `None` if the client is not a relay.
    sender: Option<PublicKey>,
    closed: Box<SessionClosed>,
    ended_at: SystemTime,
}

struct ExportThread {
    settings: Arc<ExportSettings>,
    queue: mpsc::Sender<EndedSession>,
    /// Dropped to signal the end to the thread.
    shutdown: watch::Sender<()>,
    thread: JoinHandle<()>,
}

impl TraceHandle {
    /// Creates a handle without an exporter.
    #[must_use]
    pub fn new(metrics: TraceMetrics) -> Self {
        Self { metrics, exporter: RwLock::default() }
    }

    /// Applies the trace settings of `config`.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn apply_config(&self, config: &config::Config, events: &Arc<Events>) -> io::Result<()> {
        let mark = config.needed_marks().map(|marks| marks.own());
        let settings = config.traces.clone().map(|traces| ExportSettings { traces, mark });
        let mut exporter = self.exporter.write().unwrap_or_else(PoisonError::into_inner);
        if exporter.as_ref().map(|exporter| &*exporter.settings) == settings.as_ref() {
            return Ok(());
        }
        // The previous exporter exports its remaining queue and then ends.
        *exporter = match settings {
            Some(settings) => Some(ExportThread::start(settings, self.metrics.clone(), Arc::downgrade(events))?),
            None => None,
        };
        Ok(())
    }

    /// Queues a closed session for export, if its trace is sampled.
    pub fn on_session_closed(&self, closed: Box<SessionClosed>, sender: Option<PublicKey>) {
        let exporter = self.exporter.read().unwrap_or_else(PoisonError::into_inner);
        let Some(exporter) = &*exporter else { return };
        let trace = closed.trace.unwrap_or_else(TraceId::generate);
        if !exporter.settings.traces.sample_ratio.is_sampled(trace) {
            return;
        }
        let ended = EndedSession { trace, sender, closed, ended_at: SystemTime::now() };
        if exporter.queue.try_send(ended).is_err() {
            self.metrics.record_queue_full();
        }
    }

    /// Exports the remaining queue for at most `FLUSH_TIMEOUT`, and ends the exporter.
    pub fn close(&self) {
        let exporter = self.exporter.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(ExportThread { queue, shutdown, thread, .. }) = exporter {
            drop((queue, shutdown));
            // An error means that the thread has panicked, so it has ended.
            let _ = thread.join();
        }
    }
}

impl ExportThread {
    fn start(settings: ExportSettings, counts: TraceMetrics, events: Weak<Events>) -> io::Result<Self> {
        let settings = Arc::new(settings);
        let (queue, receiver) = mpsc::channel(MAX_QUEUED);
        let (shutdown, closed) = watch::channel(());
        let exporter = Exporter::new(Arc::clone(&settings), counts, events);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let run = async move {
            tokio::select! {
                () = exporter.run(receiver, closed.clone()) => {}
                () = flush_deadline(closed) => {}
            }
        };
        let thread = std::thread::Builder::new().name("traces".to_owned()).spawn(move || run_to_end(runtime, run))?;
        Ok(Self { settings, queue, shutdown, thread })
    }
}

/// Runs `future` to its end. Blocking tasks that still run, such as getaddrinfo(3), are not waited for.
fn run_to_end(runtime: Runtime, future: impl Future<Output = ()>) {
    runtime.block_on(future);
    runtime.shutdown_background();
}

/// Completes `FLUSH_TIMEOUT` after the shutdown signal.
async fn flush_deadline(mut shutdown: watch::Receiver<()>) {
    // The sender sends nothing: its drop is the signal.
    let _ = shutdown.changed().await;
    sleep(FLUSH_TIMEOUT).await;
}

impl fmt::Debug for TraceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    //! The export queue, and the spans of ended sessions.

    use std::net::TcpListener;
    use std::time::Instant;

    use ekiden_proto::addr::{ClientAddr, Target};
    use ekiden_proto::cause::Cause;
    use ekiden_proto::event::EndReason;
    use serde_json::Value;

    use super::*;
    use crate::config::read::from_text;

    fn settings(lines: &str) -> config::TracesConfig {
        let text = format!("version = 1\n[traces]\n{lines}\n[[listener]]\nbind = \"127.0.0.1:1080\"\n");
        from_text(&text).unwrap_or_else(|mistakes| panic!("{mistakes}")).traces.expect("there is a collector")
    }

    fn closed() -> SessionClosed {
        SessionClosed::new(7, "door".to_owned(), ClientAddr("192.0.2.1:4000".parse().unwrap()))
    }

    /// A collector that accepts connections and never answers.
    fn silent_collector() -> (TcpListener, TraceHandle) {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let traces = settings(&format!("endpoint = \"http://{}\"", silent.local_addr().unwrap()));
        let counts = TraceMetrics::default();
        let exporter = ExportThread::start(ExportSettings { traces, mark: None }, counts.clone(), Weak::new()).unwrap();
        (silent, TraceHandle { metrics: counts, exporter: RwLock::new(Some(exporter)) })
    }

    #[test]
    fn full_queue_drops_and_counts_sessions_without_blocking() {
        let (_silent, traces) = silent_collector();
        let began = Instant::now();
        let many = 2 * MAX_QUEUED;
        (0..many).for_each(|_| traces.on_session_closed(Box::new(closed()), None));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let dropped = traces.metrics.get("queue_full");
        // The exporter may have taken one batch of 256 sessions from the queue.
        assert!((many - MAX_QUEUED - 256..=many - MAX_QUEUED).contains(&(dropped as usize)), "{dropped}");
        let closing = Instant::now();
        traces.close();
        assert!(closing.elapsed() < 5 * FLUSH_TIMEOUT, "{:?}", closing.elapsed());
        traces.on_session_closed(Box::new(closed()), None);
        assert_eq!(traces.metrics.get("queue_full"), dropped, "a closed exporter counts no drops");
    }

    /// Regression: the end of the exporter waited for a running getaddrinfo(3), which can take longer than the flush.
    #[test]
    fn end_does_not_wait_for_blocking_tasks() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (release, released) = std::sync::mpsc::channel();
        run_to_end(runtime, async {
            let (begin, begun) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                begin.send(()).unwrap();
                released.recv_timeout(5 * FLUSH_TIMEOUT)
            });
            begun.await.unwrap();
        });
        assert!(release.send(()).is_ok(), "the task has ended");
    }

    /// All spans of a session that has just ended.
    fn spans(closed: SessionClosed) -> Vec<Value> {
        let ended = EndedSession {
            trace: TraceId([7; 16]),
            sender: None,
            closed: Box::new(closed),
            ended_at: SystemTime::now(),
        };
        let spans = spans::session_spans(&ended, &settings("endpoint = \"http://c\""));
        spans.iter().map(|span| serde_json::to_value(span).unwrap()).collect()
    }

    fn names(spans: &[Value]) -> Vec<&str> {
        spans.iter().map(|span| span["name"].as_str().unwrap()).collect()
    }

    fn span_times(span: &Value) -> (u64, u64) {
        let time = |key: &str| span[key].as_str().unwrap().parse().unwrap();
        (time("startTimeUnixNano"), time("endTimeUnixNano"))
    }

    #[test]
    fn spans_cover_the_phases_that_a_session_reached() {
        let millis = |count| Some(Duration::from_millis(count));
        let duration = Duration::from_millis(100);
        let target: Option<Target> = Some("[2001:db8::1]:443".parse().unwrap());
        let requested = SessionClosed { duration, handshake: millis(10), target, ..closed() };
        let early = SessionClosed { duration, end: EndReason::HandshakeTimeout, ..closed() };
        assert_eq!(names(&spans(early)), ["session", "ingress"]);

        let refused =
            SessionClosed { end: EndReason::ConnectFailed(Cause::Refused), connect: millis(5), ..requested.clone() };
        let refused = spans(refused);
        assert_eq!(names(&refused), ["session", "ingress", "dial"], "OPEN was sent and refused");
        assert_eq!((span_times(&refused[2]).1, &refused[2]["status"]["code"]), (span_times(&refused[0]).1, &2.into()));

        let finished =
            SessionClosed { end: EndReason::Finished, connect: millis(20), first_byte: millis(50), ..requested };
        let finished = spans(finished);
        assert_eq!(names(&finished), ["session", "ingress", "dial", "transfer"]);
        let begin = span_times(&finished[0]).0;
        let since: Vec<_> =
            finished.iter().map(span_times).map(|(a, b)| ((a - begin) / 1_000_000, (b - begin) / 1_000_000)).collect();
        assert_eq!(since, [(0, 100), (0, 10), (10, 30), (30, 100)]);
        let first: u64 = finished[3]["events"][0]["timeUnixNano"].as_str().unwrap().parse().unwrap();
        assert_eq!((first - begin) / 1_000_000, 60);
        let address = finished[0]["attributes"].as_array().unwrap().iter().find(|it| it["key"] == "server.address");
        assert_eq!(address.unwrap()["value"]["stringValue"], "2001:db8::1");
    }

    /// The durations are impossible, as from a wrong clock or counter.
    #[test]
    fn no_span_ends_before_its_start() {
        let long = Some(Duration::from_secs(1 << 40));
        let strange =
            SessionClosed { end: EndReason::Finished, handshake: long, connect: long, first_byte: long, ..closed() };
        for span in spans(strange) {
            let (begin, end) = span_times(&span);
            assert!(begin <= end, "{span}");
        }
    }
}

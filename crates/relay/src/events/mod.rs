//! Readers of events: the log, the metrics, the recent events and the traces.
//!
//! Every part of the relay reports through [`Events`]; nothing in here knows sessions, listeners or paths.

pub mod log;
pub mod metrics;
pub mod recent;
pub mod traces;

use std::sync::Arc;

use ekiden_proto::event::{Event, SessionClosed};
use ekiden_proto::key::PublicKey;
use log::Log;
use metrics::Metrics;
use recent::RecentEvents;
use traces::TraceHandle;

/// The readers of events, shared by all threads.
#[derive(Debug)]
pub struct Events {
    /// Writes events as lines.
    pub log: Log,
    /// Counts events for `/metrics`.
    pub metrics: Metrics,
    /// Keeps the last events for the dashboard.
    pub recent: RecentEvents,
    /// Exports closed sessions to an OpenTelemetry collector.
    pub traces: TraceHandle,
}

impl Events {
    /// Readers that have seen no event; lines go to `log`.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        let metrics = Metrics::new();
        let traces = TraceHandle::new(metrics.traces.clone());
        Arc::new(Self { log, metrics, recent: RecentEvents::default(), traces })
    }

    /// Passes an event to every reader.
    pub fn emit(&self, event: &Event) {
        self.metrics.observe(event);
        self.recent.record(event);
        self.log.write(event);
    }

    /// Passes on the closing event of a session; `previous_relay` is the relay that opened the session, if one did.
    pub fn emit_closed(&self, closed: SessionClosed, previous_relay: Option<PublicKey>) {
        let event = Event::Closed(Box::new(closed));
        self.emit(&event);
        if let Event::Closed(closed) = event {
            self.traces.on_session_closed(closed, previous_relay);
        }
    }
}

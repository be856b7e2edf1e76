//! Consumers of events: the log, the metrics, the recent events and the traces.
//!
//! Every part of the relay reports through [`Events`]; this module does not depend on sessions, listeners or paths.

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

/// The consumers of events, shared by all threads.
#[derive(Debug)]
pub struct Events {
    /// Writes events as lines.
    pub log: Log,
    /// Counts events for `/metrics`.
    pub metrics: Metrics,
    /// Stores the most recent events for the dashboard.
    pub recent: RecentEvents,
    /// Exports closed sessions to an OpenTelemetry collector.
    pub traces: TraceHandle,
}

impl Events {
    /// Creates the consumers; log lines are written to `log`.
    #[must_use]
    pub fn new(log: Log) -> Arc<Self> {
        let metrics = Metrics::new();
        let traces = TraceHandle::new(metrics.traces.clone());
        Arc::new(Self { log, metrics, recent: RecentEvents::default(), traces })
    }

    /// Passes an event to every consumer.
    pub fn emit(&self, event: &Event) {
        self.metrics.observe(event);
        self.recent.record(event);
        self.log.write(event);
    }

    /// Passes the closing event of a session to every consumer. `previous_relay` is the relay that opened the session;
    /// `None` if the client is not a relay.
    pub fn emit_closed(&self, closed: SessionClosed, previous_relay: Option<PublicKey>) {
        let event = Event::Closed(Box::new(closed));
        self.emit(&event);
        if let Event::Closed(closed) = event {
            self.traces.on_session_closed(closed, previous_relay);
        }
    }
}

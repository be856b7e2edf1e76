//! Metrics of sessions: number, bytes, setup times and ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_proto::event::SessionClosed;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::declare::{Declare, SecondsCounter, duration_histogram};
use super::listeners::ListenerTotals;

label_sets! {
    ByListener { listener: String }
    ByEnd { listener: String, reason: &'static str }
    ByWay { listener: String, direction: &'static str, way: &'static str }
    ByDirection { listener: String, direction: &'static str }
    ByLimit { limited: String }
    ByClass { class: String }
    ByResult { result: &'static str }
}

type DurationFamily = Family<ByListener, Histogram, fn() -> Histogram>;

/// The metrics of sessions.
#[derive(Debug)]
pub(super) struct SessionMetrics {
    totals: Mutex<HashMap<String, Arc<ListenerTotals>>>,
    open_sessions: Family<ByListener, Gauge>,
    accepted: Family<ByListener, Counter>,
    closed: Family<ByEnd, Counter>,
    limited: Family<ByLimit, Counter>,
    bytes: Family<ByWay, Counter>,
    stalled: Family<ByDirection, SecondsCounter>,
    queued: Family<ByDirection, Gauge>,
    connect: DurationFamily,
    first_byte: DurationFamily,
    requests: Family<ByClass, Counter>,
    upstream_reuse: Family<ByResult, Counter>,
}

impl Default for SessionMetrics {
    fn default() -> Self {
        Self {
            totals: Mutex::default(),
            open_sessions: Family::default(),
            accepted: Family::default(),
            closed: Family::default(),
            limited: Family::default(),
            bytes: Family::default(),
            stalled: Family::default(),
            queued: Family::default(),
            connect: Family::new_with_constructor(duration_histogram),
            first_byte: Family::new_with_constructor(duration_histogram),
            requests: Family::default(),
            upstream_reuse: Family::default(),
        }
    }
}

impl SessionMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("sessions_open", "Sessions open now", self.open_sessions.clone());
        r.declare("sessions_accepted", "Sessions accepted", self.accepted.clone());
        r.declare("sessions_closed", "Closed sessions by reason", self.closed.clone());
        r.declare("sessions_limited", "Closed sessions by limiting section and cause", self.limited.clone());
        r.declare("bytes", "Bytes forwarded by direction and by copy or splice", self.bytes.clone());
        let stalled = "Time with bytes to send and no room in the socket, added when the stall ends";
        r.declare("stalled_seconds", stalled, self.stalled.clone());
        r.declare("queued_bytes", "Bytes queued in this host for the receiver", self.queued.clone());
        r.declare("connect_seconds", "Time from the client's request to an established path", self.connect.clone());
        let first_byte = "Time from the client's request to the first byte for the client";
        r.declare("first_byte_seconds", first_byte, self.first_byte.clone());
        r.declare("http_requests", "Requests through the forward proxy, by status class", self.requests.clone());
        r.declare("kept_connections", "Lookups of idle server connections by result", self.upstream_reuse.clone());
    }

    pub(super) fn record_request(&self, status: u16) {
        self.requests.get_or_create(&ByClass { class: format!("{}xx", status / 100) }).inc();
    }

    pub(super) fn record_closed(&self, closed: &SessionClosed) {
        let listener = ByListener { listener: closed.listener.clone() };
        self.open_sessions.get_or_create(&listener).dec();
        if let Some(connect) = closed.connect {
            self.connect.get_or_create(&listener).observe(connect.as_secs_f64());
        }
        if let Some(first_byte) = closed.first_byte {
            self.first_byte.get_or_create(&listener).observe(first_byte.as_secs_f64());
        }
        let ByListener { listener } = listener;
        self.closed.get_or_create(&ByEnd { listener, reason: closed.end.as_str() }).inc();
        if let Some(limited) = closed.limited {
            self.limited.get_or_create(&ByLimit { limited: limited.to_string() }).inc();
        }
    }

    fn new_totals(&self, listener: &str) -> ListenerTotals {
        let bytes =
            |direction, way| self.bytes.get_or_create_owned(&ByWay { listener: listener.to_owned(), direction, way });
        let direction = |direction| ByDirection { listener: listener.to_owned(), direction };
        ListenerTotals {
            down_copied: bytes("down", "copy"),
            down_spliced: bytes("down", "splice"),
            up_copied: bytes("up", "copy"),
            up_spliced: bytes("up", "splice"),
            down_stalled: self.stalled.get_or_create_owned(&direction("down")),
            up_stalled: self.stalled.get_or_create_owned(&direction("up")),
            down_queued: self.queued.get_or_create_owned(&direction("down")),
            up_queued: self.queued.get_or_create_owned(&direction("up")),
        }
    }
}

impl Metrics {
    /// Returns the counters of a listener, which running sessions update.
    #[must_use]
    pub fn totals(&self, listener: &str) -> Arc<ListenerTotals> {
        let mut totals = self.sessions.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let listener_totals =
            totals.entry(listener.to_owned()).or_insert_with(|| Arc::new(self.sessions.new_totals(listener)));
        Arc::clone(listener_totals)
    }

    /// Returns the bytes toward clients and toward servers since the start, through all listeners.
    #[must_use]
    pub fn bytes_moved(&self) -> (u64, u64) {
        let totals = self.sessions.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.values().map(|total| total.bytes()).fold((0, 0), |(down, up), total| (down + total.0, up + total.1))
    }

    /// Counts an accepted session.
    pub fn record_accepted(&self, listener: &str) {
        let label = ByListener { listener: listener.to_owned() };
        self.sessions.accepted.get_or_create(&label).inc();
        self.sessions.open_sessions.get_or_create(&label).inc();
    }

    /// Counts a lookup of an idle connection to an upstream server. `result` is `hit`, `miss` or `stale`.
    pub fn record_upstream_reuse(&self, result: &'static str) {
        self.sessions.upstream_reuse.get_or_create(&ByResult { result }).inc();
    }
}

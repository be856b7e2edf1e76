//! Metrics of the admission of connections, and totals of listeners.

use std::time::SystemTime;

use ekiden_proto::direction::Direction;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::declare::Declare;
use super::{Metrics, SecondsCounter};

label_sets! {
    ByListener { listener: String }
    ByReason { listener: String, reason: &'static str }
    ByResult { listener: String, result: &'static str }
}

/// The metrics of the admission of connections.
#[derive(Debug, Default)]
pub(super) struct AdmissionMetrics {
    pauses: Family<ByReason, Counter>,
    passed: Family<ByReason, Counter>,
    waiting: Family<ByListener, Gauge>,
    evicted: Family<ByListener, Counter>,
    tls_handshakes: Family<ByResult, Counter>,
    http2_connections: Family<ByListener, Gauge>,
    http2_streams: Family<ByResult, Counter>,
    certificate_reloads: Family<ByResult, Counter>,
    certificate_expiry: Family<ByListener, Gauge>,
}

impl AdmissionMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("accept_pauses", "Pauses of accept by reason", self.pauses.clone());
        let passed = "Intercepted connections passed through without relaying, by reason";
        r.declare("connections_passed", passed, self.passed.clone());
        let waiting = "Connections from relays that carry no session yet";
        r.declare("sections_waiting", waiting, self.waiting.clone());
        let evicted = "Connections without a session closed because too many waited: from relays, or before a PROXY header or TLS handshake";
        r.declare("sections_evicted", evicted, self.evicted.clone());
        let handshakes = "TLS handshakes of clients by result";
        r.declare("tls_handshakes", handshakes, self.tls_handshakes.clone());
        r.declare("http2_connections", "Open HTTP/2 connections of clients", self.http2_connections.clone());
        let streams = "Streams of HTTP/2 clients by result: a session, or the reason for a refusal";
        r.declare("http2_streams", streams, self.http2_streams.clone());
        let reloads = "Changed TLS certificate and key files by result";
        r.declare("tls_certificate_reloads", reloads, self.certificate_reloads.clone());
        let expiry = "End of the certificate in use, or of the certificate of its chain that expires first, since the Unix epoch";
        r.declare("tls_certificate_expiry_timestamp_seconds", expiry, self.certificate_expiry.clone());
    }

    pub(super) fn record_pause(&self, listener: &str, reason: &'static str) {
        self.pauses.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}

impl Metrics {
    /// Counts a connection of another relay that waits for a session, until the guard is dropped.
    pub fn track_waiting_section(&self, listener: &str) -> OpenGuard {
        OpenGuard::new(&self.admission.waiting, listener)
    }

    /// Counts an HTTP/2 connection of a client, until the guard is dropped.
    pub fn track_http2_connection(&self, listener: &str) -> OpenGuard {
        OpenGuard::new(&self.admission.http2_connections, listener)
    }

    /// Counts a stream of an HTTP/2 connection.
    pub fn record_http2_stream(&self, listener: &str, result: &'static str) {
        self.admission.http2_streams.get_or_create(&ByResult { listener: listener.to_owned(), result }).inc();
    }

    /// Counts a TLS handshake of a client.
    pub fn record_tls_handshake(&self, listener: &str, result: &'static str) {
        self.admission.tls_handshakes.get_or_create(&ByResult { listener: listener.to_owned(), result }).inc();
    }

    /// Counts an attempt to load the changed files of a certificate.
    pub fn record_certificate_reload(&self, listener: &str, result: &'static str) {
        self.admission.certificate_reloads.get_or_create(&ByResult { listener: listener.to_owned(), result }).inc();
    }

    /// Removes the expiry times of all certificates, because listeners may have been removed.
    pub fn clear_certificate_expiry(&self) {
        self.admission.certificate_expiry.clear();
    }

    /// Sets the expiry time of the certificate of a listener.
    pub fn set_certificate_expiry(&self, listener: &str, end: SystemTime) {
        let unix = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let gauge =
            self.admission.certificate_expiry.get_or_create_owned(&ByListener { listener: listener.to_owned() });
        gauge.set(i64::try_from(unix).unwrap_or(i64::MAX));
    }

    /// Counts a connection of another relay that was closed before a session used it, because of the limit for waiting
    /// connections.
    pub fn record_section_evicted(&self, listener: &str) {
        self.admission.evicted.get_or_create(&ByListener { listener: listener.to_owned() }).inc();
    }

    /// Counts an intercepted connection that was passed through without the relay.
    pub fn record_passed(&self, listener: &str, reason: &'static str) {
        self.admission.passed.get_or_create(&ByReason { listener: listener.to_owned(), reason }).inc();
    }
}

/// Counts one connection of a listener in a gauge until the drop.
#[must_use]
#[derive(Debug)]
pub struct OpenGuard(Gauge);

impl OpenGuard {
    fn new(gauges: &Family<ByListener, Gauge>, listener: &str) -> Self {
        let gauge = gauges.get_or_create_owned(&ByListener { listener: listener.to_owned() });
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Byte counters of one listener.
#[derive(Debug, Clone, Default)]
pub struct ListenerTotals {
    /// Bytes toward the client, copied through a buffer.
    pub down_copied: Counter,
    /// Bytes toward the client, moved by splice(2).
    pub down_spliced: Counter,
    /// Bytes toward the server, copied through a buffer.
    pub up_copied: Counter,
    /// Bytes toward the server, moved by splice(2).
    pub up_spliced: Counter,
    /// Time in which the client's socket had no room for bytes.
    pub down_stalled: SecondsCounter,
    /// Time in which the server's socket had no room for bytes.
    pub up_stalled: SecondsCounter,
    /// Bytes toward the client that are queued in this host.
    pub down_queued: Gauge,
    /// Bytes toward the server that are queued in this host.
    pub up_queued: Gauge,
}

impl ListenerTotals {
    /// Returns the bytes toward clients, and the bytes toward servers.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        (self.down_copied.get() + self.down_spliced.get(), self.up_copied.get() + self.up_spliced.get())
    }

    /// Returns the counter of stalled time in a direction.
    #[must_use]
    pub fn stalled_seconds(&self, direction: Direction) -> &SecondsCounter {
        match direction {
            Direction::Down => &self.down_stalled,
            Direction::Up => &self.up_stalled,
        }
    }

    /// Returns the gauge of queued bytes in a direction.
    #[must_use]
    pub fn queued_bytes(&self, direction: Direction) -> &Gauge {
        match direction {
            Direction::Down => &self.down_queued,
            Direction::Up => &self.up_queued,
        }
    }
}

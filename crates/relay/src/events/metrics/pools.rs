//! Metrics of pools and of the fleet.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Declare;
use super::declare::set_count;
use crate::status::fleet::FleetView;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelayLabel {
    relay: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    relay: String,
    result: &'static str,
}

/// The counters of all pools.
#[derive(Debug, Clone)]
pub struct PoolMetrics {
    lookups: Family<ResultLabel, Counter>,
    dials: Family<ResultLabel, Counter>,
    ready: Family<RelayLabel, Gauge>,
    used: Family<RelayLabel, Gauge>,
    seconds: Family<RelayLabel, Histogram, fn() -> Histogram>,
    sessions: Family<RelayLabel, Gauge>,
    latency: Family<RelayLabel, Gauge<f64, AtomicU64>>,
    slow: Family<RelayLabel, Gauge>,
}

/// Metrics of one pool.
#[derive(Debug)]
pub struct RelayPoolMetrics {
    /// Lookups that found a connection that earlier sessions have used.
    pub reused: Counter,
    /// Lookups that found an unused connection.
    pub hits: Counter,
    /// Lookups that found no connection.
    pub misses: Counter,
    /// Pooled connections that were found dead or expired.
    pub stale: Counter,
    /// Connections that were established for the pool.
    pub made: Counter,
    /// Attempts to establish a connection that failed.
    pub failed: Counter,
    /// Number of unused connections that are ready now.
    pub ready: Gauge,
    /// Number of used connections that wait for a session now.
    pub used: Gauge,
    /// Setup times of connections, in seconds.
    pub seconds: Histogram,
    /// Number of open sessions through the relay.
    pub sessions: Gauge,
    /// The latency of the relay in seconds.
    pub latency: Gauge<f64, AtomicU64>,
    /// 1 if the relay is slower than the other members of its group, else 0.
    pub slow: Gauge,
}

impl PoolMetrics {
    /// Creates metrics with the value zero; `spans` creates a histogram of durations.
    #[must_use]
    pub fn new(spans: fn() -> Histogram) -> Self {
        Self {
            lookups: Family::default(),
            dials: Family::default(),
            ready: Family::default(),
            used: Family::default(),
            seconds: Family::new_with_constructor(spans),
            sessions: Family::default(),
            latency: Family::default(),
            slow: Family::default(),
        }
    }

    /// Registers the metrics.
    pub fn register(&self, r: &mut Registry) {
        r.declare("ready_connections", "Lookups of ready connections to relays by result", self.lookups.clone());
        r.declare("ready_dials", "Connections dialled to relays in advance by result", self.dials.clone());
        r.declare("ready", "Ready connections to relays that no session has used", self.ready.clone());
        r.declare("ready_used", "Idle connections to relays that sessions have used", self.used.clone());
        r.declare("ready_dial_seconds", "Time from dialling a relay to a ready connection", self.seconds.clone());
        r.declare("relay_sessions", "Open sessions through a relay", self.sessions.clone());
        r.declare(
            "relay_latency_seconds",
            "Average time from OPEN to the answer of a relay, without the time to connect to the target",
            self.latency.clone(),
        );
        r.declare("relay_slow", "Whether a relay of a group is slow, and gets no new sessions", self.slow.clone());
    }

    /// Returns the metrics of the pool of `relay`.
    #[must_use]
    pub fn for_relay(&self, relay: &str) -> RelayPoolMetrics {
        let relay = relay.to_owned();
        let lookups = |result| self.lookups.get_or_create_owned(&ResultLabel { relay: relay.clone(), result });
        let dials = |result| self.dials.get_or_create_owned(&ResultLabel { relay: relay.clone(), result });
        RelayPoolMetrics {
            reused: lookups("reused"),
            hits: lookups("hit"),
            misses: lookups("miss"),
            stale: lookups("stale"),
            made: dials("ok"),
            failed: dials("failed"),
            ready: self.ready.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
            used: self.used.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
            seconds: self.seconds.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
            sessions: self.sessions.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
            latency: self.latency.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
            slow: self.slow.get_or_create_owned(&RelayLabel { relay: relay.clone() }),
        }
    }
}

/// Metrics of a fleet, updated on each scrape.
#[derive(Debug, Default)]
pub struct FleetMetrics {
    members: Gauge,
    draining: Gauge,
    missing: Gauge,
    etcd_up: Gauge,
    certificate_expiry: Gauge,
    written: Counter,
    refused: Counter,
}

impl FleetMetrics {
    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, gauge) in [
            ("fleet_members", "Known relays of the fleet, including this relay", &self.members),
            ("fleet_draining", "Known relays that accept no new sessions", &self.draining),
            ("fleet_missing", "Known relays that etcd no longer lists", &self.missing),
            ("fleet_etcd_up", "Whether etcd answers", &self.etcd_up),
            (
                "fleet_certificate_expiry_timestamp_seconds",
                "End of the certificate that expires first, since the Unix epoch",
                &self.certificate_expiry,
            ),
        ] {
            registry.declare(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("fleet_entries_written", "Entries of this relay that etcd has accepted", &self.written),
            ("fleet_entries_refused", "Rejected entries of relays", &self.refused),
        ] {
            registry.declare(name, help, counter.clone());
        }
    }

    /// Updates the metrics to `view`. Without a fleet, the gauges are zero, and the counters stay, because the relay
    /// continues to count when it joins a fleet again.
    pub fn update(&self, view: Option<FleetView>) {
        let Some(view) = view else {
            for gauge in [&self.members, &self.draining, &self.missing, &self.etcd_up, &self.certificate_expiry] {
                gauge.set(0);
            }
            return;
        };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let summary = view.summary();
        self.members.set(number(view.members.len()));
        self.draining.set(number(summary.draining));
        self.missing.set(number(summary.missing));
        self.etcd_up.set(i64::from(view.etcd_up));
        let first_expiry = view.members.iter().map(|member| member.not_after).min();
        self.certificate_expiry.set(first_expiry.map_or(0, |unix| i64::try_from(unix).unwrap_or(i64::MAX)));
        set_count(&self.written, view.written);
        set_count(&self.refused, view.refused);
    }
}

//! Events as numbers for Prometheus. Labels never hold a client's address or a target, so their number is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden_proto::event::{Chosen, Closed, Event, SectionInfo};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::config::Path;
use crate::fleet;
use crate::pool;
use crate::pump::{PipeCounts, Totals};
use crate::share;
use crate::status::InterfaceView;
use crate::tun::{Counts, Crossing};

macro_rules! label_sets {
    ($($name:ident { $($field:ident: $type:ty),+ })+) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name { $($field: $type),+ }
    )+};
}
label_sets! {
    ByListener { listener: String }
    ByEnd { listener: String, reason: &'static str }
    BySection { section: &'static str }
    ByLimit { limited: String }
    ByReason { reason: &'static str }
    ByBypass { listener: String, reason: &'static str }
    ByDirection { listener: String, direction: &'static str }
    ByResult { result: &'static str }
    ByClass { class: String }
    ByVia { via: String, relays: u32 }
    ByWay { listener: String, direction: &'static str, way: &'static str }
}

/// All counters of the relay.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    totals: Mutex<HashMap<String, Arc<Totals>>>,
    bytes: Family<ByWay, Counter>,
    open: Family<ByListener, Gauge>,
    accepted: Family<ByListener, Counter>,
    closed: Family<ByEnd, Counter>,
    connect: Histogram,
    rtt: Family<BySection, Histogram, fn() -> Histogram>,
    retransmitted: Family<BySection, Counter>,
    limited: Family<ByLimit, Counter>,
    pauses: Family<ByReason, Counter>,
    passed: Family<ByBypass, Counter>,
    crossings: Mutex<HashMap<String, Arc<Crossing>>>,
    packets: Family<ByDirection, Counter>,
    packet_bytes: Family<ByDirection, Counter>,
    dropped: Family<ByBypass, Counter>,
    reloads: Family<ByResult, Counter>,
    requests: Family<ByClass, Counter>,
    kept: Family<ByResult, Counter>,
    chosen: Family<ByVia, Counter>,
    choices: Family<ByReason, Counter>,
    path_changes: Counter,
    prediction: Histogram,
    waiting: Family<ByListener, Gauge>,
    /// Ready connections to relays; the pools count by themselves.
    pub pools: pool::Counts,
    /// What is known of the fleet.
    pub fleet: fleet::Gauges,
    shares: share::Gauges,
    pipes_open: Gauge,
    pipes_idle: Gauge,
    pipe_fallbacks: Gauge,
}

/// From a tenth of a millisecond to a bit over three seconds, in powers of two.
fn span_histogram() -> Histogram {
    Histogram::new((0..16).map(|power| 0.0001 * f64::from(1 << power)))
}

/// From a quarter of what was predicted to four times as much; in between lie 10 % and 25 %.
const PREDICTION: [f64; 11] = [0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0];

impl Metrics {
    /// All at zero.
    #[must_use]
    pub fn new() -> Self {
        let metrics = Self {
            registry: Mutex::default(),
            totals: Mutex::default(),
            bytes: Family::default(),
            open: Family::default(),
            accepted: Family::default(),
            closed: Family::default(),
            connect: span_histogram(),
            rtt: Family::new_with_constructor(span_histogram),
            retransmitted: Family::default(),
            limited: Family::default(),
            pauses: Family::default(),
            passed: Family::default(),
            crossings: Mutex::default(),
            packets: Family::default(),
            packet_bytes: Family::default(),
            dropped: Family::default(),
            reloads: Family::default(),
            requests: Family::default(),
            kept: Family::default(),
            chosen: Family::default(),
            choices: Family::default(),
            path_changes: Counter::default(),
            prediction: Histogram::new(PREDICTION),
            waiting: Family::default(),
            pools: pool::Counts::new(span_histogram),
            fleet: fleet::Gauges::default(),
            shares: share::Gauges::default(),
            pipes_open: Gauge::default(),
            pipes_idle: Gauge::default(),
            pipe_fallbacks: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&self) {
        let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let r = registry.sub_registry_with_prefix("ekiden");
        r.register("sessions_open", "Sessions open now", self.open.clone());
        r.register("sessions_accepted", "Sessions accepted", self.accepted.clone());
        r.register("sessions_closed", "Sessions ended, by how", self.closed.clone());
        r.register("bytes", "Bytes carried, by direction and by copy or splice", self.bytes.clone());
        r.register("connect_seconds", "From request to a standing path", self.connect.clone());
        r.register("section_rtt_seconds", "Smoothed round-trip time at the end of a session", self.rtt.clone());
        r.register("section_retransmitted_segments", "Segments sent again", self.retransmitted.clone());
        r.register("sessions_limited", "What held sessions back", self.limited.clone());
        r.register("accept_pauses", "How often accepting paused", self.pauses.clone());
        r.register("connections_passed", "Caught connections that went on without us, by why", self.passed.clone());
        r.register("tunnel_packets", "Packets through lanes, by direction", self.packets.clone());
        r.register("tunnel_packet_bytes", "Bytes of these, IP headers included", self.packet_bytes.clone());
        r.register("tunnel_packets_dropped", "Packets of tunnels that went nowhere, by why", self.dropped.clone());
        r.register("reloads", "Configuration reloads", self.reloads.clone());
        r.register("http_requests", "Requests through the forward proxy, by status class", self.requests.clone());
        r.register("kept_connections", "Idle server connections asked for", self.kept.clone());
        r.register("paths_chosen", "Sessions by the first relay of the path chosen for them", self.chosen.clone());
        r.register("path_choices", "Choices of a path, by why", self.choices.clone());
        r.register(
            "path_changes",
            "How often sessions to some targets changed to another path",
            self.path_changes.clone(),
        );
        r.register(
            "path_took_over_predicted",
            "What a session took, for one that was predicted",
            self.prediction.clone(),
        );
        r.register("sections_waiting", "Relays' connections that no session uses yet", self.waiting.clone());
        self.pools.register(r);
        self.fleet.register(r);
        self.shares.register(r);
        r.register("pipes_open", "Pipes that exist", self.pipes_open.clone());
        r.register("pipes_idle", "Pipes waiting for use", self.pipes_idle.clone());
        r.register("pipe_fallbacks", "Times a flow copied for want of a pipe", self.pipe_fallbacks.clone());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "The running version", build);
    }

    /// The byte counters of a listener, for sessions to count into as they go.
    #[must_use]
    pub fn totals(&self, listener: &str) -> Arc<Totals> {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        let counter =
            |direction, way| self.bytes.get_or_create_owned(&ByWay { listener: listener.to_owned(), direction, way });
        let made = totals.entry(listener.to_owned()).or_insert_with(|| {
            Arc::new(Totals {
                down_copied: counter("down", "copy"),
                down_spliced: counter("down", "splice"),
                up_copied: counter("up", "copy"),
                up_spliced: counter("up", "splice"),
            })
        });
        Arc::clone(made)
    }

    /// Counts a session in.
    pub fn accepted(&self, listener: &str) {
        let label = ByListener { listener: listener.to_owned() };
        self.accepted.get_or_create(&label).inc();
        self.open.get_or_create(&label).inc();
    }

    /// Counts connections of relays that wait for a session, or wait no longer.
    pub fn waits(&self, listener: &str, change: i64) {
        self.waiting.get_or_create(&ByListener { listener: listener.to_owned() }).inc_by(change);
    }

    /// Counts a caught connection that goes on without us.
    pub fn passed(&self, listener: &str, reason: &'static str) {
        self.passed.get_or_create(&ByBypass { listener: listener.to_owned(), reason }).inc();
    }

    /// The packet counters of a listener, for its lanes to count into as they go.
    #[must_use]
    pub fn crossing(&self, listener: &str) -> Arc<Crossing> {
        let mut crossings = self.crossings.lock().unwrap_or_else(PoisonError::into_inner);
        let label = |direction| ByDirection { listener: listener.to_owned(), direction };
        let counts = |direction| Counts {
            packets: self.packets.get_or_create_owned(&label(direction)),
            bytes: self.packet_bytes.get_or_create_owned(&label(direction)),
        };
        let dropped = |reason| self.dropped.get_or_create_owned(&ByBypass { listener: listener.to_owned(), reason });
        let made = crossings.entry(listener.to_owned()).or_insert_with(|| Arc::new(Crossing::new(counts, dropped)));
        Arc::clone(made)
    }

    /// Counts a packet of a tunnel that goes nowhere.
    pub fn dropped(&self, listener: &str, reason: &'static str) {
        self.dropped.get_or_create(&ByBypass { listener: listener.to_owned(), reason }).inc();
    }

    /// Counts a question to the idle server connections: `hit`, `miss` or `stale`.
    pub fn kept(&self, result: &'static str) {
        self.kept.get_or_create(&ByResult { result }).inc();
    }

    /// Counts `event`.
    pub fn observe(&self, event: &Event) {
        match event {
            Event::Closed(closed) => self.observe_closed(closed),
            Event::Request(request) => {
                let class = format!("{}xx", request.status / 100);
                self.requests.get_or_create(&ByClass { class }).inc();
            }
            Event::PathChanged { .. } => {
                self.path_changes.inc();
            }
            Event::AcceptPaused { reason, .. } => {
                self.pauses.get_or_create(&ByReason { reason }).inc();
            }
            Event::Reloaded { .. } => {
                self.reloads.get_or_create(&ByResult { result: "taken" }).inc();
            }
            Event::ReloadRejected { .. } => {
                self.reloads.get_or_create(&ByResult { result: "rejected" }).inc();
            }
            Event::Listening { .. }
            | Event::ProfileApplied { .. }
            | Event::Congestion(_)
            | Event::AcceptResumed { .. }
            | Event::BypassBegan { .. }
            | Event::BypassEnded { .. }
            | Event::RelayDown { .. }
            | Event::RelayUp { .. }
            | Event::FleetChanged { .. }
            | Event::EtcdDown { .. }
            | Event::EtcdUp { .. }
            | Event::Draining { .. }
            | Event::Stopped { .. }
            | Event::Warning { .. } => {}
        }
    }

    fn observe_closed(&self, closed: &Closed) {
        let listener = closed.listener.clone();
        self.open.get_or_create(&ByListener { listener: listener.clone() }).dec();
        self.closed.get_or_create(&ByEnd { listener, reason: closed.end.word() }).inc();
        if let Some(connect) = closed.connect {
            self.connect.observe(connect.as_secs_f64());
        }
        for (section, info) in [("down", closed.down), ("up", closed.up)] {
            if let Some(SectionInfo { rtt, retransmitted, .. }) = info {
                if rtt > Duration::ZERO {
                    self.rtt.get_or_create(&BySection { section }).observe(rtt.as_secs_f64());
                }
                self.retransmitted.get_or_create(&BySection { section }).inc_by(u64::from(retransmitted));
            }
        }
        if let Some(chosen) = &closed.chosen {
            self.observe_chosen(&closed.path, chosen);
        }
        if let Some(limited) = closed.limited {
            self.limited.get_or_create(&ByLimit { limited: limited.to_string() }).inc();
        }
    }

    /// By the first relay only: there are too many paths for labels.
    fn observe_chosen(&self, path: &str, chosen: &Chosen) {
        let via = path.split(',').next().unwrap_or(path).to_owned();
        let relays = if via == Path::DIRECT { 0 } else { u32::try_from(path.split(',').count()).unwrap_or(u32::MAX) };
        self.chosen.get_or_create(&ByVia { via, relays }).inc();
        self.choices.get_or_create(&ByReason { reason: chosen.reason }).inc();
        if let (Some(predicted), Some(took)) = (chosen.predicted, chosen.took)
            && !predicted.is_zero()
        {
            self.prediction.observe(took.as_secs_f64() / predicted.as_secs_f64());
        }
    }

    /// All numbers in the text format of OpenMetrics.
    #[must_use]
    pub fn text(&self, pipes: PipeCounts, interfaces: Vec<InterfaceView>) -> String {
        self.shares.show(interfaces);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.pipes_open.set(number(pipes.open));
        self.pipes_idle.set(number(pipes.idle));
        self.pipe_fallbacks.set(i64::try_from(pipes.fallbacks).unwrap_or(i64::MAX));
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).expect("invariant: writing to a String does not fail");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

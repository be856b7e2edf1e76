//! Metrics of sections (`TCP_INFO`) and of shared interfaces. Running sections are sampled every few seconds while
//! bytes move, and each section once at its end; shared interfaces on each scrape.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ekiden_proto::event::{SectionInfo, SessionClosed};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Declare;
use super::declare::duration_histogram;
use crate::status::InterfaceView;

label_sets! {
    BySection { section: &'static str }
    ByStart { section: &'static str, start: &'static str }
    ByJump { section: &'static str, outcome: &'static str }
    ByMoment { section: &'static str, at: &'static str }
}

type HistogramFamily = Family<ByMoment, Histogram, fn() -> Histogram>;

/// When a section was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleMoment {
    /// While bytes move; shares of time cover the last seconds.
    Running,
    /// At the end of the session; shares of time cover the whole session.
    End,
}

impl SampleMoment {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::End => "end",
        }
    }
}

/// The metrics of sections.
#[derive(Debug)]
pub struct SectionMetrics {
    rtt: HistogramFamily,
    min_rtt: HistogramFamily,
    retransmitted: HistogramFamily,
    window: HistogramFamily,
    rate: HistogramFamily,
    busy: HistogramFamily,
    rwnd_limited: HistogramFamily,
    sndbuf_limited: HistogramFamily,
    segments_retransmitted: Family<BySection, Counter>,
    starts: Family<ByStart, Counter>,
    jumps: Family<ByJump, Counter>,
}

/// Creates a histogram of shares of retransmitted segments, 0 to 1. CUBIC fills a 50 ms path at 10 Mbit/s up to a loss
/// of one segment in two hundred.
fn loss_histogram() -> Histogram {
    Histogram::new([0.0, 0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
}

/// Creates a histogram of shares of time, from 0 to 1.
fn ratio_histogram() -> Histogram {
    Histogram::new([0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
}

/// Creates a histogram of congestion windows, from 2 to 32,768 segments.
fn window_histogram() -> Histogram {
    Histogram::new((1..16).map(|power| f64::from(1 << power)))
}

/// Creates a histogram of rates in bytes per second, from 16 KiB/s to 4 GiB/s in powers of four.
fn rate_histogram() -> Histogram {
    Histogram::new((0..10).map(|power| 16_384.0 * 4_f64.powi(power)))
}

impl Default for SectionMetrics {
    fn default() -> Self {
        Self {
            rtt: Family::new_with_constructor(duration_histogram),
            min_rtt: Family::new_with_constructor(duration_histogram),
            retransmitted: Family::new_with_constructor(loss_histogram),
            window: Family::new_with_constructor(window_histogram),
            rate: Family::new_with_constructor(rate_histogram),
            busy: Family::new_with_constructor(ratio_histogram),
            rwnd_limited: Family::new_with_constructor(ratio_histogram),
            sndbuf_limited: Family::new_with_constructor(ratio_histogram),
            segments_retransmitted: Family::default(),
            starts: Family::default(),
            jumps: Family::default(),
        }
    }
}

impl SectionMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("section_rtt_seconds", "Smoothed round-trip time", self.rtt.clone());
        r.declare("section_min_rtt_seconds", "Smallest round-trip time", self.min_rtt.clone());
        r.declare(
            "section_retransmitted_ratio",
            "Share of sent segments that were retransmissions",
            self.retransmitted.clone(),
        );
        r.declare("section_window_segments", "Congestion window", self.window.clone());
        r.declare("section_delivery_rate_bytes_per_second", "Delivery rate in bytes per second", self.rate.clone());
        r.declare("section_busy_ratio", "Share of time with bytes to send", self.busy.clone());
        let rwnd = "Share of busy time limited by the receiver's window";
        r.declare("section_rwnd_limited_ratio", rwnd, self.rwnd_limited.clone());
        let sndbuf = "Share of busy time limited by the send buffer";
        r.declare("section_sndbuf_limited_ratio", sndbuf, self.sndbuf_limited.clone());
        let again = "Segments retransmitted by closed sessions";
        r.declare("section_retransmitted_segments", again, self.segments_retransmitted.clone());
        r.declare("section_starts", "Closed sessions by the start of the section", self.starts.clone());
        r.declare("section_jumps", "Requested jumps of closed sessions by outcome", self.jumps.clone());
    }

    pub(super) fn record_closed(&self, closed: &SessionClosed) {
        for (section, info) in [("down", closed.down), ("up", closed.up)] {
            let Some(info) = info else { continue };
            self.record_sample(section, SampleMoment::End, &SectionInfo::default(), &info, closed.duration);
            let retransmitted = u64::from(info.retransmitted);
            self.segments_retransmitted.get_or_create(&BySection { section }).inc_by(retransmitted);
            self.starts.get_or_create(&ByStart { section, start: info.start.state().as_str() }).inc();
            if let Some(jump) = info.start.jump {
                self.jumps.get_or_create(&ByJump { section, outcome: jump.outcome.as_str() }).inc();
            }
        }
    }

    /// Records a sample of a section, with the changes since the sample `previous`, which was taken `span` earlier.
    pub fn record_sample(
        &self,
        section: &'static str,
        moment: SampleMoment,
        previous: &SectionInfo,
        current: &SectionInfo,
        span: Duration,
    ) {
        let label = ByMoment { section, at: moment.as_str() };
        let note = |spread: &HistogramFamily, value: f64| spread.get_or_create(&label).observe(value);
        // Zero means that the connection has not measured a round-trip time.
        if current.rtt > Duration::ZERO {
            note(&self.rtt, current.rtt.as_secs_f64());
        }
        if current.min_rtt > Duration::ZERO {
            note(&self.min_rtt, current.min_rtt.as_secs_f64());
        }
        note(&self.window, f64::from(current.cwnd));
        if current.delivery_rate > 0 {
            note(&self.rate, current.delivery_rate as f64);
        }
        let sent = current.segments_out.saturating_sub(previous.segments_out);
        if sent > 0 {
            let retransmitted = current.retransmitted.saturating_sub(previous.retransmitted);
            note(&self.retransmitted, f64::from(retransmitted) / f64::from(sent));
        }
        let since = |of: fn(&SectionInfo) -> Duration| of(current).saturating_sub(of(previous)).as_secs_f64();
        let busy = since(|info| info.busy);
        if !span.is_zero() {
            note(&self.busy, (busy / span.as_secs_f64()).min(1.0));
        }
        if busy > 0.0 {
            note(&self.rwnd_limited, since(|info| info.rwnd_limited) / busy);
            note(&self.sndbuf_limited, since(|info| info.sndbuf_limited) / busy);
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InterfaceLabels {
    interface: String,
}

type InterfaceGauges = Family<InterfaceLabels, Gauge<f64, AtomicU64>>;

/// The metrics of interfaces with a shared rate, one value for each interface.
#[derive(Debug, Default)]
pub struct ShareMetrics {
    rate: InterfaceGauges,
    sending: InterfaceGauges,
    level: InterfaceGauges,
    sent: InterfaceGauges,
    fairness: InterfaceGauges,
}

impl ShareMetrics {
    fn all(&self) -> [(&'static str, &'static str, &InterfaceGauges); 5] {
        [
            (
                "share_rate_bits_per_second",
                "Rate shared by the sections of the interface, in bits per second",
                &self.rate,
            ),
            ("share_sections_sending", "Sections sending now", &self.sending),
            (
                "share_level_bits_per_second",
                "Rate available to a section per unit of weight, in bits per second",
                &self.level,
            ),
            (
                "share_sent_bits_per_second",
                "Rate sent by the sections in the last second, in bits per second",
                &self.sent,
            ),
            (
                "share_fairness_ratio",
                "Jain's fairness index of the limited sections in the last second",
                &self.fairness,
            ),
        ]
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, numbers) in self.all() {
            registry.declare(name, help, numbers.clone());
        }
    }

    /// Updates the metrics to these interfaces; unknown values are left out.
    pub fn update(&self, interfaces: Vec<InterfaceView>) {
        self.all().iter().for_each(|(_, _, numbers)| numbers.clear());
        for InterfaceView {
            interface,
            rate_bits_per_second,
            sending,
            level_bits_per_second,
            sent_bits_per_second,
            fairness,
        } in interfaces
        {
            let label = InterfaceLabels { interface };
            let set = |numbers: &InterfaceGauges, value: f64| {
                numbers.get_or_create(&label).set(value);
            };
            set(&self.rate, rate_bits_per_second as f64);
            set(&self.sending, sending as f64);
            set(&self.sent, sent_bits_per_second as f64);
            level_bits_per_second.into_iter().for_each(|level| set(&self.level, level as f64));
            fairness.into_iter().for_each(|fairness| set(&self.fairness, fairness));
        }
    }
}

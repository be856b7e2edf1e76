//! The pacing of an active section: its measured rate, and its ceiling.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ekiden_proto::share::{DemandEstimator, SendSample};
use ekiden_sys::pacing::{SendCounters, max_pacing_rate, send_counters, set_max_pacing_rate};

/// Bytes of a link header as tc(8) counts them. The configured rate must leave room for the preamble and the interframe
/// gap of Ethernet.
const LINK_HEADER: u64 = 14;

/// Consecutive samples without sent bytes after which a section is idle.
const IDLE_SAMPLES: u32 = 3;

/// Minimum time between two samples for a meaningful rate.
const MIN_SAMPLE_SPAN: Duration = Duration::from_millis(50);

/// The lowest ceiling, in bytes per second. With a lower one, a connection might appear dead.
const MIN_CEILING: u64 = 1500;

/// The pacing state of an active section. Rates are in bytes per second and include headers, unless stated otherwise.
#[derive(Debug)]
pub struct PacingState {
    /// The ceiling of payload before activation, to restore later.
    original_ceiling: u64,
    /// The ceiling of payload in force.
    applied_ceiling: u64,
    /// The ceiling of whole packets in force.
    packet_ceiling: u64,
    last_sent: SendCounters,
    sampled_at: Instant,
    estimator: DemandEstimator,
    demand: u64,
    idle_samples: u32,
    window: RateWindow,
}

/// Measurements since the last update of the statistics.
#[derive(Debug)]
struct RateWindow {
    started_at: Instant,
    bytes: u64,
    samples: u32,
    limited: u32,
}

/// The recent rate of a section, in bytes per second.
#[derive(Debug, Clone, Copy)]
pub struct AchievedRate {
    /// The rate, in bytes per second.
    pub rate: f64,
    /// Whether the window was long enough, and the section limited for most of it.
    pub is_limited: bool,
}

impl PacingState {
    /// Starts to measure the rate of `socket`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(socket: BorrowedFd<'_>, now: Instant) -> io::Result<Self> {
        let ceiling = max_pacing_rate(socket)?;
        Ok(Self {
            original_ceiling: ceiling,
            applied_ceiling: ceiling,
            packet_ceiling: ceiling,
            last_sent: send_counters(socket)?,
            sampled_at: now,
            estimator: DemandEstimator::default(),
            demand: 0,
            idle_samples: 0,
            window: RateWindow::new(now),
        })
    }

    /// Returns the rate that the section could use.
    pub fn demand(&self) -> u64 {
        self.demand
    }

    /// Samples the bytes sent. Returns false if the section has become idle.
    ///
    /// # Errors
    /// As getsockopt(2).
    pub fn sample(&mut self, socket: BorrowedFd<'_>, now: Instant) -> io::Result<bool> {
        let span = now.saturating_duration_since(self.sampled_at);
        if span < MIN_SAMPLE_SPAN.max(DemandEstimator::min_interval(self.packet_ceiling, self.packet_size())) {
            return Ok(true);
        }
        let sent = send_counters(socket)?;
        let bytes = self.wire_bytes(sent.bytes.saturating_sub(self.last_sent.bytes));
        let receiver_held = sent.rwnd_limited.saturating_sub(self.last_sent.rwnd_limited) > span / 2;
        let sample = SendSample { bytes, span, congestion_limited: sent.unsent > 0 && !receiver_held };
        (self.last_sent, self.sampled_at) = (sent, now);
        let demand = self.estimator.judge(sample, self.packet_ceiling);
        self.window.record(bytes, demand == u64::MAX);
        // The profile of the section may allow less than its share; other sections get the rest.
        self.demand = demand.min(self.wire_bytes(self.original_ceiling));
        self.idle_samples = if bytes == 0 { self.idle_samples + 1 } else { 0 };
        Ok(self.idle_samples < IDLE_SAMPLES)
    }

    /// Sets a ceiling of whole packets.
    ///
    /// # Errors
    /// As setsockopt(2).
    pub fn apply_ceiling(&mut self, socket: BorrowedFd<'_>, ceiling: u64) -> io::Result<()> {
        let ceiling = ceiling.max(MIN_CEILING);
        let payload = (u128::from(ceiling) * u128::from(self.last_sent.mss) / u128::from(self.packet_size())) as u64;
        let payload = payload.min(self.original_ceiling);
        self.packet_ceiling = self.wire_bytes(payload);
        if payload != std::mem::replace(&mut self.applied_ceiling, payload) {
            set_max_pacing_rate(socket, payload)?;
        }
        Ok(())
    }

    /// Restores the ceiling from before activation.
    pub fn restore_ceiling(&self, socket: BorrowedFd<'_>) {
        if self.applied_ceiling != self.original_ceiling {
            // Fails only when the socket is already dead.
            let _ = set_max_pacing_rate(socket, self.original_ceiling);
        }
    }

    /// Returns the rate since the last call, which should be a second ago.
    pub fn take_rate(&mut self, now: Instant) -> AchievedRate {
        std::mem::replace(&mut self.window, RateWindow::new(now)).rate(now)
    }

    /// Returns the size of a full packet, in bytes.
    fn packet_size(&self) -> u64 {
        self.last_sent.mss + self.last_sent.headers + LINK_HEADER
    }

    /// Returns the bytes of `payload` plus the headers of its packets, if all packets are full.
    fn wire_bytes(&self, payload: u64) -> u64 {
        let total = u128::from(payload) * u128::from(self.packet_size()) / u128::from(self.last_sent.mss);
        u64::try_from(total).unwrap_or(u64::MAX)
    }
}

impl RateWindow {
    /// Shortest window for the comparison of shares. With many sections, samples are late by up to half a second.
    const MIN_SPAN: Duration = Duration::from_millis(500);

    fn new(started_at: Instant) -> Self {
        Self { started_at, bytes: 0, samples: 0, limited: 0 }
    }

    fn record(&mut self, bytes: u64, limited: bool) {
        self.bytes += bytes;
        self.samples += 1;
        self.limited += u32::from(limited);
    }

    fn rate(&self, now: Instant) -> AchievedRate {
        let span = now.saturating_duration_since(self.started_at);
        let held = span >= Self::MIN_SPAN && self.limited * 2 > self.samples;
        AchievedRate { rate: self.bytes as f64 / span.as_secs_f64().max(1e-9), is_limited: held }
    }
}

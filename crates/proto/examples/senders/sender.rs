//! The data in flight of a TCP of Linux: slow start, congestion avoidance and recovery, for Reno and for CUBIC.
//!
//! CUBIC is RFC 9438 with the deviations of Linux: the curve is evaluated a round trip ahead (`delay_min` is added to
//! the time), the Reno-friendly window has no faster phase above its former value, and HyStart ends slow start by the
//! length of the train of acknowledgements or by a queue. Recovery is proportional rate reduction (RFC 6937), and no
//! window grows in it.

use ekiden_proto::path::model::CongestionControl;

/// RFC 6928.
const INITIAL: f64 = 10.0;
/// RFC 9438, 5.
const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// Acknowledgements for each packet that the Reno-friendly window grows by, and each packet of it: 1 / α (RFC 9438, 4.3).
const FRIENDLY: f64 = (1.0 + BETA) / (3.0 * (1.0 - BETA));

/// One sender.
pub struct Sender {
    congestion: CongestionControl,
    rtt: f64,
    window: f64,
    threshold: f64,
    recovery: Option<Recovery>,
    curve: Option<CubicEpoch>,
    /// Where the last loss was.
    peak: f64,
    round: HystartRound,
}

/// Until all that was under way at a loss is accounted for.
struct Recovery {
    until: u64,
    before: f64,
    delivered: f64,
    sent: f64,
}

/// CUBIC's epoch: its start, its target, and Reno's window.
struct CubicEpoch {
    began: f64,
    until_back: f64,
    back: f64,
    friendly: f64,
}

/// A round trip of slow start, as HyStart sees it.
#[derive(Default)]
struct HystartRound {
    until: u64,
    began: f64,
    samples: u32,
    queued: f64,
}

impl Sender {
    pub fn new(congestion: CongestionControl, rtt: f64) -> Self {
        Self {
            congestion,
            rtt,
            window: INITIAL,
            threshold: f64::INFINITY,
            recovery: None,
            curve: None,
            peak: 0.0,
            round: HystartRound::default(),
        }
    }

    /// Whether another packet may go, with so many under way and room for so many.
    pub fn can_send(&self, under_way: f64, room: f64) -> bool {
        match &self.recovery {
            Some(now) if under_way > self.threshold => {
                (now.delivered * self.threshold / now.before).ceil() - now.sent >= 1.0
            }
            Some(now) => (self.threshold - under_way).min((now.delivered - now.sent).max(1.0)) >= 1.0,
            None => self.window.min(room).floor() - under_way >= 1.0,
        }
    }

    pub fn on_sent(&mut self) {
        if let Some(now) = &mut self.recovery {
            now.sent += 1.0;
        }
    }

    /// Packet `number` is known to be lost; `next` is the number of the next one to be sent.
    pub fn on_lost(&mut self, number: u64, next: u64) {
        if self.recovery.as_ref().is_some_and(|now| number < now.until) {
            return;
        }
        let (kept, falling) = match self.congestion {
            CongestionControl::Cubic => (BETA, self.window < self.peak),
            _ => (0.5, false),
        };
        self.recovery = Some(Recovery { until: next, before: self.window, delivered: 0.0, sent: 0.0 });
        self.peak = if falling { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.threshold = (self.window * kept).max(2.0);
        self.curve = None;
    }

    /// Packet `number` has arrived; `next` as above, `oldest` is the oldest one under way, `queued` how long packets wait at the line.
    pub fn on_ack(&mut self, number: u64, next: u64, oldest: Option<u64>, now: f64, queued: f64) {
        if let Some(recovery) = &mut self.recovery {
            recovery.delivered += 1.0;
            if number + 1 >= recovery.until || oldest.is_none_or(|oldest| oldest >= recovery.until) {
                (self.window, self.recovery) = (self.threshold, None);
            }
        } else if self.window < self.threshold {
            self.window += 1.0;
            if self.congestion == CongestionControl::Cubic && self.is_hystart_exit(number, next, now, queued) {
                self.threshold = self.window;
            }
        } else {
            self.window +=
                if self.congestion == CongestionControl::Cubic { self.cubic(now) } else { 1.0 / self.window };
        }
    }

    fn is_hystart_exit(&mut self, number: u64, next: u64, now: f64, queued: f64) -> bool {
        if number >= self.round.until {
            self.round = HystartRound { until: next, began: now, samples: 0, queued: f64::INFINITY };
        }
        if self.round.samples < 8 {
            self.round.samples += 1;
            self.round.queued = self.round.queued.min(queued);
        }
        let delayed = self.round.samples == 8 && self.round.queued > (self.rtt / 8.0).clamp(0.004, 0.016);
        self.window >= 16.0 && (delayed || queued > 0.0 && now - self.round.began > self.rtt / 2.0)
    }

    /// The increment of an acknowledgement: at most half a packet.
    fn cubic(&mut self, now: f64) -> f64 {
        let (window, peak) = (self.window, self.peak);
        let curve = self.curve.get_or_insert_with(|| CubicEpoch {
            began: now,
            until_back: ((peak - window).max(0.0) / C).cbrt(),
            back: peak.max(window),
            friendly: window,
        });
        let target = curve.back + C * (now - curve.began + self.rtt - curve.until_back).powi(3);
        curve.friendly += 1.0 / (window * FRIENDLY);
        let wanted = (target - window).max(curve.friendly - window).max(0.01);
        // Before the first loss there is no peak to go back to, and it grows by a twentieth at least.
        let least = if peak == 0.0 { 0.05 } else { 0.0 };
        (wanted / window).max(least).min(0.5)
    }
}

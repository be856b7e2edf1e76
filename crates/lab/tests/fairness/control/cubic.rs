//! CUBIC: RFC 9438 with the constants and the rules of `HyStart` of Linux 6.18 (`net/ipv4/tcp_cubic.c`).

use super::{AckSample, CongestionControl, INITIAL_WINDOW};

const BETA: f64 = 717.0 / 1024.0;
const C: f64 = 0.4;
/// Below this window, slow start is not left early.
const HYSTART_LOW: f64 = 16.0;

/// The parameters of the cubic curve of the current epoch.
struct CubicEpoch {
    start: f64,
    origin: f64,
    k: f64,
    /// The window of Reno, for the TCP-friendly region.
    friendly: f64,
}

/// The state of `HyStart`, which ends slow start when the delay rises, or when the acknowledgements of a round span
/// half of the shortest round trip.
struct HyStart {
    round_began: f64,
    last_ack: f64,
    shortest: f64,
    samples: u32,
}

pub struct Cubic {
    window: f64,
    threshold: f64,
    last_max: f64,
    min_rtt: f64,
    epoch: Option<CubicEpoch>,
    hystart: HyStart,
}

impl HyStart {
    const fn new() -> Self {
        Self { round_began: 0.0, last_ack: 0.0, shortest: f64::INFINITY, samples: 0 }
    }

    fn ends_slow_start(&mut self, ack: &AckSample, min_rtt: f64) -> bool {
        if ack.round {
            *self = Self { round_began: ack.now, last_ack: ack.now, shortest: f64::INFINITY, samples: 0 };
        }
        let train = ack.now - self.last_ack <= 0.002;
        if train {
            self.last_ack = ack.now;
        }
        self.shortest = self.shortest.min(ack.rtt);
        self.samples += 1;
        let slack = (min_rtt / 8.0).clamp(0.004, 0.016);
        train && ack.now - self.round_began > min_rtt / 2.0 || self.samples > 8 && self.shortest > min_rtt + slack
    }
}

impl Cubic {
    pub const fn new() -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: f64::INFINITY,
            last_max: 0.0,
            min_rtt: f64::INFINITY,
            epoch: None,
            hystart: HyStart::new(),
        }
    }

    /// Acknowledgements needed to increase the window by one packet.
    fn acks_for_one(&mut self, now: f64) -> f64 {
        let (window, last_max) = (self.window, self.last_max);
        let epoch = self.epoch.get_or_insert_with(|| {
            let (origin, k) =
                if window < last_max { (last_max, ((last_max - window) / C).cbrt()) } else { (window, 0.0) };
            CubicEpoch { start: now, origin, k, friendly: window }
        });
        let target = epoch.origin + C * (now + self.min_rtt - epoch.start - epoch.k).powi(3);
        let mut count = if target > window { window / (target - window) } else { 100.0 * window };
        if last_max == 0.0 {
            count = count.min(20.0);
        }
        epoch.friendly += 3.0 * (1.0 - BETA) / (1.0 + BETA) / window;
        if epoch.friendly > window {
            count = count.min(window / (epoch.friendly - window));
        }
        count.max(2.0)
    }

    fn reduce(&mut self) {
        self.epoch = None;
        let fast_convergence = if self.window < self.last_max { f64::midpoint(1.0, BETA) } else { 1.0 };
        self.last_max = self.window * fast_convergence;
        self.threshold = (self.window * BETA).max(2.0);
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &AckSample) {
        self.min_rtt = self.min_rtt.min(ack.rtt);
        if self.window < self.threshold {
            self.window += 1.0;
            let ends = self.hystart.ends_slow_start(ack, self.min_rtt);
            if self.threshold.is_infinite() && self.window >= HYSTART_LOW && ends {
                self.threshold = self.window;
            }
        } else {
            self.window += 1.0 / self.acks_for_one(ack.now);
        }
    }

    fn on_loss(&mut self, _: f64) {
        self.reduce();
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _: f64) {
        self.reduce();
        self.window = 1.0;
    }

    fn window(&self) -> f64 {
        self.window
    }
}

//! Compound TCP (Tan, Song, Zhang, Sridharan: A compound TCP approach for high-speed and long distance networks,
//! INFOCOM 2006; draft-sridharan-tcpm-ctcp-02) with a fixed gamma. The delay window grows over the round, not at its end.

use super::{AckSample, CongestionControl, INITIAL_WINDOW};

const ALPHA: f64 = 1.0 / 8.0;
const K: f64 = 3.0 / 4.0;
/// Packets in the queue above which the delay window shrinks.
const GAMMA: f64 = 30.0;
/// Below this window the delay window is 0, and CTCP behaves as Reno.
const LOW_WINDOW: f64 = 38.0;

pub struct Ctcp {
    loss_window: f64,
    delay_window: f64,
    threshold: f64,
    base_rtt: f64,
    /// The shortest of the `samples` round-trip times of this round.
    round_rtt: f64,
    samples: u32,
    lost_in_round: bool,
    /// The growth of the delay window over this round, in packets.
    growth: f64,
}

impl Ctcp {
    pub const fn new() -> Self {
        Self {
            loss_window: INITIAL_WINDOW,
            delay_window: 0.0,
            threshold: f64::INFINITY,
            base_rtt: f64::INFINITY,
            round_rtt: f64::INFINITY,
            samples: 0,
            lost_in_round: false,
            growth: 0.0,
        }
    }

    fn end_round(&mut self) {
        let window = self.window();
        self.growth = 0.0;
        if window < LOW_WINDOW {
            self.delay_window = 0.0;
        } else if !self.lost_in_round && self.samples >= 3 && self.loss_window >= self.threshold {
            let queued = window * (1.0 - self.base_rtt / self.round_rtt);
            if queued < GAMMA {
                self.growth = (ALPHA * window.powf(K) - 1.0).max(0.0);
            } else {
                self.delay_window = (self.delay_window - queued).max(0.0);
            }
        }
        (self.round_rtt, self.samples, self.lost_in_round) = (f64::INFINITY, 0, false);
    }
}

impl CongestionControl for Ctcp {
    fn on_ack(&mut self, ack: &AckSample) {
        self.base_rtt = self.base_rtt.min(ack.rtt);
        self.round_rtt = self.round_rtt.min(ack.rtt);
        self.samples += 1;
        if ack.round {
            self.end_round();
        }
        if self.loss_window < self.threshold {
            self.loss_window += 1.0;
        } else {
            let window = self.window();
            self.loss_window += 1.0 / window;
            self.delay_window += self.growth / window;
        }
    }

    fn on_loss(&mut self, _: f64) {
        let half = self.window() / 2.0;
        self.delay_window = (half - self.loss_window / 2.0).max(0.0);
        self.loss_window = (self.loss_window / 2.0).max(2.0);
        (self.threshold, self.growth, self.lost_in_round) = (self.loss_window, 0.0, true);
    }

    fn on_timeout(&mut self, _: f64) {
        self.threshold = (self.window() / 2.0).max(2.0);
        (self.loss_window, self.delay_window, self.growth) = (1.0, 0.0, 0.0);
        self.base_rtt = f64::INFINITY;
    }

    fn window(&self) -> f64 {
        self.loss_window + self.delay_window
    }
}

//! Reno: RFC 5681 with appropriate byte counting.

use super::{AckSample, CongestionControl, INITIAL_WINDOW};

pub struct Reno {
    window: f64,
    threshold: f64,
}

impl Reno {
    pub const fn new() -> Self {
        Self { window: INITIAL_WINDOW, threshold: f64::INFINITY }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, _: &AckSample) {
        self.window += if self.window < self.threshold { 1.0 } else { 1.0 / self.window };
    }

    fn on_loss(&mut self, _: f64) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, _: f64) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
    }

    fn window(&self) -> f64 {
        self.window
    }
}

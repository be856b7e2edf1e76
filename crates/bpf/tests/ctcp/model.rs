//! A second implementation of Compound TCP, in floating point and according to the definitions of the paper.

pub(crate) const LOW_WINDOW: f64 = 38.0;

/// Both windows in packets, with fractions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Windows {
    pub(crate) cwnd: f64,
    pub(crate) dwnd: f64,
}

impl Windows {
    pub(crate) fn sum(self) -> f64 {
        self.cwnd + self.dwnd
    }

    /// The windows after the acknowledgement of `acked` packets, in a round trip that acknowledges `window` packets and
    /// adds `step` to the delay window.
    pub(crate) fn grown(self, acked: f64, window: f64, step: f64) -> Self {
        Self { cwnd: self.cwnd + acked / window, dwnd: self.dwnd + step * acked / window }
    }

    pub(crate) fn halved(self) -> Self {
        Self { cwnd: (self.cwnd / 2.0).max(2.0), dwnd: self.dwnd / 2.0 }
    }
}

/// The gain of the delay window in a round trip: `alpha window^k - 1`.
pub(crate) fn step(window: f64) -> f64 {
    (window.powf(0.75) / 8.0 - 1.0).max(0.0)
}

/// The number of packets of a window that wait in a queue: `(expected - actual) base`.
pub(crate) fn queued(window: f64, base_us: f64, rtt_us: f64) -> f64 {
    let expected = window / base_us;
    let actual = window / rtt_us;
    ((expected - actual) * base_us).max(0.0)
}

/// Gamma after a loss, where `reno_queued` packets of Reno's window were in the queue.
pub(crate) fn tuned(gamma: f64, reno_queued: f64) -> f64 {
    (0.75 * gamma + 0.25 * 0.75 * reno_queued).clamp(5.0, 30.0)
}

/// The average window where each packet is lost with probability `p` and the queue is empty: between two losses the
/// window grows from W/2 to W, by `dw/dt = w^k / 8` per round trip, and `1/p` packets are sent.
pub(crate) fn average_window(p: f64) -> f64 {
    0.255 / p.powf(0.8)
}

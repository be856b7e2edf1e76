//! The figures of one direction of a section at one moment, and the section model from them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::model::{CongestionControl, Connection, SectionModel};

/// Payload of a full packet by default: Ethernet's, with timestamps (RFC 7323).
const MSS: u16 = 1448;

/// The assumed loss of a section without samples: a lower loss has to be measured.
const PRIOR_LOSS: f64 = 5e-4;

/// Weight of the prior loss, in segments.
pub(super) const PRIOR_SEGMENTS: f64 = 500.0;

/// The rate of a sender is proportional to the loss to the power of minus one over this exponent: between Reno and
/// CUBIC.
const LOSS_EXPONENT: f64 = 1.5;

/// Number of iterations to find the loss that explains a rate.
const LOSS_ITERATIONS: u32 = 4;

/// The figures of an [`Estimate`](super::estimate::Estimate) at one moment, as relays report and status shows them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct EstimateSnapshot {
    /// Round-trip time without the queue of the relay's own traffic.
    pub rtt: Option<Duration>,
    /// Share of segments lost, 0 to 1.
    pub loss: Option<f64>,
    /// Rate of the section in bytes per second.
    pub rate: Option<f64>,
    /// Lower bound of the rate in bytes per second.
    pub at_least: Option<f64>,
    /// Maximum of data in flight, in bytes.
    pub window: Option<u64>,
    /// Number of segments that the estimate is based on; older ones count less.
    pub segments: f64,
}

impl EstimateSnapshot {
    /// Returns the section model with this round trip. `is_ready` states whether relays keep a connection ready.
    ///
    /// A measured rate is limited by losses or by the line. So it is the rate of the line only if losses do not explain
    /// it. Where the rate exceeds the limit by losses, the losses are lower than estimated.
    #[must_use]
    pub fn to_model(&self, rtt: Duration, congestion: CongestionControl, is_ready: bool) -> SectionModel {
        let lost = self.loss.unwrap_or(0.0) * self.segments;
        let loss = (lost + PRIOR_LOSS * PRIOR_SEGMENTS) / (self.segments + PRIOR_SEGMENTS);
        let connection = Connection::ready_if(is_ready);
        let mut section =
            SectionModel { rtt, loss, window: self.window, line_rate: None, congestion, mss: MSS, connection };
        let least = self.rate.or(self.at_least).unwrap_or(0.0);
        for _ in 0..LOSS_ITERATIONS {
            let rate = section.rate();
            if rate >= least || section.loss <= 0.0 {
                break;
            }
            section.loss *= (rate / least).powf(LOSS_EXPONENT);
        }
        section.line_rate = self.rate.filter(|rate| *rate < section.rate());
        section
    }
}

//! What a section could use, judged by what it sends.
//!
//! A section that sends nearly as fast as it may would send faster, whatever its congestion control; one that does not
//! wants about what it sends. A rate that falls though there are bytes to send is believed slowly: BBR drains its queue in one
//! round of eight and all but stops for 200 ms every ten seconds, and others pause to recover from losses.

use std::time::Duration;

/// From four fifths of what it may send, a section is held back.
const LIMITED_SHARE: (u64, u64) = (4, 5);

/// What a section wants that is not held back: a tenth more than it sends. With the room above that
/// ([`super::Allocation::ceiling`]) it stays below [`LIMITED_SHARE`] as long as it sends no faster.
const DEMAND_SHARE: (u64, u64) = (11, 10);

/// What is still believed of the last rate after a pause.
const PAUSE_SHARE: (u64, u64) = (7, 10);

/// A look at fewer packets than these says more of when it began than of the rate.
const MIN_PACKETS: u64 = 8;

/// What was seen of a section in some time.
#[derive(Debug, Clone, Copy)]
pub struct SendSample {
    /// Bytes that it has sent.
    pub bytes: u64,
    /// In what time.
    pub span: Duration,
    /// Whether its congestion control held it back, rather than its receiver or a lack of bytes.
    pub congestion_limited: bool,
}

/// The pace of one section.
#[derive(Debug, Clone, Copy, Default)]
pub struct DemandEstimator {
    rate: u64,
}

impl DemandEstimator {
    /// How long a section has to be watched that may send up to `ceiling`, in packets of `packet` bytes.
    #[must_use]
    pub fn min_interval(ceiling: u64, packet: u64) -> Duration {
        Duration::from_nanos((MIN_PACKETS * packet).saturating_mul(1_000_000_000) / ceiling.max(1))
    }

    /// What it wants, now that it was seen so and might have sent up to `ceiling`; [`u64::MAX`] for all it can get.
    pub fn judge(&mut self, seen: SendSample, ceiling: u64) -> u64 {
        let rate = (seen.bytes as f64 / seen.span.as_secs_f64().max(1e-9)) as u64;
        self.rate = if seen.congestion_limited { rate.max(scale(self.rate, PAUSE_SHARE)) } else { rate };
        if self.rate >= scale(ceiling, LIMITED_SHARE) { u64::MAX } else { scale(self.rate, DEMAND_SHARE) }
    }
}

const fn scale(value: u64, (part, whole): (u64, u64)) -> u64 {
    // Divided first, so that nothing overflows; an exact tenth is nobody's concern.
    value / whole * part + value % whole * part / whole
}

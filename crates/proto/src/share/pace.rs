//! What a section could use, judged by what it sends.
//!
//! A section that sends nearly as fast as it may would send faster, whatever its congestion control; one that does not
//! wants about what it sends. A rate that falls is believed slowly: BBR drains its queue in one round of eight and all but
//! stops for 200 ms every ten seconds, and others pause to recover from losses.

use std::time::Duration;

/// From four fifths of what it may send, a section is held back.
const HELD: (u64, u64) = (4, 5);

/// What a section wants that is not held back: a tenth more than it sends. With the room above that
/// ([`super::Division::ceiling`]) it stays below [`HELD`] as long as it sends no faster.
const WANTS: (u64, u64) = (11, 10);

/// What is believed of the last rate when the new one is lower.
const KEPT: (u64, u64) = (7, 10);

/// A look at fewer packets than these says more of when it began than of the rate.
const PACKETS: u64 = 8;

/// The pace of one section.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    rate: u64,
}

impl Pace {
    /// How long a section has to be watched that may send up to `ceiling`, in packets of `packet` bytes.
    #[must_use]
    pub fn watch(ceiling: u64, packet: u64) -> Duration {
        Duration::from_nanos((PACKETS * packet).saturating_mul(1_000_000_000) / ceiling.max(1))
    }

    /// What it wants, now that it has sent so many `bytes` in `span` and might have sent up to `ceiling`; [`u64::MAX`] for
    /// all it can get.
    pub fn judge(&mut self, bytes: u64, span: Duration, ceiling: u64) -> u64 {
        let seen = (bytes as f64 / span.as_secs_f64().max(1e-9)) as u64;
        self.rate = seen.max(part(self.rate, KEPT));
        if self.rate >= part(ceiling, HELD) { u64::MAX } else { part(self.rate, WANTS) }
    }

    /// The rate it is believed to have.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }
}

const fn part(value: u64, (part, whole): (u64, u64)) -> u64 {
    // Divided first, so that nothing overflows; an exact tenth is nobody's concern.
    value / whole * part + value % whole * part / whole
}

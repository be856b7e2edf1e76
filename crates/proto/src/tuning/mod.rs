//! Automatic tuning of a section: the TCP settings that follow from the kernel's counters.
//!
//! The cost of a loss: a lost segment that is followed by others is detected after one round trip (RACK, RFC 8985), and
//! a lost tail is probed after two. A lost retransmission, or a tail whose probe is lost as well, waits for the
//! retransmission timeout, which in Linux is `srtt + max(rto_min, 4 rttvar)` with an `rto_min` of 200 ms, doubled each
//! time. Between two relays that is far too long: the peer delays an ACK by [`Tuning::delack_max`] at most. If the peer
//! delays longer, or the delay of the path jumps, timeouts are spurious; the peer reports this (DSACK, RFC 2883), and
//! `rto_min` is raised again.
//!
//! [`SectionTuner`] chooses the socket options, [`RecordSizer`] the size of records, and [`WriteCoalescer`] whether
//! small pieces wait for more data.

mod control;
mod gather;
mod section;

use std::time::Duration;

use crate::profile::Setting;
use crate::units::{Bytes, Span};

pub use control::{SHORT_PATH_CONTROL, is_cheap_control, needs_system_control};
pub use gather::WriteCoalescer;
pub use gather::{RecordSizer, max_record_size};
pub use section::SectionTuner;

/// The counters of a connection since it began (`TCP_INFO`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TuningSample {
    /// Time of the sample, on any monotonic clock.
    pub taken_at: Duration,
    /// Smoothed round-trip time; zero before the first measurement.
    pub rtt: Duration,
    /// The smallest round-trip time of the last minutes; zero before the first measurement.
    pub min_rtt: Duration,
    /// The mean deviation of the round-trip time (RFC 6298).
    pub rttvar: Duration,
    /// Data segments sent, including retransmissions.
    pub segments_sent: u32,
    /// Number of retransmitted segments.
    pub retransmitted: u32,
    /// Retransmitted segments that the peer had already received (DSACK).
    pub spurious: u32,
    /// Number of data segments received.
    pub segments_received: u32,
    /// Received data segments that arrived out of order.
    pub out_of_order: u32,
}

/// The tuned TCP settings of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Lower bound of the part of the retransmission timeout that is added to the round-trip time.
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout, backoff included.
    pub rto_max: Duration,
    /// Longest delay of the local acknowledgements.
    pub delack_max: Duration,
    /// Whether timeouts stay constant, instead of doubling, while few segments are in flight.
    pub thin_linear_timeouts: bool,
}

impl Tuning {
    /// The initial settings, before the path is known. The first round-trip sample makes `4 rttvar` at least `rto_min`,
    /// and twice the sample; later it falls by a quarter in each round trip, and never rises because of `rto_min` alone
    /// (tcp_rtt_estimator()). This value therefore leaves time for the tail loss probe at most round-trip times, and
    /// soon less at short ones.
    pub const INITIAL: Self = Self {
        rto_min: Duration::from_millis(160),
        rto_max: Duration::from_secs(120),
        delack_max: Duration::from_millis(20),
        thin_linear_timeouts: false,
    };

    /// Limit of unsent bytes in the kernel at the start: several milliseconds at 1 Gbit/s. The pump lowers it where a
    /// receiver is slow.
    pub const NOTSENT_LOWAT: Bytes = Bytes(1024 * 1024);

    /// The settings of sockets before connect or listen, without `rto_max`, which would shorten the time in which a
    /// server can answer the SYN.
    #[must_use]
    pub fn initial_settings() -> [Setting; 3] {
        let Self { rto_min, delack_max, .. } = Self::INITIAL;
        [
            Setting::NotsentLowat(Self::NOTSENT_LOWAT),
            Setting::RtoMin(Span(rto_min)),
            Setting::DelackMax(Span(delack_max)),
        ]
    }

    /// The settings that differ from `previous`.
    pub fn changes_from(self, previous: Self) -> impl Iterator<Item = Setting> {
        let changes = [
            (self.rto_min != previous.rto_min).then_some(Setting::RtoMin(Span(self.rto_min))),
            (self.rto_max != previous.rto_max).then_some(Setting::RtoMax(Span(self.rto_max))),
            (self.delack_max != previous.delack_max).then_some(Setting::DelackMax(Span(self.delack_max))),
            (self.thin_linear_timeouts != previous.thin_linear_timeouts)
                .then_some(Setting::ThinLinearTimeouts(self.thin_linear_timeouts)),
        ];
        changes.into_iter().flatten()
    }
}

//! Automatic tuning of a section: the TCP settings that follow from the kernel's counters.
//!
//! The cost of a loss. A lost segment with others behind it is detected after a round trip (RACK, RFC 8985); a lost
//! tail is probed after two; but a lost retransmission, or a tail whose probe is lost as well, waits for the
//! retransmission timeout, which in Linux is `srtt + max(rto_min, 4 rttvar)` with 200 ms for `rto_min`, doubled each
//! time. Between two relays that is far too long: the peer delays an ACK for [`Tuning::delack_max`] at most. If it
//! delays longer, or the path's delay jumps, timeouts are spurious, which the peer reports (DSACK, RFC 2883), and
//! `rto_min` is raised again.
//!
//! [`SectionTuner`] decides the options of a socket, [`RecordSizer`] the size of records, [`WriteCoalescer`] whether
//! small pieces wait.

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
    /// When that was, on any clock that goes on.
    pub taken_at: Duration,
    /// Smoothed round trip; zero while there is none.
    pub rtt: Duration,
    /// The least round trip of the last minutes.
    pub min_rtt: Duration,
    /// The mean deviation of the round-trip time (RFC 6298).
    pub rttvar: Duration,
    /// Segments of data sent, those sent again included.
    pub segments_sent: u32,
    /// Segments that were sent again.
    pub retransmitted: u32,
    /// Segments that the peer had got already.
    pub spurious: u32,
    /// Segments of data that came in.
    pub segments_received: u32,
    /// Of these, ahead of others.
    pub out_of_order: u32,
}

/// How the TCP of a section behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Lower bound of the part of the retransmission timeout that comes on top of the round trip.
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout, with all backoff.
    pub rto_max: Duration,
    /// Longest delay of our acknowledgements.
    pub delack_max: Duration,
    /// Whether timeouts stay as they are, instead of doubling, while few segments are under way.
    pub thin_linear_timeouts: bool,
}

impl Tuning {
    /// The initial settings, before the path is known. The first round trip makes `4 rttvar` at least `rto_min` and
    /// twice itself; later it falls by a quarter each round trip, and never rises because of `rto_min` alone
    /// (tcp_rtt_estimator()). So this is enough for the tail's probe at most round trips, and soon less at short ones.
    pub const INITIAL: Self = Self {
        rto_min: Duration::from_millis(160),
        rto_max: Duration::from_secs(120),
        delack_max: Duration::from_millis(20),
        thin_linear_timeouts: false,
    };

    /// Unsent bytes that the kernel may hold from the beginning: several milliseconds of a gigabit. The pump lowers it
    /// where a receiver is slow.
    pub const NOTSENT_LOWAT: Bytes = Bytes(1024 * 1024);

    /// The settings of sockets before connect or listen. Not `rto_max`, which would shorten the time that a server has
    /// for its answer to SYN.
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

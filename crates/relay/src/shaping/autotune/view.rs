//! What `ekiden status` shows of a tuned section.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ekiden_sys::route::Routes;
use ekiden_sys::tuned::tcp_timers;
use serde::Serialize;

/// What is in force, as the kernel has it now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuningView {
    /// Lower bound of what the retransmission timeout has beyond the round trip.
    pub rto_min_seconds: Option<f64>,
    /// Upper bound of the retransmission timeout.
    pub rto_max_seconds: Option<f64>,
    /// The retransmission timeout.
    pub rto_seconds: Option<f64>,
    /// Longest delay of acknowledgements.
    pub delack_max_seconds: Option<f64>,
    /// Unsent bytes that the kernel may hold; 0 for the host's default.
    pub notsent_lowat: Option<u32>,
    /// Whether timeouts of few segments are not doubled.
    pub thin_linear_timeouts: Option<bool>,
    /// Most plaintext of a record, in bytes, where the session is encrypted.
    pub record: Option<usize>,
    /// The lower bound that the route demands, which wins over the socket's.
    pub route_rto_min_seconds: Option<f64>,
    /// Options that this kernel has refused, and what it said.
    pub refused: Vec<String>,
}

impl TuningView {
    /// That of `socket`.
    pub fn from_socket(
        socket: BorrowedFd<'_>,
        record: Option<usize>,
        routes: Option<&Routes>,
        refused: Vec<String>,
    ) -> Self {
        let now = tcp_timers(socket);
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        Self {
            rto_min_seconds: seconds(now.rto_min),
            rto_max_seconds: seconds(now.rto_max),
            rto_seconds: seconds(now.rto),
            delack_max_seconds: seconds(now.delack_max),
            notsent_lowat: now.notsent_lowat,
            thin_linear_timeouts: now.thin_linear_timeouts,
            record,
            route_rto_min_seconds: seconds(routes.and_then(|routes| routes.locked_rto_min(socket).ok().flatten())),
            refused,
        }
    }
}

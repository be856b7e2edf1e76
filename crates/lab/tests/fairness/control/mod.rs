//! Models of congestion controls, based on their papers and RFCs. Windows are in packets, times in seconds.

mod bbr;
mod ctcp;
mod cubic;
mod reno;

pub use bbr::Bbr;
pub use ctcp::Ctcp;
pub use cubic::Cubic;
pub use reno::Reno;

/// The measurements of an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub struct AckSample {
    /// Time at which the acknowledgement arrives.
    pub now: f64,
    /// Round-trip time of the packet and its acknowledgement.
    pub rtt: f64,
    /// Whether the acknowledgement ends a round: its packet was sent after the end of the previous round.
    pub round: bool,
    /// Packets delivered per second, from the sending of the packet until now.
    pub rate: f64,
    /// Packets in flight now.
    pub in_flight: f64,
}

/// The window and pacing of a sender.
pub trait CongestionControl {
    /// Handles the delivery of a packet. During recovery, only called if [`ignores_loss`](Self::ignores_loss).
    fn on_ack(&mut self, ack: &AckSample);

    /// Handles the first loss or congestion mark outside of recovery, which starts a recovery. Never called if
    /// [`ignores_loss`](Self::ignores_loss).
    fn on_loss(&mut self, now: f64);

    /// Handles an expired retransmission timer: all packets in flight count as lost.
    fn on_timeout(&mut self, now: f64);

    /// The number of packets that may be in flight.
    fn window(&self) -> f64;

    /// The pacing rate in packets per second; None without pacing.
    fn pacing(&self) -> Option<f64> {
        None
    }

    /// Whether losses start no recovery, so that [`on_ack`](Self::on_ack) is called for every acknowledgement.
    fn ignores_loss(&self) -> bool {
        false
    }
}

/// The kind of a congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Reno,
    Cubic,
    Ctcp,
    Bbr,
}

impl Algorithm {
    /// Returns the congestion control of a new connection.
    pub fn start(self) -> Box<dyn CongestionControl> {
        match self {
            Self::Reno => Box::new(Reno::new()),
            Self::Cubic => Box::new(Cubic::new()),
            Self::Ctcp => Box::new(Ctcp::new()),
            Self::Bbr => Box::new(Bbr::new()),
        }
    }
}

/// The window of a new connection (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

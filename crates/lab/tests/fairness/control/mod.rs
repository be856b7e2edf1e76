//! Congestion controls by their papers, driven by acknowledgements. Windows are in packets, times in seconds.

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
    /// Time of its arrival.
    pub now: f64,
    /// Round-trip time of the packet and its acknowledgement.
    pub rtt: f64,
    /// Whether it ends a round: it acknowledges a packet sent after the end of the previous round.
    pub round: bool,
    /// Packets delivered per second, from the sending of the packet until now.
    pub rate: f64,
    /// Packets in flight now.
    pub in_flight: f64,
}

/// The window and pacing of a sender.
pub trait CongestionControl {
    /// A packet was delivered, outside of recovery, or in it if [`ignores_loss`](Self::ignores_loss).
    fn on_ack(&mut self, ack: &AckSample);

    /// Packets were lost, for the first time in this round.
    fn on_loss(&mut self, now: f64);

    /// The retransmission timer expired; all packets in flight count as lost.
    fn on_timeout(&mut self, now: f64);

    /// The number of packets that may be in flight.
    fn window(&self) -> f64;

    /// Packets per second, None without pacing.
    fn pacing(&self) -> Option<f64> {
        None
    }

    /// Whether it has no recovery of its own and sees every acknowledgement.
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
    /// The state of a new connection.
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

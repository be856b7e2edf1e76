//! Congestion controls as their papers have them, driven by acknowledgements. Windows are in packets, times in seconds.

mod bbr;
mod ctcp;
mod cubic;
mod reno;

pub use bbr::Bbr;
pub use ctcp::Ctcp;
pub use cubic::Cubic;
pub use reno::Reno;

/// What a sender learns from an acknowledgement.
#[derive(Debug, Clone, Copy)]
pub struct AckSample {
    /// When it came.
    pub now: f64,
    /// How long the packet and its acknowledgement took.
    pub rtt: f64,
    /// Whether a round has ended with it: the first packet of the round before was acknowledged.
    pub round: bool,
    /// Packets delivered in a second, from when the packet was sent until now.
    pub rate: f64,
    /// Packets that are under way now.
    pub in_flight: f64,
}

/// A congestion control.
pub trait CongestionControl {
    /// A packet was delivered, outside of recovery, or in it if [`ignores_loss`](Self::ignores_loss).
    fn on_ack(&mut self, ack: &AckSample);

    /// Packets were lost, for the first time in this round.
    fn on_loss(&mut self, now: f64);

    /// Nothing came back for so long that everything is taken for lost.
    fn on_timeout(&mut self, now: f64);

    /// How many packets may be under way.
    fn window(&self) -> f64;

    /// Packets in a second, if they are paced.
    fn pacing(&self) -> Option<f64> {
        None
    }

    /// Whether it has no recovery of its own and sees every acknowledgement.
    fn ignores_loss(&self) -> bool {
        false
    }
}

/// Which congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Reno,
    Cubic,
    Ctcp,
    Bbr,
}

impl Algorithm {
    /// A new connection's.
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

//! Links, and the changes of their conditions at run time.

use ekiden_proto::units::Span;
use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;

/// Timing of packet output of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmulationMode {
    /// Every packet leaves separately, at its own time.
    Exact,
    /// Packets gather for [`FAST_QUANTUM`](crate::emulation::FAST_QUANTUM), and neighbours leave as one superpacket.
    Fast,
    /// Packets gather for [`COARSE_QUANTUM`](crate::emulation::COARSE_QUANTUM): a third of the CPU time where packets
    /// are 100 µs apart.
    Coarse,
    /// `exact` for directions with a rate within reach of the machine, `fast` for the others.
    #[default]
    Auto,
}

impl EmulationMode {
    /// Returns the mode for link checks. `coarse` makes equal decisions, but its gathering would hide their times.
    #[must_use]
    pub const fn for_check(self) -> Self {
        match self {
            Self::Coarse => Self::Auto,
            mode => mode,
        }
    }
}

/// A link between two hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Names of the hosts at the ends.
    pub ends: [String; 2],
    /// Maximum size of an IP packet, in bytes.
    pub mtu: u32,
    /// Conditions from `ends[0]` to `ends[1]`.
    pub forward: Conditions,
    /// Conditions from `ends[1]` to `ends[0]`.
    pub reverse: Conditions,
}

impl Link {
    /// Returns whether both directions are perfect. Such a link is a bare veth pair without the emulator.
    #[must_use]
    pub fn is_bare(&self) -> bool {
        let perfect = Conditions { count: self.forward.count, ..Conditions::default() };
        self.forward == perfect && Conditions { count: self.reverse.count, ..perfect } == self.reverse
    }
}

/// A change of conditions at run time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkEvent {
    /// Time since the start of the lab.
    pub at: Span,
    /// Name of the link.
    pub link: String,
    /// New conditions from `ends[0]` to `ends[1]`.
    pub forward: Conditions,
    /// New conditions from `ends[1]` to `ends[0]`.
    pub reverse: Conditions,
}

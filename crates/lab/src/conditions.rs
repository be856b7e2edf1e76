//! What one direction of a link is like, as a lab file says it: units are mandatory, unknown keys are errors.

use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

pub use crate::queue::auto::AutoSettings;
pub use crate::queue::codel::CodelSettings;
pub use crate::queue::fq_codel::FqCodelSettings;
pub use crate::queue::kind::{QueueKind, QueueLimit, SenderHosts};
pub use crate::queue::priority::{DynamicPrioritySettings, StaticPrioritySettings};
pub use crate::queue::red::RedSettings;
pub use crate::queue::tail_drop::TailDropSettings;

/// One direction of a link. Everything absent is perfect: no limit, no delay, no loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Whether anything passes at all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// The rate of the sender's own interface: spreads the bursts of segmentation offload before anything counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_rate: Option<Rate>,
    /// The rate of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// What the rates and the byte limits count.
    pub count: SizeAccounting,
    /// The queue in front of the line; without a `rate` nothing ever waits in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueKind>,
    /// Propagation delay, one way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// What is added to the delay, packet by packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// Loss that no queue causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Packets that others overtake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Packets that arrive twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Duplicate>,
}

/// What the rate and the byte limits count of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeAccounting {
    /// The IP packet.
    #[default]
    L3,
    /// The Ethernet frame without its checksum: 14 bytes more.
    L2,
    /// The time on an Ethernet wire, with preamble, checksum and gap: 38 bytes more than the IP packet.
    Wire,
}

impl SizeAccounting {
    /// What is added to the IP packet, in bytes.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        match self {
            Self::L3 => 0,
            Self::L2 => 14,
            Self::Wire => 38,
        }
    }
}

/// What is added to the delay of each packet, independently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Its law.
    pub distribution: Distribution,
    /// Its scale: the width of `uniform`, the standard deviation of `normal`, the mean of `exponential`.
    pub scale: Span,
    /// Whether a packet may overtake another. If not, a packet waits for those before it.
    #[serde(default)]
    pub reorder: bool,
}

/// The law of a jitter. None makes a packet faster than the delay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Between 0 and the scale.
    Uniform,
    /// The absolute value of a normal variable.
    Normal,
    /// Exponential.
    Exponential,
}

/// Loss that no queue causes: which packets, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Each with the same probability.
    Bernoulli {
        /// That probability.
        p: f64,
        /// Where.
        #[serde(default)]
        at: LossPosition,
    },
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963); every packet may change the state.
    GilbertElliott {
        /// Probability of going from good to bad.
        to_bad: f64,
        /// Probability of going from bad to good.
        to_good: f64,
        /// Probability of loss in the good state.
        #[serde(default)]
        p_good: f64,
        /// Probability of loss in the bad state.
        #[serde(default = "certain")]
        p_bad: f64,
        /// Where.
        #[serde(default)]
        at: LossPosition,
    },
    /// Exactly these, again and again: packets `lost` (counted from 0) of every `every`.
    Pattern {
        /// The length of the pattern, in packets.
        every: u64,
        /// Which of them are lost.
        lost: Vec<u64>,
        /// Where.
        #[serde(default)]
        at: LossPosition,
    },
}

impl Loss {
    /// Where it happens.
    #[must_use]
    pub const fn at(&self) -> LossPosition {
        match self {
            Self::Bernoulli { at, .. } | Self::GilbertElliott { at, .. } | Self::Pattern { at, .. } => *at,
        }
    }
}

/// Where loss happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossPosition {
    /// Before the queue: what is lost takes none of the rate.
    Ingress,
    /// Behind the line: what is lost has been paid for.
    #[default]
    Wire,
}

const fn certain() -> f64 {
    1.0
}

/// Packets that others overtake.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// The probability.
    pub p: f64,
    /// How much later than it should such a packet arrives.
    pub by: Span,
}

/// Packets that arrive twice.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// The probability.
    pub p: f64,
}

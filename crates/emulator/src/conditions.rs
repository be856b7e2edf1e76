//! Conditions of one direction of a link, as in a lab file. Units are mandatory; unknown keys are errors.

use ekiden_proto::units::{Rate, Span};
use serde::{Deserialize, Serialize};

pub use crate::queue::auto::AutoSettings;
pub use crate::queue::codel::CodelSettings;
pub use crate::queue::fq_codel::FqCodelSettings;
pub use crate::queue::kind::{QueueKind, QueueLimit, SenderHosts};
pub use crate::queue::priority::{DynamicPrioritySettings, StaticPrioritySettings};
pub use crate::queue::red::RedSettings;
pub use crate::queue::tail_drop::TailDropSettings;
use crate::trace::DeliveryTrace;

/// Conditions of one direction of a link. Without a key there is no limit, no delay and no loss.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Whether the link drops every packet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub down: bool,
    /// Rate of the sender's interface, which spreads the bursts of segmentation offload before the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_rate: Option<Rate>,
    /// Rate of the bottleneck line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Times at which the bottleneck line delivers packets, instead of a `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<DeliveryTrace>,
    /// Packet size to which rates and byte limits apply.
    pub count: SizeAccounting,
    /// Queue in front of the line. Without a `rate` it stays empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueKind>,
    /// Propagation delay in one direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Random delay added to each packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    /// Loss outside of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Random late packets, which others overtake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Random duplicates of packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Duplicate>,
}

impl Conditions {
    /// Returns the rate of the bottleneck line; with a trace, the mean rate of full-size packets.
    #[must_use]
    pub fn line_rate(&self) -> Option<Rate> {
        self.rate.or_else(|| self.trace.as_ref().map(DeliveryTrace::mean_rate))
    }
}

/// Packet size to which rates and byte limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeAccounting {
    /// The IP packet without link headers.
    #[default]
    L3,
    /// The Ethernet frame without its checksum: 14 bytes more than the IP packet.
    L2,
    /// The Ethernet frame with preamble, checksum and inter-frame gap: 38 bytes more than the IP packet.
    Wire,
}

impl SizeAccounting {
    /// Returns the bytes added to the size of the IP packet.
    #[must_use]
    pub const fn overhead(self) -> u32 {
        match self {
            Self::L3 => 0,
            Self::L2 => 14,
            Self::Wire => 38,
        }
    }
}

/// Random delay added to each packet, independent of other packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jitter {
    /// Distribution of the delay.
    pub distribution: Distribution,
    /// Width of `uniform`, standard deviation of `normal`, or mean of `exponential`.
    pub scale: Span,
    /// Whether packets may overtake each other. Otherwise a packet waits for those before it.
    #[serde(default)]
    pub reorder: bool,
}

/// Distribution of jitter. Values are never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Uniform between 0 and the scale.
    Uniform,
    /// Absolute value of a normal variable.
    Normal,
    /// Exponential with the scale as mean.
    Exponential,
}

/// Loss model outside of the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Loss {
    /// Independent loss with one probability.
    Bernoulli {
        /// Probability of loss of each packet.
        p: f64,
        /// Position of the loss.
        #[serde(default)]
        at: LossPosition,
    },
    /// Two states with a loss probability each (Gilbert 1960, Elliott 1963). Every packet may change the state.
    GilbertElliott {
        /// Probability of a change from good to bad.
        to_bad: f64,
        /// Probability of a change from bad to good.
        to_good: f64,
        /// Probability of loss in the good state.
        #[serde(default)]
        p_good: f64,
        /// Probability of loss in the bad state.
        #[serde(default = "certain")]
        p_bad: f64,
        /// Position of the loss.
        #[serde(default)]
        at: LossPosition,
    },
    /// Periodic loss: packets `lost` (counted from 0) of every `every` packets.
    Pattern {
        /// Length of the period, in packets.
        every: u64,
        /// Numbers of the lost packets in each period.
        lost: Vec<u64>,
        /// Position of the loss.
        #[serde(default)]
        at: LossPosition,
    },
}

impl Loss {
    /// Returns the position of the loss.
    #[must_use]
    pub const fn at(&self) -> LossPosition {
        match self {
            Self::Bernoulli { at, .. } | Self::GilbertElliott { at, .. } | Self::Pattern { at, .. } => *at,
        }
    }
}

/// Position of a loss model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossPosition {
    /// Before the queue: lost packets use no capacity of the line.
    Ingress,
    /// Behind the line: lost packets have used capacity of the line.
    #[default]
    Wire,
}

const fn certain() -> f64 {
    1.0
}

/// Random late packets, which others overtake.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability of a late packet.
    pub p: f64,
    /// Additional delay of a late packet.
    pub by: Span,
}

/// Random duplicates of packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Duplicate {
    /// Probability of a duplicate.
    pub p: f64,
}

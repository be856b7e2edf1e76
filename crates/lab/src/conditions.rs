//! What one direction of a link is like, as a lab file says it: units are mandatory, unknown keys are errors.

use std::fmt;
use std::str::FromStr;

use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

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
    pub count: Count,
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
pub enum Count {
    /// The IP packet.
    #[default]
    L3,
    /// The Ethernet frame without its checksum: 14 bytes more.
    L2,
    /// The time on an Ethernet wire, with preamble, checksum and gap: 38 bytes more than the IP packet.
    Wire,
}

impl Count {
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

/// How much a queue holds: `"64pkt"` or `"256KiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Packets of the wire, however large the superpackets are they came in.
    Packets(u64),
    /// Bytes as the link counts them.
    Bytes(u64),
}

impl FromStr for Limit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(packets) = text.strip_suffix("pkt") {
            return packets.trim().parse().map(Self::Packets).map_err(|_| format!(r#"{text:?} is not like "64pkt""#));
        }
        text.parse::<Bytes>()
            .map(|bytes| Self::Bytes(bytes.0))
            .map_err(|_| format!(r#"{text:?} is not a limit like "64pkt" or "256KiB""#))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}pkt"),
            Self::Bytes(bytes) => Bytes(*bytes).fmt(f),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A queue and its management.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum QueueKind {
    /// First in, first out; what does not fit is dropped.
    TailDrop {
        /// How much waits at most.
        limit: Limit,
    },
    /// Random early detection (Floyd, Jacobson 1993).
    Red(RedSettings),
    /// RED that drops the connections of known senders more (FIT2013).
    StaticPriority(StaticSettings),
    /// RED that drops the most frequent connection more (FIT2013).
    DynamicPriority(DynamicSettings),
    /// Controlled delay (RFC 8289).
    Codel(CodelSettings),
    /// Flow queueing with `CoDel` (RFC 8290).
    FqCodel(FqCodelSettings),
}

/// Settings of RED. Thresholds and limit are all in packets, or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedSettings {
    /// How much waits at most.
    pub limit: Limit,
    /// The average at which early drops begin.
    pub min: Limit,
    /// The average at which the drop probability is `p`.
    pub max: Limit,
    /// The drop probability at `max`.
    pub p: f64,
    /// The weight of a new sample in the average.
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// Whether the probability rises on from `p` to 1 between `max` and twice `max`, rather than jump to 1 at `max`.
    #[serde(default)]
    pub gentle: bool,
    /// Whether capable packets are marked where others would be dropped early.
    #[serde(default)]
    pub ecn: bool,
}

const fn default_wq() -> f64 {
    0.002
}

/// Settings of static priority drop. Thresholds and limit are all in packets, or all in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StaticSettings {
    /// How much waits at most.
    pub limit: Limit,
    /// See [`RedSettings::min`].
    pub min: Limit,
    /// See [`RedSettings::max`].
    pub max: Limit,
    /// The drop probability of the others at `max`.
    pub p: f64,
    /// See [`RedSettings::wq`].
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// See [`RedSettings::ecn`].
    #[serde(default)]
    pub ecn: bool,
    /// How many times as often the heavy are dropped.
    pub n: f64,
    /// Who they are: all connections of these hosts.
    pub heavy: Senders,
}

/// Settings of dynamic priority drop. Thresholds and limit are all in packets, or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicSettings {
    /// How much waits at most.
    pub limit: Limit,
    /// See [`RedSettings::min`].
    pub min: Limit,
    /// See [`RedSettings::max`].
    pub max: Limit,
    /// The drop probability of the others at `max`.
    pub p: f64,
    /// See [`RedSettings::wq`].
    #[serde(default = "default_wq")]
    pub wq: f64,
    /// See [`RedSettings::ecn`].
    #[serde(default)]
    pub ecn: bool,
    /// How many times as often the heavy connection is dropped.
    pub n: f64,
    /// Every so many packets one is recorded.
    pub rec_int: u32,
    /// Every so many packets the connection recorded most becomes the heavy one.
    pub sta_int: u32,
    /// So many records are kept.
    pub hist_len: u32,
}

impl StaticSettings {
    /// Those of the others.
    #[must_use]
    pub const fn red(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, heavy: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

impl DynamicSettings {
    /// Those of the others.
    #[must_use]
    pub const fn red(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, rec_int: _, sta_int: _, hist_len: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

/// Hosts that send.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Senders {
    /// Their names.
    pub hosts: Vec<String>,
    /// Their addresses ([`Packet::source`](crate::packet::Packet::source)): whoever reads a lab looks them up.
    #[serde(skip)]
    pub sources: Vec<u32>,
}

/// Settings of `CoDel` (RFC 8289 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelSettings {
    /// How much waits at most.
    pub limit: Limit,
    /// The standing delay that is acceptable.
    #[serde(default = "default_target")]
    pub target: Span,
    /// How long the delay may stay above it before drops begin.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Whether capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
}

/// Settings of FQ-CoDel (RFC 8290 section 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FqCodelSettings {
    /// How much waits at most, in all queues together.
    pub limit: Limit,
    /// See [`CodelSettings::target`].
    #[serde(default = "default_target")]
    pub target: Span,
    /// See [`CodelSettings::interval`].
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// See [`CodelSettings::ecn`].
    #[serde(default)]
    pub ecn: bool,
    /// How many queues there are.
    #[serde(default = "default_flows")]
    pub flows: u32,
    /// How much a queue may send in its turn.
    #[serde(default = "default_quantum")]
    pub quantum: Bytes,
}

const fn default_target() -> Span {
    Span(std::time::Duration::from_millis(5))
}
const fn default_interval() -> Span {
    Span(std::time::Duration::from_millis(100))
}
const fn default_flows() -> u32 {
    1024
}
const fn default_quantum() -> Bytes {
    Bytes(1514)
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
        at: LossAt,
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
        at: LossAt,
    },
    /// Exactly these, again and again: packets `lost` (counted from 0) of every `every`.
    Pattern {
        /// The length of the pattern, in packets.
        every: u64,
        /// Which of them are lost.
        lost: Vec<u64>,
        /// Where.
        #[serde(default)]
        at: LossAt,
    },
}

impl Loss {
    /// Where it happens.
    #[must_use]
    pub const fn at(&self) -> LossAt {
        match self {
            Self::Bernoulli { at, .. } | Self::GilbertElliott { at, .. } | Self::Pattern { at, .. } => *at,
        }
    }
}

/// Where loss happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossAt {
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

//! The queue in front of the line: its kinds, and their keys.

use std::fmt;
use std::str::FromStr;

use ekiden_proto::units::{Bytes, Span};
use serde::{Deserialize, Serialize};

/// How much a queue holds: `"64pkt"` or `"256KiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// Packets of the wire, however large the superpackets are they came in.
    Packets(u64),
    /// Bytes as the link counts them.
    Bytes(u64),
}

impl FromStr for QueueLimit {
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

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}pkt"),
            Self::Bytes(bytes) => Bytes(*bytes).fmt(f),
        }
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
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
        limit: QueueLimit,
    },
    /// Random early detection (Floyd, Jacobson 1993).
    Red(RedSettings),
    /// RED that drops the connections of known senders more (FIT2013).
    StaticPriority(StaticPrioritySettings),
    /// RED that drops the most frequent connection more (FIT2013).
    DynamicPriority(DynamicPrioritySettings),
    /// One queue that hits the connections that are ahead of the others.
    Auto(AutoSettings),
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
    pub limit: QueueLimit,
    /// The average at which early drops begin.
    pub min: QueueLimit,
    /// The average at which the drop probability is `p`.
    pub max: QueueLimit,
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
pub struct StaticPrioritySettings {
    /// How much waits at most.
    pub limit: QueueLimit,
    /// See [`RedSettings::min`].
    pub min: QueueLimit,
    /// See [`RedSettings::max`].
    pub max: QueueLimit,
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
    pub heavy: SenderHosts,
}

/// Settings of dynamic priority drop. Thresholds and limit are all in packets, or all in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DynamicPrioritySettings {
    /// How much waits at most.
    pub limit: QueueLimit,
    /// See [`RedSettings::min`].
    pub min: QueueLimit,
    /// See [`RedSettings::max`].
    pub max: QueueLimit,
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

impl StaticPrioritySettings {
    /// Those of the others.
    #[must_use]
    pub const fn red_settings(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, heavy: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

impl DynamicPrioritySettings {
    /// Those of the others.
    #[must_use]
    pub const fn red_settings(&self) -> RedSettings {
        let Self { limit, min, max, p, wq, ecn, n: _, rec_int: _, sta_int: _, hist_len: _ } = *self;
        RedSettings { limit, min, max, p, wq, gentle: false, ecn }
    }
}

/// Hosts that send.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SenderHosts {
    /// Their names.
    pub hosts: Vec<String>,
    /// Their addresses ([`Packet::source`](crate::packet::Packet::source)): whoever reads a lab looks them up.
    #[serde(skip)]
    pub sources: Vec<u32>,
}

/// Settings of the queue that shares by hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoSettings {
    /// How much waits at most.
    pub limit: QueueLimit,
    /// The waiting time that is always acceptable.
    #[serde(default = "default_target")]
    pub target: Span,
    /// Whether capable packets are marked instead of dropped.
    #[serde(default)]
    pub ecn: bool,
}

/// Settings of `CoDel` (RFC 8289 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodelSettings {
    /// How much waits at most.
    pub limit: QueueLimit,
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
    pub limit: QueueLimit,
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

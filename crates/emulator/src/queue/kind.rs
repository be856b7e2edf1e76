//! The table of queues, and the keys they share in a lab file.
//!
//! A new queue needs its file, with an implementation of `QueueSettings` and its specification; a row of
//! `queue_kinds!` below; its rows of tests, with the model in `ekiden_lab::reference`; and its documentation.

use std::fmt;
use std::str::FromStr;

use ekiden_proto::units::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use crate::queue::Queue;
use crate::queue::auto::AutoSettings;
use crate::queue::codel::CodelSettings;
use crate::queue::fq_codel::FqCodelSettings;
use crate::queue::priority::{DynamicPrioritySettings, StaticPrioritySettings};
use crate::queue::red::RedSettings;
use crate::queue::tail_drop::TailDropSettings;
use crate::rng::SeededRng;

/// Settings of one kind of queue: the keys of its table in a lab file.
pub(super) trait QueueSettings {
    /// Returns the capacity of the queue.
    fn limit(&self) -> QueueLimit;

    /// Reports settings out of range, except for a limit of 0.
    fn validate(&self, _errors: &mut QueueErrors) {}

    /// Creates an empty queue in front of a line of `rate`. `rng` is for the queue's random decisions.
    fn build(&self, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue>;

    /// Returns the name of the check that compares the queue with its reference model.
    fn replay_check(&self) -> &'static str;

    /// Returns the hosts named in the settings, to resolve their addresses.
    fn sender_hosts_mut(&mut self) -> Option<&mut SenderHosts> {
        None
    }
}

macro_rules! comma_separated {
    ($first:literal $(, $rest:literal)*) => { concat!($first $(, ", ", $rest)*) };
}

macro_rules! queue_kinds {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($settings:ty),)+) => {
        /// A queue discipline and its settings. The key `kind` selects the discipline.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind")]
        pub enum QueueKind {
            $($(#[$doc])* #[serde(rename = $name)] $variant($settings),)+
        }

        impl QueueKind {
            /// Syntax of a queue in a lab file, for error messages.
            pub const EXPECTED: &str = concat!(
                r#"a table like { kind = "tail-drop", limit = "64pkt" }; kinds are "#,
                comma_separated!($($name),+)
            );

            /// Returns the value of the key `kind`.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            fn settings(&self) -> &dyn QueueSettings {
                match self { $(Self::$variant(settings) => settings,)+ }
            }

            fn settings_mut(&mut self) -> &mut dyn QueueSettings {
                match self { $(Self::$variant(settings) => settings,)+ }
            }
        }
    };
}

queue_kinds! {
    /// A FIFO queue that drops packets beyond its limit.
    "tail-drop" => TailDrop(TailDropSettings),
    /// Random early detection (Floyd, Jacobson 1993).
    "red" => Red(RedSettings),
    /// RED with a higher drop probability for configured senders (FIT2013).
    "static-priority" => StaticPriority(StaticPrioritySettings),
    /// RED with a higher drop probability for the most frequent connection (FIT2013).
    "dynamic-priority" => DynamicPriority(DynamicPrioritySettings),
    /// A FIFO queue that drops or marks packets of connections above their fair share.
    "auto" => Auto(AutoSettings),
    /// Controlled delay (RFC 8289).
    "codel" => Codel(CodelSettings),
    /// Flow queueing with `CoDel` (RFC 8290).
    "fq-codel" => FqCodel(FqCodelSettings),
}

impl QueueKind {
    /// Returns the capacity of the queue.
    #[must_use]
    pub fn limit(&self) -> QueueLimit {
        self.settings().limit()
    }

    /// Returns the settings that are out of range.
    pub fn validate(&self) -> Vec<QueueError> {
        let mut errors = QueueErrors::default();
        self.settings().validate(&mut errors);
        if self.limit().amount() == 0 {
            errors.report("limit", "expected room for at least one packet");
        }
        errors.0
    }

    /// Creates an empty queue in front of a line of `rate`. `rng` is for the queue's random decisions.
    pub(super) fn build(&self, rate: Option<Rate>, rng: SeededRng) -> Box<dyn Queue> {
        self.settings().build(rate, rng)
    }

    /// Returns the name of the check that compares the queue with its reference model.
    #[must_use]
    pub fn replay_check(&self) -> &'static str {
        self.settings().replay_check()
    }

    /// Returns the hosts named in the settings, to resolve their addresses.
    pub fn sender_hosts_mut(&mut self) -> Option<&mut SenderHosts> {
        self.settings_mut().sender_hosts_mut()
    }
}

/// A setting that is out of range.
pub struct QueueError {
    /// Key in the table of the queue; `None` for the table as a whole.
    pub key: Option<&'static str>,
    /// Description of the expected value.
    pub problem: String,
}

/// Collects the settings that are out of range.
#[derive(Default)]
pub(super) struct QueueErrors(Vec<QueueError>);

impl QueueErrors {
    /// Reports the value of a key.
    pub(super) fn report(&mut self, key: &'static str, problem: impl Into<String>) {
        self.0.push(QueueError { key: Some(key), problem: problem.into() });
    }

    /// Reports a combination of keys.
    pub(super) fn report_table(&mut self, problem: impl Into<String>) {
        self.0.push(QueueError { key: None, problem: problem.into() });
    }

    /// Reports a value of 0.
    pub(super) fn require_positive(&mut self, key: &'static str, value: u64) {
        if value == 0 {
            self.report(key, "expected at least 1");
        }
    }
}

/// Capacity of a queue: `"64pkt"` or `"256KiB"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueLimit {
    /// Packets on the wire. A superpacket counts as its segments.
    Packets(u64),
    /// Bytes, in the link's [`SizeAccounting`](crate::conditions::SizeAccounting).
    Bytes(u64),
}

impl QueueLimit {
    /// Returns the number without the unit.
    pub(super) const fn amount(self) -> u64 {
        match self {
            Self::Packets(amount) | Self::Bytes(amount) => amount,
        }
    }
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

/// Sending hosts, by name in a lab file and by address in a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SenderHosts {
    /// Host names of the lab file.
    pub hosts: Vec<String>,
    /// All addresses of the hosts ([`Packet::source`](crate::packet::Packet::source)). The parser of lab files fills
    /// them in.
    #[serde(skip)]
    pub sources: Vec<u32>,
}

//! How much waits, as people write it.

use std::fmt;
use std::str::FromStr;

use ekiden_proto::units::Bytes;
use serde::{Deserialize, Serialize};

/// An amount of what waits: `64pkt` or `256KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum QueueAmount {
    /// Packets; where nothing but bytes is counted, of 1500 bytes each.
    Packets(u64),
    /// Bytes.
    Bytes(u64),
}

impl QueueAmount {
    /// Without the unit.
    pub(super) const fn value(self) -> u64 {
        match self {
            Self::Packets(number) | Self::Bytes(number) => number,
        }
    }
}

impl FromStr for QueueAmount {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let read = match text.strip_suffix("pkt") {
            Some(packets) => packets.trim().parse().ok().map(Self::Packets),
            None => text.parse::<Bytes>().ok().map(|bytes| Self::Bytes(bytes.0)),
        };
        read.ok_or_else(|| format!(r#"{text:?} is not an amount like "64pkt" or "256KiB""#))
    }
}

impl fmt::Display for QueueAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets}pkt"),
            Self::Bytes(bytes) => Bytes(*bytes).fmt(f),
        }
    }
}

impl From<QueueAmount> for String {
    fn from(amount: QueueAmount) -> Self {
        amount.to_string()
    }
}

impl TryFrom<String> for QueueAmount {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;

    #[test]
    fn amounts_read_and_write() {
        for text in ["64pkt", "256KiB", "1B"] {
            assert_eq!(text.parse::<QueueAmount>().unwrap().to_string(), text);
        }
        for text in ["64", "pkt", "-1pkt", "", "1.5pkt"] {
            assert!(text.parse::<QueueAmount>().is_err(), "{text}");
        }
    }
}

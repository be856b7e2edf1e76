//! Settings of queue management, validated, with every default; queue sizes are parsed from text.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use ekiden_proto::aqm::priority::MAX_SENDERS;
use ekiden_proto::aqm::{MAX_LEVEL, QueueLimit, history, red};
use ekiden_proto::units::{Bytes, Rate, Span};
use serde::{Deserialize, Serialize};

use super::Error;

/// The counted queue drains at this part of the configured rate, so that it fills before a real one does.
const VIRTUAL_RATE_PERCENT: u64 = 98;

/// How long packets wait when the average is at `min`, `max` and the limit, where these are not set, in milliseconds.
const DEFAULT_WAIT_MS: [u64; 3] = [10, 30, 200];

/// No default threshold is below so many bytes: two large superpackets.
const MIN_THRESHOLD: u64 = 2 * 65_536;

/// The waiting time that `auto` finds acceptable in any case, where that is not set.
pub const DEFAULT_TARGET: Span = Span(Duration::from_millis(5));

/// Slots of the table of connections, where that is not set.
pub const DEFAULT_TABLE: u32 = 65_536;

/// The longest delay that is accepted as a target.
const MAX_TARGET: Duration = Duration::from_secs(10);

/// How many slots there may be: from one set to 1 GiB of them.
const TABLE_RANGE: [u32; 2] = [64, 1 << 24];

/// Which connections are dropped or marked, and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum AqmMode {
    /// RED: all connections alike.
    Red,
    /// Known senders more often than others.
    Static {
        /// The addresses of the known senders.
        heavy: Vec<IpAddr>,
    },
    /// The connection that is the most frequent in a sample more often than others.
    Dynamic {
        /// Every so many packets one is recorded.
        rec_int: u32,
        /// Every so many packets the heavy connection is determined.
        sta_int: u32,
        /// How many are remembered.
        hist_len: u32,
    },
    /// Connections above their share, the more often the less they respond.
    Auto {
        /// A waiting time that is always acceptable.
        target: Span,
    },
}

/// The settings of the program at one interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AqmSettings {
    /// The rate of the line.
    pub rate: Rate,
    /// The drop policy and its own settings.
    #[serde(flatten)]
    pub mode: AqmMode,
    /// Whether the real backlog is used instead of the virtual queue.
    pub backlog: bool,
    /// How much waits at most.
    pub limit: QueueAmount,
    /// The average at which hits begin.
    pub min: QueueAmount,
    /// The average at which their probability is `p`.
    pub max: QueueAmount,
    /// The probability of a drop or mark where the average is `max`, from 0 to 1.
    pub p: f64,
    /// The weight of a new sample in the average.
    pub wq: f64,
    /// How many times as often the heavy are hit.
    pub n: f64,
    /// Whether capable packets are marked instead of dropped.
    pub ecn: bool,
    /// Slots of the table of connections.
    pub table: u32,
}

impl AqmSettings {
    /// For a line of this rate, all else as it is by default.
    #[must_use]
    pub fn new(rate: Rate, mode: AqmMode) -> Self {
        let wait = |ms: u64| (rate.bytes_per_second() / 1000).saturating_mul(ms);
        let [min, max, limit] = DEFAULT_WAIT_MS.map(wait);
        let min = min.max(MIN_THRESHOLD);
        let max = max.max(3 * min);
        Self {
            rate,
            mode,
            backlog: false,
            limit: QueueAmount::Bytes(limit.max(4 * max).min(MAX_LEVEL)),
            min: QueueAmount::Bytes(min.min(MAX_LEVEL - 2)),
            max: QueueAmount::Bytes(max.min(MAX_LEVEL - 1)),
            p: 0.1,
            wq: 0.002,
            n: 10.0,
            ecn: true,
            table: DEFAULT_TABLE,
        }
    }

    /// Checks that the values are in range and fit each other.
    ///
    /// # Errors
    /// All mistakes, each with the possible values.
    pub fn check(&self) -> Result<(), Error> {
        let mistakes: Vec<&str> = [self.check_thresholds(), self.check_law(), self.check_mode(), self.check_table()]
            .into_iter()
            .flatten()
            .collect();
        if mistakes.is_empty() { Ok(()) } else { Err(Error::Settings(mistakes.join("\n"))) }
    }

    fn check_thresholds(&self) -> Option<&'static str> {
        let unit = |amount: QueueAmount| matches!(amount, QueueAmount::Bytes(_));
        let [limit, min, max] = [self.limit, self.min, self.max];
        if unit(min) != unit(limit) || unit(max) != unit(limit) {
            return Some("--limit, --min and --max: all in packets (64pkt), or all in bytes (256KiB)");
        }
        if min.value() >= max.value() {
            return Some("--min: must be less than --max");
        }
        if limit.value() == 0 || limit.value() > MAX_LEVEL {
            return Some("--limit: from 1pkt or 1B to 512GiB");
        }
        (max.value() > limit.value()).then_some("--max: at most --limit; the backlog never exceeds --limit")
    }

    fn check_law(&self) -> Option<&'static str> {
        if !(self.p > 0.0 && self.p <= 1.0) {
            return Some("--p: more than 0, and at most 1");
        }
        if !(self.wq >= 1.0 / f64::from(1 << 24) && self.wq <= 1.0) {
            return Some("--wq: from 0.0000001 to 1 (1: the current backlog, not an average)");
        }
        (!(1.0..=10_000.0).contains(&self.n)).then_some("--n: from 1 to 10000")
    }

    fn check_mode(&self) -> Option<&'static str> {
        match &self.mode {
            AqmMode::Static { heavy } if heavy.is_empty() || heavy.len() > MAX_SENDERS => {
                Some("--heavy: --mode static needs the addresses of the heavy senders, 1 to 16 of them")
            }
            AqmMode::Dynamic { rec_int, sta_int, .. } if *rec_int == 0 || *sta_int == 0 => {
                Some("--rec-int, --sta-int: at least 1")
            }
            AqmMode::Dynamic { hist_len, .. } if !(1..=history::MAX_HISTORY).contains(&(*hist_len as usize)) => {
                Some("--hist-len: from 1 to 1024")
            }
            AqmMode::Auto { target } if target.0.is_zero() || target.0 > MAX_TARGET => {
                Some("--target: more than 0, and at most 10s")
            }
            _ => None,
        }
    }

    fn check_table(&self) -> Option<&'static str> {
        let [least, most] = TABLE_RANGE;
        let fits = self.table.is_power_of_two() && (least..=most).contains(&self.table);
        (!fits).then_some("--table: a power of two from 64 to 16777216")
    }

    /// The drain rate of the queue, in bits a second.
    #[must_use]
    pub fn drain_rate(&self) -> u64 {
        let rate = self.rate.bits_per_second();
        if self.backlog { rate } else { rate / 100 * VIRTUAL_RATE_PERCENT + rate % 100 * VIRTUAL_RATE_PERCENT / 100 }
    }

    /// The settings of the law that all modes begin with.
    #[must_use]
    pub fn red_config(&self) -> red::RedConfig {
        red::RedConfig {
            queue_limit: QueueLimit {
                limit: self.limit.value(),
                in_bytes: u64::from(matches!(self.limit, QueueAmount::Bytes(_))),
            },
            min: self.min.value(),
            max: self.max.value(),
            p: self.p,
            wq: self.wq,
            gentle: true,
            ecn: self.ecn,
            n: self.n,
        }
    }
}

/// A queue size: `64pkt` or `256KiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum QueueAmount {
    /// Packets; where nothing but bytes is counted, of 1500 bytes each.
    Packets(u64),
    /// A number of bytes.
    Bytes(u64),
}

impl QueueAmount {
    /// The number without its unit.
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

    fn settings(mode: AqmMode) -> AqmSettings {
        AqmSettings::new("100Mbit/s".parse().unwrap(), mode)
    }

    #[test]
    fn defaults_are_valid_at_every_rate() {
        for rate in ["8bit/s", "1kbit/s", "10Mbit/s", "100Mbit/s", "400Gbit/s", "18446744073Gbit/s"] {
            let settings = AqmSettings::new(rate.parse().unwrap(), AqmMode::Red);
            settings.check().unwrap_or_else(|error| panic!("{rate}: {error}: {settings:?}"));
        }
        assert_eq!(settings(AqmMode::Red).drain_rate(), 98_000_000);
    }

    #[test]
    fn invalid_settings_are_rejected_and_errors_name_the_option() {
        let dynamic = |rec_int, sta_int, hist_len| settings(AqmMode::Dynamic { rec_int, sta_int, hist_len });
        let one = settings(AqmMode::Red);
        for (wrong, key) in [
            (AqmSettings { min: one.max, ..one.clone() }, "--min"),
            (AqmSettings { min: QueueAmount::Packets(1), ..one.clone() }, "all in packets"),
            (AqmSettings { limit: QueueAmount::Bytes(0), ..one.clone() }, "--limit"),
            (AqmSettings { limit: QueueAmount::Bytes(u64::MAX), ..one.clone() }, "--limit"),
            (AqmSettings { limit: one.min, ..one.clone() }, "--max"),
            (AqmSettings { p: 0.0, ..one.clone() }, "--p"),
            (AqmSettings { p: 1.5, ..one.clone() }, "--p"),
            (AqmSettings { p: f64::NAN, ..one.clone() }, "--p"),
            (AqmSettings { wq: 0.0, ..one.clone() }, "--wq"),
            (AqmSettings { wq: 2.0, ..one.clone() }, "--wq"),
            (AqmSettings { n: 0.5, ..one.clone() }, "--n"),
            (AqmSettings { n: f64::INFINITY, ..one.clone() }, "--n"),
            (AqmSettings { table: 100, ..one.clone() }, "--table"),
            (AqmSettings { table: 0, ..one.clone() }, "--table"),
            (settings(AqmMode::Static { heavy: vec![] }), "--heavy"),
            (settings(AqmMode::Static { heavy: vec![[10, 0, 0, 1].into(); 17] }), "--heavy"),
            (settings(AqmMode::Auto { target: Span(Duration::ZERO) }), "--target"),
            (settings(AqmMode::Auto { target: Span(Duration::from_secs(11)) }), "--target"),
            (dynamic(0, 1, 1), "--rec-int"),
            (dynamic(1, 0, 1), "--sta-int"),
            (dynamic(1, 1, 0), "--hist-len"),
            (dynamic(1, 1, 1025), "--hist-len"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
        let both = AqmSettings { p: 2.0, table: 3, ..one };
        assert_eq!(both.check().unwrap_err().to_string().lines().count(), 2, "all errors are reported together");
    }

    #[test]
    fn queue_amounts_are_parsed_and_formatted() {
        for text in ["64pkt", "256KiB", "1B"] {
            assert_eq!(text.parse::<QueueAmount>().unwrap().to_string(), text);
        }
        for text in ["64", "pkt", "-1pkt", "", "1.5pkt"] {
            assert!(text.parse::<QueueAmount>().is_err(), "{text}");
        }
    }
}

//! The limits of a user or a listener: number of open sessions, rate, and quota of bytes for each day or month.

use std::fmt;

use ekiden_proto::units::{Bytes, Rate};

use super::reader::TableReader;
use super::value::{ConfigValue, PositiveCount, rate_from};

/// The limits of a user or a listener; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Maximum number of open sessions.
    pub sessions: Option<usize>,
    /// Rate of all sessions together in each direction, without the headers of packets.
    pub rate: Option<Rate>,
    /// Maximum number of bytes of all sessions together, in both directions.
    pub quota: Option<Quota>,
}

/// A maximum number of bytes for each day or month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of bytes, in both directions together.
    pub bytes: Bytes,
    /// The period after which the count restarts.
    pub period: QuotaPeriod,
}

/// The period of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaPeriod {
    /// A day in UTC.
    Day,
    /// A calendar month in UTC.
    Month,
}

impl QuotaPeriod {
    /// Returns the name of the period in the configuration and in `ekiden status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bytes, self.period.as_str())
    }
}

/// Reads the limits from the table of a user or a listener.
pub(super) fn read_limits(reader: &TableReader<'_>) -> AccountLimits {
    AccountLimits {
        sessions: reader.optional("sessions").map(|PositiveCount(count)| count),
        rate: reader.optional("rate").map(|RateLimit(rate)| rate),
        quota: reader.optional("quota"),
    }
}

impl ConfigValue for Quota {
    const EXPECTED: &'static str = r#"a size above zero for each day or month, like "10GiB/day" or "200GB/month""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let (bytes, period) = text.split_once('/').ok_or(Self::EXPECTED)?;
        let period = [QuotaPeriod::Day, QuotaPeriod::Month].into_iter().find(|known| known.as_str() == period.trim());
        let bytes = bytes.parse().ok().filter(|bytes: &Bytes| bytes.0 > 0);
        bytes.zip(period).map(|(bytes, period)| Self { bytes, period }).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        let (bytes, period) = text.split_once('/')?;
        let bytes = Bytes::suggestion(bytes).or_else(|| Some(bytes.parse::<Bytes>().ok()?.to_string()))?;
        let period = match period.trim().to_lowercase().as_str() {
            "d" | "day" | "days" => QuotaPeriod::Day,
            "m" | "mo" | "mon" | "month" | "months" => QuotaPeriod::Month,
            _ => return None,
        };
        Some(format!("{bytes}/{}", period.as_str()))
    }
}

/// The rate of an account, at least 8 kbit/s.
struct RateLimit(Rate);

impl ConfigValue for RateLimit {
    const EXPECTED: &'static str = r#"a rate from "8kbit/s" to "400Gbit/s", like "100Mbit/s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        rate_from(text, 8_000).map(Self).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Rate::suggestion(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_parsed_as_a_size_per_day_or_month() {
        for (text, bytes, shown) in [
            ("10GiB/day", 10 << 30, "10GiB/day"),
            ("1.5MiB / month", 1_572_864, "1536KiB/month"),
            ("1500B/day", 1500, "1500B/day"),
        ] {
            let quota = Quota::read(text).unwrap();
            assert_eq!((quota.bytes.0, quota.to_string().as_str()), (bytes, shown), "{text}");
        }
        for text in ["", "10GiB", "10/day", "10GiB/week", "0B/day", "10GiB/day/day", "-1GiB/day"] {
            assert!(Quota::read(text).is_err(), "{text:?}");
        }
        for (text, suggestion) in
            [("10G/d", Some("10GiB/day")), ("1GiB/months", Some("1GiB/month")), ("1GiB/week", None)]
        {
            assert_eq!(Quota::suggestion(text).as_deref(), suggestion, "{text}");
        }
    }
}

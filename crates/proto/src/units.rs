//! Quantities with units: `250ms`, `4MiB`, `200Mbit/s`. A number without a unit is rejected.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A rate in bits per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    bits_per_second: u64,
}

/// A span of time that is parsed and displayed like `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// A quantity that cannot be parsed; the text is the expected format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(&'static str);

const BYTES: UnitError = UnitError(r#"a size like "64KiB", "4MiB" or "1500B""#);
const RATE: UnitError = UnitError(r#"a rate like "200Mbit/s" or "1Gbit/s""#);
const SPAN: UnitError = UnitError(r#"a time like "250ms", "30s" or "5min", in whole microseconds"#);

/// Splits `1.5MiB` into a value in units of 1/1000 and the unit.
fn split(text: &str) -> Option<(u128, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if integer.is_empty() || fraction.len() > 3 || number.ends_with('.') {
        return None;
    }
    let integer: u64 = integer.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<3}").parse().ok()?;
    Some((u128::from(integer) * 1000 + u128::from(fraction), unit.trim_start_matches(' ')))
}

fn scale(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (thousandths, unit) = split(text.trim())?;
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    // Rounded down, "0.5us" would be 0.
    if factor == 1 && !thousandths.is_multiple_of(1000) {
        return None;
    }
    u64::try_from(thousandths * u128::from(factor) / 1000).ok()
}

/// Writes `value` with the largest unit that divides it.
fn write_exact(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, factor) = units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .unwrap_or(&units[units.len() - 1]);
    write!(f, "{}{name}", value / factor)
}

const BYTE_UNITS: &[(&str, u64)] = &[("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DECIMAL_BYTE_UNITS: &[(&str, u64)] = &[("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
const RATE_UNITS: &[(&str, u64)] = &[("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000), ("bit/s", 1)];
const SPAN_UNITS: &[(&str, u64)] =
    &[("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1000), ("us", 1)];

// Units of other programs, which ekiden rejects, and the unit and multiple that each probably means.
const OTHER_BYTE_UNITS: &[(&str, u64, &str)] = &[
    ("k", 1, "KiB"),
    ("kb", 1, "KiB"),
    ("kib", 1, "KiB"),
    ("m", 1, "MiB"),
    ("mb", 1, "MiB"),
    ("mib", 1, "MiB"),
    ("g", 1, "GiB"),
    ("gb", 1, "GiB"),
    ("gib", 1, "GiB"),
    ("b", 1, "B"),
    ("byte", 1, "B"),
    ("bytes", 1, "B"),
];
const OTHER_RATE_UNITS: &[(&str, u64, &str)] = &[
    ("k", 1, "kbit/s"),
    ("kbit", 1, "kbit/s"),
    ("kbits", 1, "kbit/s"),
    ("kbps", 1, "kbit/s"),
    ("kb/s", 1, "kbit/s"),
    ("kbit/s", 1, "kbit/s"),
    ("m", 1, "Mbit/s"),
    ("mbit", 1, "Mbit/s"),
    ("mbits", 1, "Mbit/s"),
    ("mbps", 1, "Mbit/s"),
    ("mb/s", 1, "Mbit/s"),
    ("mbit/s", 1, "Mbit/s"),
    ("g", 1, "Gbit/s"),
    ("gbit", 1, "Gbit/s"),
    ("gbits", 1, "Gbit/s"),
    ("gbps", 1, "Gbit/s"),
    ("gb/s", 1, "Gbit/s"),
    ("gbit/s", 1, "Gbit/s"),
    ("bps", 1, "bit/s"),
];
const OTHER_SPAN_UNITS: &[(&str, u64, &str)] = &[
    ("m", 1, "min"),
    ("mins", 1, "min"),
    ("minute", 1, "min"),
    ("minutes", 1, "min"),
    ("sec", 1, "s"),
    ("secs", 1, "s"),
    ("second", 1, "s"),
    ("seconds", 1, "s"),
    ("msec", 1, "ms"),
    ("msecs", 1, "ms"),
    ("millis", 1, "ms"),
    ("milliseconds", 1, "ms"),
    ("usec", 1, "us"),
    ("usecs", 1, "us"),
    ("µs", 1, "us"),
    ("μs", 1, "us"),
    ("hr", 1, "h"),
    ("hour", 1, "h"),
    ("hours", 1, "h"),
    ("d", 24, "h"),
    ("day", 24, "h"),
    ("days", 24, "h"),
];
/// Units of bytes, not bits: the capital B distinguishes them.
const BYTE_RATE_UNITS: &[(&str, u64, &str)] = &[
    ("kB/s", 8, "kbit/s"),
    ("KB/s", 8, "kbit/s"),
    ("kBps", 8, "kbit/s"),
    ("MB/s", 8, "Mbit/s"),
    ("MBps", 8, "Mbit/s"),
    ("GB/s", 8, "Gbit/s"),
    ("GBps", 8, "Gbit/s"),
];

/// Rewrites a text that has a rejected unit with the accepted unit.
fn suggestion<T: FromStr>(text: &str, units: &[(&str, u64, &str)]) -> Option<String> {
    let (thousandths, unit) = split(text.trim())?;
    let lower = unit.to_lowercase();
    let exact = units.iter().find(|(name, ..)| *name == unit);
    let (_, factor, unit) = exact.or_else(|| units.iter().find(|(name, ..)| *name == lower))?;
    let thousandths = thousandths * u128::from(*factor);
    let fraction = match thousandths % 1000 {
        0 => String::new(),
        rest => format!(".{rest:03}").trim_end_matches('0').to_owned(),
    };
    Some(format!("{}{fraction}{unit}", thousandths / 1000)).filter(|meant| meant.parse::<T>().is_ok())
}

impl Bytes {
    /// Returns the size that an invalid text probably means: `4MiB` for `4M`.
    #[must_use]
    pub fn suggestion(text: &str) -> Option<String> {
        suggestion::<Self>(text, OTHER_BYTE_UNITS)
    }
}

impl Span {
    /// Returns the time that an invalid text probably means: `5min` for `5m`.
    #[must_use]
    pub fn suggestion(text: &str) -> Option<String> {
        suggestion::<Self>(text, OTHER_SPAN_UNITS)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        scale(text, BYTE_UNITS).or_else(|| scale(text, DECIMAL_BYTE_UNITS)).map(Self).ok_or(BYTES)
    }
}

impl Rate {
    /// Creates a rate from a number of bits per second.
    #[must_use]
    pub const fn from_bits_per_second(bits_per_second: u64) -> Self {
        Self { bits_per_second }
    }

    /// The rate in bits per second.
    #[must_use]
    pub const fn bits_per_second(self) -> u64 {
        self.bits_per_second
    }

    /// The rate in bytes per second, as `SO_MAX_PACING_RATE` takes it.
    #[must_use]
    pub const fn bytes_per_second(self) -> u64 {
        self.bits_per_second / 8
    }
}

impl Rate {
    /// Returns the rate that an invalid text probably means: `100Mbit/s` for `100Mbps`.
    #[must_use]
    pub fn suggestion(text: &str) -> Option<String> {
        suggestion::<Self>(text, BYTE_RATE_UNITS).or_else(|| suggestion::<Self>(text, OTHER_RATE_UNITS))
    }
}

impl FromStr for Rate {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bits_per_second = scale(text, RATE_UNITS).filter(|bits| *bits >= 8).ok_or(RATE)?;
        Ok(Self { bits_per_second })
    }
}

impl FromStr for Span {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        scale(text, SPAN_UNITS).map(|us| Self(Duration::from_micros(us))).ok_or(SPAN)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, self.0, BYTE_UNITS)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, self.bits_per_second, RATE_UNITS)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_exact(f, u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX), SPAN_UNITS)
    }
}

serialize_as_text!(Bytes, Rate, Span);
deserialize_from_text!(Bytes, Rate, Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_and_display() {
        for (text, bytes, shown) in [
            ("0B", 0, "0B"),
            ("1500B", 1500, "1500B"),
            ("64KiB", 65536, "64KiB"),
            ("64 KiB", 65536, "64KiB"),
            ("1.5MiB", 1_572_864, "1536KiB"),
            ("2MB", 2_000_000, "2000000B"),
        ] {
            let read: Bytes = text.parse().unwrap();
            assert_eq!((read.0, read.to_string().as_str()), (bytes, shown), "{text}");
        }
        let rate: Rate = "200Mbit/s".parse().unwrap();
        assert_eq!((rate.bytes_per_second(), rate.to_string().as_str()), (25_000_000, "200Mbit/s"));
        for (text, shown) in [("250ms", "250ms"), ("1.5s", "1500ms"), ("90s", "90s"), ("2h", "2h"), ("8us", "8us")] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn quantities_in_other_units_get_a_suggestion() {
        for (text, meant) in [("5m", Some("5min")), ("1.5 Sec", Some("1.5s")), ("90d", Some("2160h")), ("5", None)] {
            assert_eq!(Span::suggestion(text).as_deref(), meant, "{text}");
            assert!(meant.is_none_or(|meant| meant.parse::<Span>().is_ok()), "{text}");
        }
        for (text, meant) in [("4M", Some("4MiB")), ("64kb", Some("64KiB")), ("9bytes", Some("9B")), ("4 big", None)] {
            assert_eq!(Bytes::suggestion(text).as_deref(), meant, "{text}");
            assert!(meant.is_none_or(|meant| meant.parse::<Bytes>().is_ok()), "{text}");
        }
        for (text, meant) in [("100Mbps", Some("100Mbit/s")), ("12.5MB/s", Some("100Mbit/s")), ("1G", Some("1Gbit/s"))]
        {
            assert_eq!(Rate::suggestion(text).as_deref(), meant, "{text}");
            assert!(meant.is_none_or(|meant| meant.parse::<Rate>().is_ok()), "{text}");
        }
    }

    #[test]
    fn unitless_and_broken_quantities_are_refused() {
        for text in ["", "5", "-1s", "1.s", ".5s", "1e3s", "1 week", "99999999999999999999s", "1.2345s", "s"] {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
        for text in ["64", "64k", "KiB", "64kib", "18446744073709551615GiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text:?}");
        }
        assert!("1Mbit".parse::<Rate>().is_err());
        assert!("1bit/s".parse::<Rate>().is_err(), "less than a byte a second");
    }

    /// Regression test: a fraction of the smallest unit was rounded down, so "0.5us" was 0.
    #[test]
    fn fractions_of_the_smallest_unit_are_refused() {
        for text in ["0.5us", "12.5us", "0.001 us"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        assert!("1500.5B".parse::<Bytes>().is_err());
        assert!("9600.5bit/s".parse::<Rate>().is_err());
        assert_eq!("12.0us".parse::<Span>(), Ok(Span(Duration::from_micros(12))));
        assert_eq!("0.001ms".parse::<Span>(), Ok(Span(Duration::from_micros(1))));
        assert_eq!("0.001KiB".parse::<Bytes>(), Ok(Bytes(1)), "a multiple of the smallest unit is rounded down");
        assert_eq!([Bytes::suggestion("1.5byte"), Span::suggestion("1.5usec")], [None, None]);
    }
}

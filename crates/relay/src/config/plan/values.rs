//! The option types of a plan.

use ekiden_proto::path::model::CongestionControl;
use ekiden_proto::path::plan::Roles;
use ekiden_proto::units::{Bytes, Rate, Span};
use std::time::Duration;

use crate::config::value::{ConfigValue, TomlType};

/// A round-trip time: known, or to be measured.
pub(super) enum RttValue {
    Known(Duration),
    Measured,
}

impl ConfigValue for RttValue {
    const EXPECTED: &'static str = r#"a time above zero like "31.8ms", or "measured""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        if text == "measured" {
            return Ok(Self::Measured);
        }
        let known = text.parse::<Span>().ok().filter(|span| !span.0.is_zero());
        known.map(|span| Self::Known(span.0)).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Span::suggestion(text)
    }
}

/// A role of a site, as a function that sets it.
pub(super) struct RoleValue(pub fn(&mut Roles));

impl ConfigValue for RoleValue {
    const EXPECTED: &'static str =
        r#""client", "server", "relay" (a relay runs there) or "possible" (a relay could run there)"#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "client" => Ok(Self(|roles| roles.client = true)),
            "server" => Ok(Self(|roles| roles.server = true)),
            "relay" => Ok(Self(|roles| roles.relay = true)),
            "possible" => Ok(Self(|roles| roles.possible = true)),
            _ => Err(Self::EXPECTED),
        }
    }
}

/// A congestion control that the model knows.
pub(super) struct CongestionName(pub CongestionControl);

impl ConfigValue for CongestionName {
    const EXPECTED: &'static str = r#""reno", "cubic", "ctcp" or "bbr""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        match text {
            "reno" | "cubic" | "ctcp" | "bbr" => Ok(Self(CongestionControl::from_name(text))),
            _ => Err(Self::EXPECTED),
        }
    }
}

/// The size of an object, in bytes.
pub(super) struct ObjectSize(pub u64);

impl ConfigValue for ObjectSize {
    const EXPECTED: &'static str = r#"a size from "1B" to "1024GiB" like "10kB" or "8MiB""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        let size = text.parse::<Bytes>().ok().filter(|size| (1..=1 << 40).contains(&size.0));
        size.map(|size| Self(size.0)).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Bytes::suggestion(text)
    }
}

/// Packet loss, as a share of packets.
pub(super) struct LossRatio(pub f64);

impl ConfigValue for LossRatio {
    const EXPECTED: &'static str = r#"a share of packets from 0 to below 0.5, like "0.1%" or 0.001"#;
    const TOML_TYPE: TomlType = TomlType::Any;
    fn read(text: &str) -> Result<Self, &'static str> {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
            None => text.parse(),
        };
        share.ok().filter(|share| (0.0..0.5).contains(share)).map(Self).ok_or(Self::EXPECTED)
    }
}

/// Latitude or longitude, in degrees.
pub(super) struct Degrees(pub f64);

impl ConfigValue for Degrees {
    const EXPECTED: &'static str = "a number of degrees from -180 to 180, like 139.77";
    const TOML_TYPE: TomlType = TomlType::Decimal;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|degrees: &f64| degrees.abs() <= 180.0).map(Self).ok_or(Self::EXPECTED)
    }
}

/// The relative weight of traffic.
pub(super) struct TrafficWeight(pub f64);

impl ConfigValue for TrafficWeight {
    const EXPECTED: &'static str = "a number above zero, like 1 or 2.5";
    const TOML_TYPE: TomlType = TomlType::Decimal;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|weight: &f64| *weight > 0.0 && *weight < 1e9).map(Self).ok_or(Self::EXPECTED)
    }
}

/// The round-trip time as a multiple of that of light in fibre.
pub(super) struct InflationFactor(pub f64);

impl ConfigValue for InflationFactor {
    const EXPECTED: &'static str = "a number from 1 to 20: the round-trip time as a multiple of that of light in fibre";
    const TOML_TYPE: TomlType = TomlType::Decimal;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|factor| (1.0..=20.0).contains(factor)).map(Self).ok_or(Self::EXPECTED)
    }
}

impl ConfigValue for Rate {
    const EXPECTED: &'static str = r#"a rate like "200Mbit/s" or "1Gbit/s""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().map_err(|_| Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Self::suggestion(text)
    }
}

impl ConfigValue for Bytes {
    const EXPECTED: &'static str = r#"a size above zero like "64KiB" or "4MiB""#;
    fn read(text: &str) -> Result<Self, &'static str> {
        text.parse().ok().filter(|bytes: &Self| bytes.0 > 0).ok_or(Self::EXPECTED)
    }
    fn suggestion(text: &str) -> Option<String> {
        Self::suggestion(text)
    }
}

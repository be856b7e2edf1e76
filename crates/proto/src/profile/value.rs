//! The types of settings: parsing of values from the text of the configuration, and checks against bounds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use crate::units::{Bytes, Rate, Span};

/// The type of a setting without bounds.
pub(super) trait UnboundedValue: FromStr {
    /// The expected format, for error messages.
    const EXPECTED: &'static str;

    /// Whether a setting can have this value.
    fn is_valid(&self) -> bool {
        true
    }
}

/// The type of a setting with bounds.
pub(super) trait BoundedValue: FromStr + PartialOrd {
    /// The noun before the bounds, for error messages.
    const NOUN: &'static str;

    /// Whether the value is a multiple of `step`.
    fn is_multiple_of(&self, _step: &Self) -> bool {
        true
    }

    /// The value that an invalid text probably means.
    fn suggestion(_text: &str) -> Option<String> {
        None
    }
}

/// Reads a value without bounds.
///
/// # Errors
/// The expected format.
pub(super) fn read<T: UnboundedValue>(text: &str) -> Result<T, String> {
    text.parse().ok().filter(T::is_valid).ok_or_else(|| T::EXPECTED.to_owned())
}

/// Reads a value between the lower and the upper bound, both included, and a multiple of the step if `steps` has one.
/// Bounds and steps are the literals of the table.
///
/// # Errors
/// The expected format.
pub(super) fn read_within<T: BoundedValue>(text: &str, bounds: [&str; 2], steps: &[&str]) -> Result<T, String> {
    let of_table =
        |literal: &str| literal.trim_matches('"').parse::<T>().ok().expect("invariant: literals of the table parse");
    let [low, high] = bounds.map(of_table);
    let fits = |value: &T| {
        let in_steps = steps.iter().all(|step| value.is_multiple_of(&of_table(step)));
        (&low..=&high).contains(&value) && in_steps
    };
    text.parse().ok().filter(fits).ok_or_else(|| {
        let [from, to] = bounds;
        let steps = steps.iter().map(|step| format!(", a multiple of {step}")).collect::<String>();
        let suggestion =
            T::suggestion(text).filter(|suggestion| suggestion.parse().is_ok_and(|suggestion| fits(&suggestion)));
        let suggestion = suggestion.map(|suggestion| format!(": write {suggestion:?}")).unwrap_or_default();
        format!("{} from {from} to {to}{steps}{suggestion}", T::NOUN)
    })
}

impl UnboundedValue for Algorithm {
    const EXPECTED: &'static str = r#"a congestion control like "bbr""#;
}

impl UnboundedValue for bool {
    const EXPECTED: &'static str = "true or false";
}

impl UnboundedValue for IpAddr {
    const EXPECTED: &'static str = r#"a unicast address of this host like "192.0.2.10""#;

    fn is_valid(&self) -> bool {
        !self.is_unspecified() && !self.is_multicast() && *self != Self::V4(Ipv4Addr::BROADCAST)
    }
}

impl BoundedValue for u8 {
    const NOUN: &'static str = "a number";
}

impl BoundedValue for u16 {
    const NOUN: &'static str = "a number";
}

impl BoundedValue for u32 {
    const NOUN: &'static str = "a number";
}

impl BoundedValue for Bytes {
    const NOUN: &'static str = "a size";

    fn suggestion(text: &str) -> Option<String> {
        Self::suggestion(text)
    }
}

impl BoundedValue for Span {
    const NOUN: &'static str = "a time";

    fn is_multiple_of(&self, step: &Self) -> bool {
        self.0.as_micros().is_multiple_of(step.0.as_micros())
    }

    fn suggestion(text: &str) -> Option<String> {
        Self::suggestion(text)
    }
}

impl BoundedValue for Rate {
    const NOUN: &'static str = "a rate";

    fn suggestion(text: &str) -> Option<String> {
        Self::suggestion(text)
    }
}

/// A congestion control's name, as `TCP_CONGESTION` takes it, or [`Algorithm::AUTO`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Algorithm(pub String);

impl Algorithm {
    /// The name that leaves the choice to the path: see [`crate::tuning::needs_system_control`].
    pub const AUTO: &str = "auto";

    /// The congestion controls of Linux 6.18 (net/ipv4/Kconfig): built in, or modules that a kernel may have.
    pub const LINUX: [&str; 17] = [
        "bbr",
        "bic",
        "cdg",
        "cubic",
        "dctcp",
        "highspeed",
        "htcp",
        "hybla",
        "illinois",
        "lp",
        "nv",
        "reno",
        "scalable",
        "vegas",
        "veno",
        "westwood",
        "yeah",
    ];

    /// The nearest replacements among the kernel's congestion controls, the nearest first; empty for an unknown name.
    /// Cubic is a loss-based control for fast long paths, like those that it replaces; bbr does not take the losses of
    /// a bad link for congestion (like hybla and westwood), and keeps queues short (like vegas).
    #[must_use]
    pub fn fallbacks(&self) -> &'static [&'static str] {
        match self.0.as_str() {
            "ctcp" | "highspeed" | "scalable" | "bic" | "cubicresume" => &["cubic"],
            "hybla" | "westwood" | "vegas" => &["bbr", "cubic"],
            _ => &[],
        }
    }
}

impl FromStr for Algorithm {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        // TCP_CA_NAME_MAX is 16 with the terminating NUL.
        let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        ((1..16).contains(&text.len()) && text.bytes().all(is_allowed)).then(|| Self(text.to_owned())).ok_or(())
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

//! Figures as people read them: three digits at most.

use std::fmt;

/// Bytes a second, shown in bits: `12.3 Mbit/s`.
pub(super) struct BitRate(pub(super) f64);

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 * 8.0 {
            bits if bits >= 999.5e6 => write!(f, "{} Gbit/s", digits(bits / 1e9)),
            bits if bits >= 999.5e3 => write!(f, "{} Mbit/s", digits(bits / 1e6)),
            bits => write!(f, "{} kbit/s", digits(bits / 1e3)),
        }
    }
}

/// Seconds: `45.6 ms`, `1.2 s`.
pub(super) struct Seconds(pub(super) f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0.9995 { write!(f, "{} ms", digits(self.0 * 1e3)) } else { write!(f, "{} s", digits(self.0)) }
    }
}

/// Bytes: `64 KiB`.
pub(super) struct Size(pub(super) f64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / 1024.0 {
            kib if kib >= 1023.5 => write!(f, "{} MiB", digits(kib / 1024.0)),
            kib => write!(f, "{} KiB", digits(kib)),
        }
    }
}

/// A share of 1: `1.2 %`.
pub(super) struct Percent(pub(super) f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", digits(self.0 * 100.0))
    }
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

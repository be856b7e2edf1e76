//! Quantities as text for people. Sentences have up to three digits with a space before the unit: `38.6 ms`, `8 MiB`,
//! `10 Mbit/s`, `0.21 %`. Columns of tables have fixed decimals and no unit.
//!
//! [`crate::units`] has the text of configurations, which is exact.

use std::time::Duration;

/// Formats a time in seconds: `38.6 ms`, `1.2 s`.
#[must_use]
pub fn time(seconds: f64) -> String {
    if seconds < 0.9995 { format!("{} ms", digits(seconds * 1e3)) } else { format!("{} s", digits(seconds)) }
}

/// Formats a number of bytes: `1000 bytes`, `1.5 KiB`, `8 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut amount = bytes as f64 / 1024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        // From 1023.5 on, rounding would give 1024.
        if amount < 1023.5 {
            return format!("{} {unit}", digits(amount));
        }
        amount /= 1024.0;
    }
    format!("{} TiB", digits(amount))
}

/// Formats a number of bytes as configurations write it: `10kB`, `1MiB`. A size from 10,000 bytes on that no unit
/// divides is rounded down to whole kB or MB.
#[must_use]
pub fn compact_size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 6] =
        [("GiB", 1 << 30), ("GB", 1_000_000_000), ("MiB", 1 << 20), ("MB", 1_000_000), ("KiB", 1 << 10), ("kB", 1000)];
    let exact = UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit));
    match exact {
        Some((name, unit)) => format!("{}{name}", bytes / unit),
        None if bytes < 10_000 => format!("{bytes}B"),
        None if bytes < 10_000_000 => format!("{}kB", bytes / 1000),
        None => format!("{}MB", bytes / 1_000_000),
    }
}

/// Formats a rate in bytes per second as bits per second: `12.3 Mbit/s`.
#[must_use]
pub fn bit_rate(bytes_per_second: f64) -> String {
    match bytes_per_second * 8.0 {
        bits if bits >= 999.5e6 => format!("{} Gbit/s", digits(bits / 1e9)),
        bits if bits >= 999.5e3 => format!("{} Mbit/s", digits(bits / 1e6)),
        bits => format!("{} kbit/s", digits(bits / 1e3)),
    }
}

/// Formats a fraction from 0 to 1 as a percentage: `1.2 %`.
#[must_use]
pub fn percent(fraction: f64) -> String {
    format!("{} %", digits(fraction * 100.0))
}

/// Formats a factor with three digits, and without decimals from 100 on. Unlike the other texts it keeps zeros at the
/// end, because tables list factors below each other: `1.00`, `12.3`, `123`.
#[must_use]
pub fn factor(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$}")
}

/// Formats a column of times in milliseconds, without the unit.
#[must_use]
pub fn milliseconds(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1e3;
    if milliseconds < 999.95 { format!("{milliseconds:.1}") } else { format!("{milliseconds:.0}") }
}

/// Formats a column of rates, given in bytes per second, in Mbit/s without the unit.
#[must_use]
pub fn megabits(bytes_per_second: f64) -> String {
    match bytes_per_second * 8.0 / 1e6 {
        m if m < 9.95 => format!("{m:.2}"),
        m if m < 999.5 => format!("{m:.1}"),
        m => format!("{m:.0}"),
    }
}

/// Formats up to three digits, without zeros at the end of the decimals.
fn digits(value: f64) -> String {
    let text = factor(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_have_up_to_three_digits_and_the_unit() {
        let times = [0.0, 0.0386, 0.04, 0.1, 0.9994, 0.9998, 1.18, 1.2, 123.456_789].map(time);
        assert_eq!(times, ["0 ms", "38.6 ms", "40 ms", "100 ms", "999 ms", "1 s", "1.18 s", "1.2 s", "123 s"]);
        let rates = [0.0, 124_900.0, 124_950.0, 1.25e6, 124.9e6, 124.95e6].map(bit_rate);
        assert_eq!(rates, ["0 kbit/s", "999 kbit/s", "1 Mbit/s", "10 Mbit/s", "999 Mbit/s", "1 Gbit/s"]);
        assert_eq!([0.0021, 0.05, 0.123, 1.0].map(percent), ["0.21 %", "5 %", "12.3 %", "100 %"]);
    }

    #[test]
    fn sizes_never_show_1024_of_a_unit() {
        assert_eq!([0, 1000, 1023, 1024, 10_240].map(size), ["0 bytes", "1000 bytes", "1023 bytes", "1 KiB", "10 KiB"]);
        let large = [1_048_063, 1_048_064, 3 << 19, (1 << 30) - 1, 5 << 30, 3 << 39].map(size);
        assert_eq!(large, ["1023 KiB", "1 MiB", "1.5 MiB", "1 GiB", "5 GiB", "1.5 TiB"]);
    }

    #[test]
    fn compact_sizes_are_exact_where_a_unit_divides_them() {
        let sizes = [0, 1448, 10_000, 65_536, 100_001, 1 << 20, 3 << 19, 20_000_001, 1 << 30].map(compact_size);
        assert_eq!(sizes, ["0B", "1448B", "10kB", "64KiB", "100kB", "1MiB", "1536KiB", "20MB", "1GiB"]);
    }

    #[test]
    fn columns_have_fixed_decimals() {
        assert_eq!([1.0, 9.994, 9.996, 99.94, 99.96].map(factor), ["1.00", "9.99", "10.0", "99.9", "100"]);
        let micros = [400, 50_000, 999_940, 999_960];
        assert_eq!(micros.map(|micros| milliseconds(Duration::from_micros(micros))), ["0.4", "50.0", "999.9", "1000"]);
        assert_eq!([1.0e6, 1.25e6, 20.0e6, 125.0e6].map(megabits), ["8.00", "10.0", "160.0", "1000"]);
    }
}

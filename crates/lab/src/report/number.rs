//! Formats numbers for readers: three significant digits, and a unit wherever the column does not name it.

use ekiden_emulator::Nanos;

/// Formats three significant digits; whole numbers from 100 on, with a comma between groups of thousands.
#[must_use]
pub fn format_significant(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let size = value.abs();
    if size < 1e-6 {
        return format!("{value:.2e}");
    }
    // Rounding may carry into one more digit: 9.996 is 10.0 and not 10.00.
    let digits = (size.log10() + 1e-12).floor() as i32;
    let carried = (size / 10f64.powi(digits) * 100.0).round() >= 1000.0;
    let decimals = usize::try_from(2 - digits - i32::from(carried)).unwrap_or(0);
    let text = format!("{size:.decimals$}");
    let sign = if value < 0.0 { "−" } else { "" };
    match text.split_once('.') {
        Some((integer, fraction)) => format!("{sign}{}.{fraction}", with_thousands_separators(integer)),
        None => format!("{sign}{}", with_thousands_separators(&text)),
    }
}

/// Formats a whole number, with a comma between groups of thousands.
#[must_use]
pub fn format_count(value: u64) -> String {
    with_thousands_separators(&value.to_string())
}

fn with_thousands_separators(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats both ends of an interval.
#[must_use]
pub fn format_interval(low: f64, high: f64) -> String {
    format!("{} – {}", format_significant(low), format_significant(high))
}

/// Formats a duration in the largest unit, from ns to s, in which it is at least 1.
#[must_use]
pub fn format_nanos(nanos: Nanos) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", format_significant(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", format_significant(value / 1e6)),
        _ => format!("{} s", format_significant(value / 1e9)),
    }
}

/// Formats a share from 0 to 1 in percent.
#[must_use]
pub fn format_percent(share: f64) -> String {
    format!("{} %", format_significant(share * 100.0))
}

/// Returns a number and its unit; only the number if the unit is empty.
#[must_use]
pub fn with_unit(number: &str, unit: &str) -> String {
    if unit.is_empty() { number.to_owned() } else { format!("{number} {unit}") }
}

/// Returns a number and a noun in the singular or plural: "1 run", "2 runs".
#[must_use]
pub fn pluralized(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", format_count(number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [
            (0.0, "0"),
            (1.0, "1.00"),
            (12.345, "12.3"),
            (9.996, "10.0"),
            (99.96, "100"),
            (999.6, "1,000"),
            (1234.5, "1,234"),
            (1_234_567.0, "1,234,567"),
            (0.001_234, "0.00123"),
            (-2.5, "−2.50"),
            (0.000_000_12, "1.20e-7"),
            (f64::NAN, "–"),
        ];
        for (value, text) in cases {
            assert_eq!(format_significant(value), text, "{value}");
        }
    }

    #[test]
    fn durations_have_a_suitable_unit() {
        let spans = [0, 850, 12_345, 1_200_000, 3_400_000_000].map(format_nanos);
        assert_eq!(spans, ["0 ns", "850 ns", "12.3 µs", "1.20 ms", "3.40 s"]);
    }

    #[test]
    fn plural_follows_the_count() {
        assert_eq!(pluralized(1, "run"), "1 run");
        assert_eq!(pluralized(1200, "run"), "1,200 runs");
    }
}

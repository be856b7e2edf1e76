//! Formats quantities. The quantities in the table (all but percentages) have at most five characters, so that the
//! table fits 80 columns.

/// Formats a rate or a count with three digits and an SI prefix, as in `9.87M`.
pub fn short(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Formats bytes with three digits and a binary prefix: `1.21G` is 1.21 GiB.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, &["", "K", "M", "G", "T", "P", "E"])
}

/// Formats seconds as milliseconds.
pub fn milliseconds(seconds: f64) -> String {
    match seconds * 1000.0 {
        ms if ms < 9.995 => format!("{ms:.2}"),
        ms if ms < 99.95 => format!("{ms:.1}"),
        ms if ms < 99_999.5 => format!("{ms:.0}"),
        _ => ">100s".to_owned(),
    }
}

/// Formats an age in seconds with at most two units: `7s`, `3m09`, `2h05`, `4d`.
pub fn age(seconds: f64) -> String {
    let whole_seconds = seconds.max(0.0) as u64;
    match (whole_seconds / 86_400, whole_seconds / 3600 % 24, whole_seconds / 60 % 60, whole_seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}"),
        (days, ..) => format!("{days}d"),
    }
}

/// Formats `part` as a percentage of `whole`; `None` if `whole` is zero.
pub fn percent(part: f64, whole: f64) -> Option<String> {
    (whole > 0.0).then(|| match part / whole * 100.0 {
        share if share > 0.0 && share < 0.05 => "<0.1 %".to_owned(),
        share if share > 0.0 && share < 9.95 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    })
}

fn scaled(value: f64, step: f64, letters: &[&str]) -> String {
    let mut value = value.max(0.0);
    let mut letters = letters.iter();
    let mut letter = letters.next().unwrap_or(&"");
    // From 999.5 on, rounding gives a fourth digit.
    while value >= 999.5 {
        let Some(next) = letters.next() else { break };
        value /= step;
        letter = next;
    }
    match value {
        value if letter.is_empty() => format!("{value:.0}"),
        value if value < 9.995 => format!("{value:.2}{letter}"),
        value if value < 99.95 => format!("{value:.1}{letter}"),
        value => format!("{value:.0}{letter}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_abbreviated() {
        let rates = [0.0, 0.4, 999.4, 999.6, 9_994.0, 9_996.0, 99_960.0, 812_345_678.0, 9.99e9, 1e14, 9e17, 1e18];
        let shown = ["0", "0", "999", "1.00k", "9.99k", "10.0k", "100k", "812M", "9.99G", "100T", "900P", "1.00E"];
        assert_eq!(rates.map(short), shown);
        let sizes = [0, 999, 1000, 1024, 1 << 20, 1_300_000_000, u64::MAX];
        assert_eq!(sizes.map(bytes), ["0", "999", "0.98K", "1.00K", "1.00M", "1.21G", "16.0E"]);
        let times = [0.000_004, 0.000_05, 0.0001, 0.0823, 0.09994, 0.09996, 1.5, 99.0, 120.0];
        assert_eq!(times.map(milliseconds), ["0.00", "0.05", "0.10", "82.3", "99.9", "100", "1500", "99000", ">100s"]);
        let ages = [-1.0, 7.9, 59.9, 60.0, 189.0, 7500.0, 86_399.0, 86_400.0 * 400.0];
        assert_eq!(ages.map(age), ["0s", "7s", "59s", "1m00", "3m09", "2h05", "23h59", "400d"]);
    }

    #[test]
    fn any_byte_count_fits_five_characters() {
        let powers = (0..64).map(|bit| 1_u64 << bit);
        // The decimals change at 9.995 and 99.95 of a unit, and the unit at 999.5.
        let edges = [1, 10, 100, 1000].map(|digits| (0..6).map(move |unit| digits << (10 * unit)));
        let edges = edges.into_iter().flatten().flat_map(|edge| [edge - edge / 2000 - 1, edge - 1, edge, edge + 1]);
        for value in powers.chain(edges).chain([u64::MAX]) {
            assert!(bytes(value).len() <= 5, "{value}: {}", bytes(value));
        }
    }

    #[test]
    fn percent_of_zero_is_none() {
        assert_eq!(percent(0.0, 0.0), None);
        assert_eq!(
            [(0.0, 5.0), (1.0, 9000.0), (1.0, 300.0), (1.0, 4.0)].map(|(part, whole)| percent(part, whole).unwrap()),
            ["0 %", "<0.1 %", "0.3 %", "25 %"]
        );
    }
}

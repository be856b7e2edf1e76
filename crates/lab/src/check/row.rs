//! One row of the table: direction, property, measured value and limit.

use crate::experiment::collect::results::CheckRow;
use ekiden_emulator::links::Link;

/// One direction of a link.
#[derive(Debug, Clone, Copy)]
pub struct CheckedDirection<'a> {
    /// The name of the link.
    pub name: &'a str,
    /// Settings of the link in both directions.
    pub link: &'a Link,
    /// Whether the direction is from `ends[0]` to `ends[1]`.
    pub forward: bool,
}

impl<'a> CheckedDirection<'a> {
    /// Returns the name of the sending host.
    pub fn from(&self) -> &'a str {
        &self.link.ends[usize::from(!self.forward)]
    }

    /// Returns the name of the receiving host.
    pub fn to(&self) -> &'a str {
        &self.link.ends[usize::from(self.forward)]
    }

    /// Returns the conditions of this direction.
    pub const fn conditions(&self) -> &'a ekiden_emulator::conditions::Conditions {
        if self.forward { &self.link.forward } else { &self.link.reverse }
    }

    /// Returns a row about this direction.
    pub fn row(&self, property: &str, finding: Finding) -> CheckRow {
        CheckRow {
            link: self.name.to_owned(),
            direction: format!("{} → {}", self.from(), self.to()),
            property: property.to_owned(),
            wanted: finding.wanted,
            measured: finding.measured,
            pass: finding.pass,
        }
    }
}

/// A measured statistic and its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The statistic with its limit.
    pub wanted: String,
    /// The measured value, with its unit.
    pub measured: String,
    /// Whether the measured value is within the limit.
    pub pass: bool,
}

/// Formats the rows of a check as text: one line each, in columns, and the number of passed rows.
#[must_use]
pub fn format_table(rows: &[CheckRow]) -> String {
    let headings = ["link", "direction", "property", "wanted", "measured", ""].map(str::to_owned);
    let cells = rows.iter().map(|row| {
        let verdict = if row.pass { "pass" } else { "FAIL" }.to_owned();
        [&row.link, &row.direction, &row.property, &row.wanted, &row.measured, &verdict].map(String::clone)
    });
    let lines: Vec<[String; 6]> = std::iter::once(headings).chain(cells).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    let failed = rows.iter().filter(|row| !row.pass).count();
    text + &format!("\n{} of {} rows pass\n", rows.len() - failed, rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_failures_are_uppercase() {
        let row = |direction: &str, pass| CheckRow {
            link: "wan".into(),
            direction: direction.into(),
            property: "fixed delay".into(),
            wanted: "p99 ≤ 250 µs".into(),
            measured: "p99 31 µs".into(),
            pass,
        };
        let text = format_table(&[row("a → b", true), row("long → longer", false)]);
        let lines: Vec<&str> = text.lines().collect();
        let column = |line: &str| line.split_once("fixed").map(|(before, _)| before.chars().count());
        assert_eq!(column(lines[1]), column(lines[2]));
        assert!(lines[1].ends_with("pass") && lines[2].ends_with("FAIL"), "{text}");
        assert_eq!(lines[4], "1 of 2 rows pass");
    }
}

//! Compares stored figures with those of a repeated experiment.

use std::fmt::Write;

use crate::experiment::collect::results::{CellSummary, Metric};
use crate::experiment::judge::compare::different_circumstances;
use crate::experiment::judge::figures::PublishedFigures;
use crate::report::number::pluralized;
use crate::report::{Agreement, CellAgreement};

/// Compares two sets of figures of one experiment. Returns a text, and whether all figures are reproduced. The text has
/// the numbers of stored figures that are equal, agree, differ or are missing in the repetition, and a line for each
/// figure that agrees or differs. Figures in virtual time must be equal; figures in real time must be equal or agree.
#[must_use]
pub fn compare_figures(stored: &PublishedFigures, repeated: &PublishedFigures) -> (String, bool) {
    let (mut lines, mut counts, mut total) = (String::new(), [0; 3], 0);
    for (metric, cells) in by_metric(stored) {
        let repeated_cells =
            by_metric(repeated).find(|(other, _)| *other == metric).map_or(&[][..], |(_, cells)| cells);
        let agreement = Agreement::new(cells, repeated_cells);
        let shown = agreement.lines(&[CellAgreement::Agree, CellAgreement::Differ]);
        if !shown.is_empty() {
            let _ = write!(lines, "{}, stored and made again:\n{shown}", metric.key);
        }
        counts.iter_mut().zip(CellAgreement::ALL).for_each(|(count, class)| *count += agreement.count(class));
        total += cells.iter().filter(|cell| cell.summary.n > 0).count();
    }
    let ([same, agree, differ], compared) = (counts, counts.iter().sum::<usize>());
    let number = pluralized(total, "figure");
    let missing = total - compared;
    let name = &stored.manifest.name;
    let mut text = format!("{name}: {number}: {same} same, {agree} agree, {differ} differ, {missing} missing\n");
    if !lines.is_empty() {
        text += &lines;
        text += "circumstances, A stored and B made again:\n";
        let different = different_circumstances(&stored.manifest, &repeated.manifest);
        different.iter().for_each(|line| text += &format!("{line}\n"));
    }
    let are_reproduced = same + if stored.is_virtual() { 0 } else { agree } == total;
    (text, are_reproduced)
}

/// Returns the cells of each metric.
fn by_metric(figures: &PublishedFigures) -> impl Iterator<Item = (&Metric, &[CellSummary])> {
    let main = (&figures.manifest.metric, figures.cells.as_slice());
    [main].into_iter().chain(figures.also.iter().map(|also| (&also.metric, also.cells.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::results::Manifest;
    use crate::stats;

    /// Figures of one cell.
    fn figures(clock: &str, values: [f64; 6]) -> PublishedFigures {
        let metric = Metric { key: "mb_s".to_owned(), unit: "MB/s".to_owned(), higher_is_better: true };
        let machine = vec![("clock".to_owned(), clock.to_owned())];
        PublishedFigures {
            manifest: Manifest { name: "x".to_owned(), metric, machine, ..Manifest::default() },
            cells_digest: String::new(),
            runs: 6,
            cells: vec![CellSummary::for_test("relay", stats::summarise(&values))],
            also: Vec::new(),
            floors: Vec::new(),
            gains: Vec::new(),
            outcomes: Vec::new(),
            published: Vec::new(),
            warnings: Vec::new(),
        }
    }

    const STORED: [f64; 6] = [10.0, 10.1, 10.2, 10.3, 10.4, 10.5];
    /// The interval overlaps that of [`STORED`], but the median differs.
    const NEAR: [f64; 6] = [10.3, 10.4, 10.5, 10.6, 10.7, 10.8];

    #[test]
    fn virtual_time_figures_must_be_identical() {
        let stored = figures("virtual: a", STORED);
        assert_eq!(
            compare_figures(&stored, &stored),
            ("x: 1 figure: 1 same, 0 agree, 0 differ, 0 missing\n".to_owned(), true)
        );
        let (text, are_reproduced) = compare_figures(&stored, &figures("virtual: b", NEAR));
        assert!(!are_reproduced && text.contains("0 same, 1 agree, 0 differ"), "{text}");
        assert!(text.contains("relay") && text.contains("+2.9e-2"), "{text}");
        assert!(text.contains("clock differs: virtual: a in A, virtual: b in B"), "{text}");
    }

    #[test]
    fn real_time_figures_must_agree() {
        let stored = figures("real", STORED);
        assert!(compare_figures(&stored, &figures("real", NEAR)).1);
        assert!(!compare_figures(&stored, &figures("real", STORED.map(|value| value + 1.0))).1);
    }

    #[test]
    fn missing_figures_are_not_reproduced() {
        let stored = figures("real", STORED);
        let mut other = stored.clone();
        other.cells[0].treatment = "direct".to_owned();
        let (text, are_reproduced) = compare_figures(&stored, &other);
        assert!(!are_reproduced && text.ends_with("0 differ, 1 missing\n"), "{text}");
    }
}

//! Compares the figures of two runs of one experiment.

use std::fmt::Write;

use crate::experiment::collect::results::{CellSummary, Summary};
use crate::report::number::{format_interval, format_significant};
use crate::stats;

/// The cells that two results of one experiment have in common.
#[derive(Debug)]
pub struct Agreement<'a> {
    pairs: Vec<(&'a CellSummary, &'a CellSummary)>,
}

/// Agreement of the figures of a cell in two results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellAgreement {
    /// Medians, intervals and ratios are equal to the last digit.
    Same,
    /// The intervals of the two medians overlap.
    Agree,
    /// The intervals do not overlap.
    Differ,
}

impl CellAgreement {
    /// All variants, from equal to different figures.
    pub const ALL: [Self; 3] = [Self::Same, Self::Agree, Self::Differ];

    fn of(ours: &CellSummary, theirs: &CellSummary) -> Self {
        if (ours.summary, ours.ratio) == (theirs.summary, theirs.ratio) {
            Self::Same
        } else if stats::intervals_overlap(&ours.summary, &theirs.summary) {
            Self::Agree
        } else {
            Self::Differ
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Agree => "agree",
            Self::Differ => "DIFFER",
        }
    }
}

impl<'a> Agreement<'a> {
    /// Pairs the cells that have a valid run in both results.
    #[must_use]
    pub fn new(ours: &'a [CellSummary], theirs: &'a [CellSummary]) -> Self {
        let is_pair = |a: &CellSummary, b: &CellSummary| {
            (&a.treatment, &a.levels) == (&b.treatment, &b.levels) && a.summary.n > 0 && b.summary.n > 0
        };
        let other = |cell: &CellSummary| theirs.iter().find(|other| is_pair(cell, other));
        Self { pairs: ours.iter().filter_map(|cell| Some((cell, other(cell)?))).collect() }
    }

    /// Returns the number of cells with this agreement.
    #[must_use]
    pub fn count(&self, agreement: CellAgreement) -> usize {
        self.pairs.iter().filter(|(ours, theirs)| CellAgreement::of(ours, theirs) == agreement).count()
    }

    /// Returns a line for each cell whose agreement is one of `classes`: both medians and intervals, and the relative
    /// difference of the medians.
    #[must_use]
    pub fn lines(&self, classes: &[CellAgreement]) -> String {
        let mut text = String::new();
        for (ours, theirs) in &self.pairs {
            let agreement = CellAgreement::of(ours, theirs);
            if classes.contains(&agreement) {
                let levels: Vec<&str> = ours.levels.values().map(String::as_str).collect();
                let place = format!("{} {}", ours.treatment, levels.join(" "));
                let difference = theirs.summary.median / ours.summary.median - 1.0;
                let (ours, theirs) = (format_summary(&ours.summary), format_summary(&theirs.summary));
                let word = agreement.word();
                let _ = writeln!(text, "{word:<6}  {place:<32} {ours:<28} {theirs:<28} {difference:+.1e}");
            }
        }
        text
    }
}

fn format_summary(summary: &Summary) -> String {
    format!("{} ({})", format_significant(summary.median), format_interval(summary.low, summary.high))
}

#[cfg(test)]
mod tests {
    use super::CellAgreement::{Agree, Differ};
    use super::*;

    fn cells(values: &[(&str, f64, f64)]) -> Vec<CellSummary> {
        let cell = |(treatment, low, high): &(&str, f64, f64)| {
            CellSummary::for_test(treatment, stats::summarise(&[*low, *high]))
        };
        values.iter().map(cell).collect()
    }

    #[test]
    fn cells_agree_when_their_intervals_overlap() {
        let ours =
            cells(&[("direct", 10.0, 10.4), ("squid", 20.0, 21.0), ("dante", 5.0, 6.0), ("only-here", 1.0, 2.0)]);
        let theirs = cells(&[("direct", 10.3, 10.6), ("squid", 21.5, 22.0), ("dante", 5.0, 6.0)]);
        let agreement = Agreement::new(&ours, &theirs);
        assert_eq!(CellAgreement::ALL.map(|one| agreement.count(one)), [1; 3]);
        let text = agreement.lines(&[Agree, Differ]);
        assert!(text.contains("agree   direct") && text.contains("DIFFER  squid"), "{text}");
        assert!(!text.contains("dante"), "{text}");
    }

    #[test]
    fn cell_with_a_different_ratio_agrees_but_is_not_same() {
        let ours = cells(&[("squid", 20.0, 21.0)]);
        let mut theirs = ours.clone();
        theirs[0].ratio = Some(stats::summarise(&[2.0]));
        assert_eq!(Agreement::new(&ours, &theirs).count(Agree), 1);
    }

    #[test]
    fn treatments_in_only_one_result_are_ignored() {
        let (ours, theirs) = (cells(&[("a", 1.0, 2.0)]), cells(&[("b", 1.0, 2.0)]));
        let agreement = Agreement::new(&ours, &theirs);
        assert_eq!(CellAgreement::ALL.map(|one| agreement.count(one)), [0; 3]);
    }
}

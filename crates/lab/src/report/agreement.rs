//! Whether two runs of one experiment say the same.

use std::fmt::Write;

use crate::experiment::collect::results::{CellSummary, Results, Summary};
use crate::report::number::{format_interval, format_significant};
use crate::stats;

/// A line for each cell that both have, and how many agree; and whether all do. Two medians agree when their intervals
/// overlap.
#[must_use]
pub fn compare_results(ours: &Results, theirs: &Results) -> (String, bool) {
    let same = |a: &CellSummary, b: &CellSummary| a.treatment == b.treatment && a.levels == b.levels;
    let other = |cell: &CellSummary| theirs.cells.iter().find(|other| same(cell, other));
    let pairs = ours.cells.iter().filter_map(|cell| other(cell).map(|other| (cell, other)));
    let (mut text, mut all, mut agreeing) = (String::new(), 0, 0);
    for (cell, other) in pairs.filter(|(cell, other)| cell.summary.n > 0 && other.summary.n > 0) {
        let agree = stats::intervals_overlap(&cell.summary, &other.summary);
        all += 1;
        agreeing += u32::from(agree);
        let levels: Vec<&str> = cell.levels.values().map(String::as_str).collect();
        let place = format!("{} {}", cell.treatment, levels.join(" "));
        let verdict = if agree { "agree " } else { "DIFFER" };
        let _ = writeln!(
            text,
            "{verdict}  {place:<32} {:<28} {}",
            format_summary(&cell.summary),
            format_summary(&other.summary)
        );
    }
    let _ = writeln!(text, "\n{agreeing} of {all} cells agree within their intervals");
    (text, all > 0 && agreeing == all)
}

fn format_summary(summary: &Summary) -> String {
    format!("{} ({})", format_significant(summary.median), format_interval(summary.low, summary.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(values: &[(&str, f64, f64)]) -> Results {
        let cell = |(treatment, low, high): &(&str, f64, f64)| CellSummary {
            levels: std::collections::BTreeMap::new(),
            treatment: (*treatment).to_owned(),
            summary: stats::summarise(&[*low, *high]),
            ratio: None,
            invalid: 0,
        };
        Results { cells: values.iter().map(cell).collect(), ..Results::default() }
    }

    #[test]
    fn cells_agree_when_their_intervals_overlap() {
        let ours = results(&[("direct", 10.0, 10.4), ("squid", 20.0, 21.0), ("only-here", 1.0, 2.0)]);
        let (text, agree) = compare_results(&ours, &results(&[("direct", 10.3, 10.6), ("squid", 21.5, 22.0)]));
        assert!(!agree);
        assert!(text.contains("agree   direct") && text.contains("DIFFER  squid"), "{text}");
        assert!(text.ends_with("1 of 2 cells agree within their intervals\n"), "{text}");
        assert!(compare_results(&ours, &ours).1);
    }

    #[test]
    fn nothing_in_common_is_no_agreement() {
        assert!(!compare_results(&results(&[("a", 1.0, 2.0)]), &results(&[("b", 1.0, 2.0)])).1);
    }
}

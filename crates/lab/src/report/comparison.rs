//! Renders the comparison of two results for a terminal.

use super::number::{format_significant, pluralized, with_unit};
use super::table::{ReportTable, TableCell};
use super::tables;
use super::terminal::{align_columns, wrap};
use crate::experiment::collect::metric::best_description;
use crate::experiment::collect::results::Manifest;
use crate::experiment::judge::compare::{Comparison, ComparisonVerdict, MetricComparison};

/// Renders a table for each metric, the warnings, and a line with the number of cells of each verdict. Lines have at
/// most `width` characters, except for longer words. Columns of factors are in the order of `manifest`.
#[must_use]
pub fn render_comparison(comparison: &Comparison, manifest: &Manifest, width: usize) -> String {
    let factors: Vec<&str> = manifest.factors.iter().map(|(name, _)| name.as_str()).collect();
    let mut lines = vec![comparison.experiment.clone()];
    for metric in &comparison.metrics {
        lines.extend([String::new(), format!("{}, {}:", metric.metric.key, best_description(&metric.metric))]);
        lines.extend(align_columns(&table(metric, &factors), width));
    }
    if !comparison.warnings.is_empty() {
        lines.push(String::new());
        lines.extend(comparison.warnings.iter().flat_map(|warning| wrap(&format!("warning: {warning}"), "  ", width)));
    }
    lines.extend([String::new(), verdict_line(&comparison.metrics[0])]);
    lines.join("\n") + "\n"
}

fn table(comparison: &MetricComparison, factors: &[&str]) -> ReportTable {
    let unit = &comparison.metric.unit;
    let mut titles: Vec<String> = factors.iter().map(|name| (*name).to_owned()).collect();
    titles.push("Treatment".to_owned());
    titles.extend(["A", "B"].map(|name| format!("#{}", with_unit(name, &tables::with_brackets(unit)))));
    titles.extend(["#B / A", "#95 % CI", "#n", "Verdict"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for cell in &comparison.cells {
        let levels = factors.iter().map(|name| cell.levels.get(*name).cloned().unwrap_or_default().into());
        let mut row: Vec<TableCell> = levels.collect();
        row.push(cell.treatment.clone().into());
        for summary in [&cell.a, &cell.b] {
            row.push(if summary.n > 0 { format_significant(summary.median).into() } else { "–".into() });
        }
        row.extend(tables::median_and_interval(Some(&cell.ratio)));
        row.extend([cell.ratio.n.to_string().into(), cell.verdict.word(&comparison.metric).into()]);
        table.push(row);
    }
    table
}

/// Returns the number of cells, and the number of cells of each verdict that occurs.
fn verdict_line(comparison: &MetricComparison) -> String {
    use ComparisonVerdict::{Better, Differs, Same, Unclear, Worse};
    let count = |verdict: ComparisonVerdict| {
        let count = comparison.count(verdict);
        (count > 0).then(|| format!("{count} {}", verdict.word(&comparison.metric)))
    };
    let counts: Vec<String> = [Better, Same, Worse, Differs, Unclear].into_iter().filter_map(count).collect();
    format!("{} of B against A: {}", pluralized(comparison.cells.len(), "cell"), counts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::collect::results::{Metric, Summary};
    use crate::experiment::judge::compare::CellComparison;
    use crate::stats;

    #[test]
    fn a_comparison_has_a_row_for_each_cell_then_warnings_and_counts() {
        let summary = |values: [f64; 6]| stats::summarise(&values);
        let cell = |level: &str, ratio: Summary, verdict| CellComparison {
            levels: BTreeMap::from([("delay".to_owned(), level.to_owned())]),
            treatment: "relay".to_owned(),
            a: summary([10.0; 6]),
            b: summary([9.0; 6]),
            ratio,
            verdict,
        };
        let metric = Metric { key: "mb_s".to_owned(), unit: "MB/s".to_owned(), higher_is_better: true };
        let cells = vec![
            cell("25ms", summary([0.9; 6]), ComparisonVerdict::Worse),
            cell("50ms", Summary::default(), ComparisonVerdict::Unclear),
        ];
        let comparison = Comparison {
            experiment: "x".to_owned(),
            metrics: vec![MetricComparison { metric, cells }],
            warnings: vec!["seed differs: 1 in A, 2 in B".to_owned()],
        };
        let manifest = Manifest { factors: vec![("delay".to_owned(), Vec::new())], ..Manifest::default() };
        let expected = "x\n\n\
            mb_s, more is better:\n\
            delay  Treatment  A (MB/s)  B (MB/s)  B / A        95 % CI  n  Verdict\n\
            25ms   relay          10.0      9.00  0.900  0.900 – 0.900  6  slower\n\
            50ms   relay          10.0      9.00      –              –  0  unclear\n\n\
            warning: seed differs: 1 in A, 2 in B\n\n\
            2 cells of B against A: 1 slower, 1 unclear\n";
        assert_eq!(render_comparison(&comparison, &manifest, 100), expected);
    }
}

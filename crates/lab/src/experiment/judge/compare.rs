//! Compares two results of one experiment, cell by cell: B relative to A, paired within blocks.

use std::collections::BTreeMap;

use serde::Serialize;

use super::analyse;
use crate::experiment::collect::metric::has_better_side;
use crate::experiment::collect::results::{CellSummary, Manifest, Metric, Results, Summary};
use crate::experiment::spec::read::CellKey;
use crate::stats;

/// Maximum distance from 1 of an interval of ratios that counts as no difference.
pub const SAME_MARGIN: f64 = 0.05;

/// Units of metrics whose verdicts are `faster` and `slower`.
const SPEED_UNITS: [&str; 4] = ["MB/s", "Mbit/s", "s", "ms"];

/// Comparison of two results, A and B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The name of the experiment.
    pub experiment: String,
    /// The metric of the experiment, then the further metrics that both results have.
    pub metrics: Vec<MetricComparison>,
    /// Circumstances that differ, and cells or runs that are missing.
    pub warnings: Vec<String>,
}

/// The cells that both results have, by one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The metric of all cells.
    pub metric: Metric,
    /// The cells in which both have a valid run, in the order of A.
    pub cells: Vec<CellComparison>,
}

/// One treatment at one combination of levels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellComparison {
    /// The level of each factor, by the factor's name.
    pub levels: BTreeMap<String, String>,
    /// The name of the treatment.
    pub treatment: String,
    /// The metric of A in the blocks in which both have a valid run.
    pub a: Summary,
    /// The metric of B in these blocks.
    pub b: Summary,
    /// B divided by A in the same block, without the blocks in which A is 0.
    pub ratio: Summary,
    /// How B differs from A.
    pub verdict: ComparisonVerdict,
}

/// How B differs from A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComparisonVerdict {
    /// The 95 % interval of the ratio is on the better side of 1.
    Better,
    /// The 95 % interval of the ratio is on the worse side of 1.
    Worse,
    /// The 95 % interval of the ratio excludes 1, and the metric has no better side.
    Differs,
    /// The 95 % interval of the ratio contains 1 and is within [`SAME_MARGIN`] of it, or all ratios are exactly 1.
    Same,
    /// No other verdict applies: there are too few common blocks, or the interval is too wide.
    Unclear,
}

impl ComparisonVerdict {
    fn of_ratio(ratio: &Summary, metric: &Metric) -> Self {
        if ratio.n == 0 {
            return Self::Unclear;
        }
        let is_exact = ratio.min == 1.0 && ratio.max == 1.0;
        let (above, below) = (ratio.low > 1.0, ratio.high < 1.0);
        let is_within_margin = ratio.low >= 1.0 - SAME_MARGIN && ratio.high <= 1.0 + SAME_MARGIN;
        match (ratio.confidence >= 0.95, above || below) {
            _ if is_exact => Self::Same,
            (false, _) => Self::Unclear,
            (true, true) if !has_better_side(metric) => Self::Differs,
            (true, true) if above == metric.higher_is_better => Self::Better,
            (true, true) => Self::Worse,
            (true, false) if is_within_margin => Self::Same,
            (true, false) => Self::Unclear,
        }
    }

    /// Returns the verdict as a word: `faster` or `slower` for speeds and durations, `better` or `worse` for other
    /// metrics.
    #[must_use]
    pub fn word(self, metric: &Metric) -> &'static str {
        let is_speed = SPEED_UNITS.contains(&metric.unit.as_str());
        match self {
            Self::Better if is_speed => "faster",
            Self::Better => "better",
            Self::Worse if is_speed => "slower",
            Self::Worse => "worse",
            Self::Differs => "differs",
            Self::Same => "same",
            Self::Unclear => "unclear",
        }
    }
}

impl MetricComparison {
    /// Returns the number of cells with this verdict.
    #[must_use]
    pub fn count(&self, verdict: ComparisonVerdict) -> usize {
        self.cells.iter().filter(|cell| cell.verdict == verdict).count()
    }
}

/// Compares the cells in which both results have a valid run.
///
/// # Errors
/// The results are of different experiments or metrics, or have no cell in common.
pub fn compare(a: &Results, b: &Results) -> anyhow::Result<Comparison> {
    let (ours, theirs) = (&a.manifest, &b.manifest);
    anyhow::ensure!(
        ours.name == theirs.name,
        "A is a result of the experiment {:?}, B of {:?}",
        ours.name,
        theirs.name
    );
    anyhow::ensure!(
        ours.metric == theirs.metric,
        "A is compared by {}, B by {}: results of different experiments",
        ours.metric.key,
        theirs.metric.key
    );
    let mut metrics = vec![compare_cells(&ours.metric, a, &a.cells, b, &b.cells)];
    for extra in &a.also {
        let same = b.also.iter().find(|other| other.metric == extra.metric);
        metrics.extend(same.map(|other| compare_cells(&extra.metric, a, &extra.cells, b, &other.cells)));
    }
    anyhow::ensure!(!metrics[0].cells.is_empty(), "A and B have no treatment at equal levels in common");
    let warnings = collect_warnings(a, b, &metrics[0]);
    Ok(Comparison { experiment: ours.name.clone(), metrics, warnings })
}

fn compare_cells(
    metric: &Metric,
    a: &Results,
    cells_of_a: &[CellSummary],
    b: &Results,
    cells_of_b: &[CellSummary],
) -> MetricComparison {
    let pair = |cell: &CellSummary| {
        let cell_key = CellKey { levels: cell.levels.clone(), treatment: cell.treatment.clone() };
        let values = |results: &Results| analyse::metric_values(&results.runs, &cell_key, &metric.key);
        let (of_a, of_b) = (values(a), values(b));
        let ratio = stats::summarise(&stats::ratios(&of_b, &of_a));
        let of_all_blocks = stats::summarise(&stats::ratios_with_zero_bases(&of_b, &of_a));
        let verdict = ComparisonVerdict::of_ratio(&of_all_blocks, metric);
        let (a, b) = (summarise_common(&of_a, &of_b), summarise_common(&of_b, &of_a));
        CellComparison { levels: cell_key.levels, treatment: cell_key.treatment, a, b, ratio, verdict }
    };
    let common = cells_of_a.iter().filter(|cell| has_values(cells_of_a, cell) && has_values(cells_of_b, cell));
    MetricComparison { metric: metric.clone(), cells: common.map(pair).collect() }
}

/// Returns the summary of the values in blocks that `others` have, too.
fn summarise_common(values: &[(u32, f64)], others: &[(u32, f64)]) -> Summary {
    let is_common = |block: u32| others.iter().any(|(other, _)| *other == block);
    let common: Vec<f64> = values.iter().filter(|(block, _)| is_common(*block)).map(|(_, value)| *value).collect();
    stats::summarise(&common)
}

/// Returns whether the cell in `cells` with the treatment and levels of `cell` has a valid run.
fn has_values(cells: &[CellSummary], cell: &CellSummary) -> bool {
    let is_same_place = |other: &&CellSummary| other.treatment == cell.treatment && other.levels == cell.levels;
    cells.iter().find(is_same_place).is_some_and(|found| found.summary.n > 0)
}

fn collect_warnings(a: &Results, b: &Results, cells: &MetricComparison) -> Vec<String> {
    let mut warnings = different_circumstances(&a.manifest, &b.manifest);
    let mut count = |number: usize, what: String| {
        if number > 0 {
            warnings.push(format!("{what}: {number}"));
        }
    };
    for (name, own, other) in [("A", a, b), ("B", b, a)] {
        let is_only_here = |cell: &&CellSummary| has_values(&own.cells, cell) && !has_values(&other.cells, cell);
        count(own.cells.iter().filter(is_only_here).count(), format!("cells only in {name}"));
        count(analyse::missing_runs(&own.runs), format!("runs of {name} without a valid attempt"));
        count(own.checks.iter().filter(|row| !row.pass).count(), format!("failed link checks of {name}"));
    }
    let few = cells.cells.iter().filter(|cell| cell.a.confidence < 0.95).count();
    count(few, "cells with too few common blocks for a 95 % interval (--full, or --blocks 6)".to_owned());
    warnings
}

/// Returns a text for each circumstance that differs, with both values.
#[must_use]
pub fn different_circumstances(a: &Manifest, b: &Manifest) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut compare = |what: &str, ours: &str, theirs: &str| {
        if ours != theirs {
            warnings.push(format!("{what} differs: {ours} in A, {theirs} in B"));
        }
    };
    compare("size", &a.size, &b.size);
    compare("number of blocks", &a.blocks.to_string(), &b.blocks.to_string());
    compare("seed", &a.seed.to_string(), &b.seed.to_string());
    for (ours, theirs) in [(&a.programs, &b.programs), (&a.machine, &b.machine), (&a.settings, &b.settings)] {
        let theirs: BTreeMap<&String, &String> = theirs.iter().map(|(name, value)| (name, value)).collect();
        for (name, value) in ours {
            compare(name, value, theirs.get(name).map_or("none", |value| value.as_str()));
        }
        for (name, value) in theirs.iter().filter(|(name, _)| !ours.iter().any(|(own, _)| own == **name)) {
            compare(name, "none", value);
        }
    }
    if a.file != b.file {
        warnings.push("the experiment files differ".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::metric::RATIO;
    use crate::experiment::collect::results::Run;

    fn metric(unit: &str, higher_is_better: bool) -> Metric {
        Metric { key: "figure".to_owned(), unit: unit.to_owned(), higher_is_better }
    }

    /// Results of the treatments `direct` and `relay`, with one value per block.
    fn results(metric: &Metric, direct: &[f64], relay: &[f64]) -> Results {
        let (mut runs, mut cells) = (Vec::new(), Vec::new());
        for (treatment, values) in [("direct", direct), ("relay", relay)] {
            for (block, value) in (0..).zip(values) {
                let metrics = [(metric.key.clone(), *value)].into();
                runs.push(Run { block, treatment: treatment.to_owned(), metrics, ..Run::default() });
            }
            cells.push(CellSummary::for_test(treatment, stats::summarise(values)));
        }
        let manifest = Manifest { name: "x".to_owned(), metric: metric.clone(), ..Manifest::default() };
        Results { manifest, runs, cells, ..Results::default() }
    }

    fn scaled(values: &[f64], factor: f64) -> Vec<f64> {
        values.iter().map(|value| value * factor).collect()
    }

    /// Values that differ between blocks by a factor of up to ten, while ratios within a block are constant.
    const BLOCKS: [f64; 6] = [10.0, 100.0, 20.0, 50.0, 30.0, 80.0];

    fn verdict_of(metric: &Metric, relay_of_b: &[f64]) -> ComparisonVerdict {
        let comparison = compare(&results(metric, &BLOCKS, &BLOCKS), &results(metric, &BLOCKS, relay_of_b)).unwrap();
        assert_eq!(comparison.metrics[0].cells[0].verdict, ComparisonVerdict::Same, "direct");
        comparison.metrics[0].cells[1].verdict
    }

    #[test]
    fn verdict_pairs_blocks_and_respects_the_metric_direction() {
        let (rate, time) = (metric("MB/s", true), metric("ms", false));
        assert_eq!(verdict_of(&rate, &scaled(&BLOCKS, 1.01)), ComparisonVerdict::Better);
        assert_eq!(verdict_of(&time, &scaled(&BLOCKS, 1.01)), ComparisonVerdict::Worse);
        assert_eq!(verdict_of(&rate, &scaled(&BLOCKS, 0.7)), ComparisonVerdict::Worse);
        assert_eq!(verdict_of(&time, &scaled(&BLOCKS, 0.7)), ComparisonVerdict::Better);
        let words = [&rate, &metric("", true)].map(|metric| ComparisonVerdict::Worse.word(metric));
        assert_eq!(words, ["slower", "worse"]);
    }

    /// A ratio of 2 between two groups that becomes 1 was called worse.
    #[test]
    fn ratio_of_two_groups_is_neither_better_nor_worse() {
        let ratio = Metric { key: RATIO.to_owned(), ..metric("", true) };
        for factor in [0.5, 1.1] {
            assert_eq!(verdict_of(&ratio, &scaled(&BLOCKS, factor)), ComparisonVerdict::Differs, "{factor}");
        }
    }

    #[test]
    fn narrow_interval_is_same_and_wide_interval_is_unclear() {
        let rate = metric("MB/s", true);
        let vary = |by: f64| {
            let signs = [1.0, -1.0, 1.0, -1.0, 1.0, -1.0];
            BLOCKS.iter().zip(signs).map(|(value, sign)| value * (1.0 + sign * by)).collect::<Vec<_>>()
        };
        assert_eq!(verdict_of(&rate, &vary(0.04)), ComparisonVerdict::Same);
        assert_eq!(verdict_of(&rate, &vary(0.06)), ComparisonVerdict::Unclear);
    }

    #[test]
    fn few_blocks_are_unclear_unless_equal() {
        let rate = metric("MB/s", true);
        let few = |factor| {
            let (a, b) = (results(&rate, &BLOCKS[..3], &BLOCKS[..3]), scaled(&BLOCKS[..3], factor));
            compare(&a, &results(&rate, &BLOCKS[..3], &b)).unwrap()
        };
        assert_eq!(few(2.0).metrics[0].cells[1].verdict, ComparisonVerdict::Unclear);
        assert_eq!(few(1.0).metrics[0].cells[1].verdict, ComparisonVerdict::Same);
        assert!(few(1.0).warnings[0].starts_with("cells with too few common blocks"), "{:?}", few(1.0).warnings);
    }

    /// Blocks in which A is 0 were left out: a metric that rose from 0 was unclear, and so was one that stayed 0.
    #[test]
    fn blocks_with_a_base_of_zero_are_compared() {
        let share = metric("%", false);
        let cell = |of_a: &[f64], of_b: &[f64]| {
            let comparison = compare(&results(&share, &BLOCKS, of_a), &results(&share, &BLOCKS, of_b)).unwrap();
            assert_eq!(comparison.warnings, [""; 0]);
            let cell = &comparison.metrics[0].cells[1];
            (cell.verdict, cell.ratio.n)
        };
        assert_eq!(cell(&[0.0; 6], &[50.0; 6]), (ComparisonVerdict::Worse, 0));
        assert_eq!(cell(&[0.0; 6], &[0.0; 6]), (ComparisonVerdict::Same, 0));
        assert_eq!(cell(&[50.0; 6], &[0.0; 6]), (ComparisonVerdict::Better, 6));
    }

    #[test]
    fn only_common_blocks_count() {
        let rate = metric("MB/s", true);
        let a = results(&rate, &BLOCKS, &BLOCKS[..2]);
        let cells = compare(&a, &results(&rate, &BLOCKS, &BLOCKS)).unwrap().metrics.remove(0).cells;
        assert_eq!((cells[1].a.n, cells[1].b.n, cells[1].b.median), (2, 2, 55.0));
        let comparison = compare(&results(&rate, &BLOCKS, &[]), &a).unwrap();
        assert_eq!(
            (comparison.metrics[0].cells.len(), comparison.warnings),
            (1, vec!["cells only in B: 1".to_owned()])
        );
    }

    #[test]
    fn different_settings_are_reported() {
        let rate = metric("MB/s", true);
        let (mut a, mut b) = (results(&rate, &BLOCKS, &BLOCKS), results(&rate, &BLOCKS, &BLOCKS));
        assert_eq!(compare(&a, &b).unwrap().warnings, [""; 0]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        (a.manifest.size, b.manifest.size) = ("quick".to_owned(), "full".to_owned());
        a.manifest.programs = vec![pair("ekiden", "1"), pair("curl", "8")];
        b.manifest.programs = vec![pair("ekiden", "2"), pair("curl", "8"), pair("squid", "6")];
        a.manifest.machine = vec![pair("kernel", "6.1")];
        b.manifest.machine = vec![pair("kernel", "6.12")];
        b.manifest.file = "other".to_owned();
        b.cells.remove(0);
        b.runs[0].invalid = Some("it died".to_owned());
        let expected = [
            "size differs: quick in A, full in B",
            "ekiden differs: 1 in A, 2 in B",
            "squid differs: none in A, 6 in B",
            "kernel differs: 6.1 in A, 6.12 in B",
            "the experiment files differ",
            "cells only in A: 1",
            "runs of B without a valid attempt: 1",
        ];
        assert_eq!(compare(&a, &b).unwrap().warnings, expected);
    }

    #[test]
    fn results_of_different_experiments_are_not_compared() {
        let (rate, time) = (metric("MB/s", true), metric("ms", false));
        let a = results(&rate, &BLOCKS, &BLOCKS);
        let error = |b: &Results| compare(&a, b).unwrap_err().to_string();
        let mut b = a.clone();
        b.manifest.name = "y".to_owned();
        assert_eq!(error(&b), "A is a result of the experiment \"x\", B of \"y\"");
        assert_eq!(
            error(&results(&time, &[], &[])),
            "A is compared by figure, B by figure: results of different experiments"
        );
        let mut b = a.clone();
        b.cells.iter_mut().for_each(|cell| cell.treatment.push('2'));
        assert_eq!(error(&b), "A and B have no treatment at equal levels in common");
    }
}

//! The contents of a report's tables, independent of the output format.

use std::collections::BTreeMap;

use super::number::{format_count, format_interval, format_nanos, format_significant, with_unit};
use super::table::{CellKind, ReportTable, TableCell};
use super::view::{Levels, ReportView};
use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, GroupRun, Results, Run, Summary};
use crate::stats::mean;
use crate::stats::median;
use ekiden_emulator::lateness::LatenessHistogram;
use ekiden_emulator::ledger::{DirectionReport, DropCause};

/// Returns a row for each expectation, the missed expectations first.
#[must_use]
pub fn outcomes(view: &ReportView) -> ReportTable {
    let titles = ["Verdict", "Expected", "#Published", "#Ours (median)", "#95 % CI", "Source", "Remark"];
    let mut table = ReportTable::new(&titles);
    for outcome in view.outcomes() {
        table.push(outcome_row(outcome));
    }
    table.without_empty_columns()
}

fn outcome_row(outcome: &ExpectationOutcome) -> Vec<TableCell> {
    let text = |text: &Option<String>| TableCell::from(text.clone().unwrap_or_default());
    vec![
        verdict(outcome.verdict),
        outcome.expected.clone().into(),
        text(&outcome.published),
        text(&outcome.ours),
        text(&outcome.interval),
        outcome.source.clone().into(),
        text(&outcome.remark),
    ]
}

/// Returns a cell with the verdict.
#[must_use]
pub fn verdict(verdict: ExpectationVerdict) -> TableCell {
    match verdict {
        ExpectationVerdict::Met => TableCell::new("met", CellKind::Good),
        ExpectationVerdict::Missed => TableCell::new("missed", CellKind::Bad),
        ExpectationVerdict::Unknown => TableCell::new("unknown", CellKind::Unknown),
    }
}

/// Returns a row for each treatment at each combination of levels.
#[must_use]
pub fn cells(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<String> = factors.iter().map(|(name, _)| name.clone()).collect();
    titles.push("Treatment".to_owned());
    titles.push(format!("#{}", with_unit("Median", &with_brackets(view.unit()))));
    titles.push("#95 % CI".to_owned());
    titles.push(format!("#× {}", view.baseline()));
    titles.extend(["#95 % CI", "#n", "#Invalid"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for (style, treatment) in view.treatments.iter().enumerate() {
            let Some(cell) = view.cell(levels, treatment) else { continue };
            let mut row: Vec<TableCell> =
                factors.iter().map(|(name, _)| levels.get(name).cloned().unwrap_or_default().into()).collect();
            row.push(TableCell::new(treatment, CellKind::Treatment(style)));
            row.extend(median_and_interval(Some(&cell.summary)));
            row.extend(median_and_interval(cell.ratio.as_ref()));
            row.push(cell.summary.n.to_string().into());
            row.push(invalid_count(cell.invalid));
            table.push(row);
        }
    }
    table.grouped_by(factors.len())
}

/// Returns the unit in brackets; empty without a unit.
pub fn with_brackets(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!("({unit})") }
}

fn invalid_count(invalid: u32) -> TableCell {
    if invalid == 0 { "0".into() } else { TableCell::new(invalid.to_string(), CellKind::Bad) }
}

/// Returns two cells: the median and its interval; dashes without values.
pub fn median_and_interval(summary: Option<&Summary>) -> [TableCell; 2] {
    match summary.filter(|summary| summary.n > 0) {
        Some(summary) => [format_significant(summary.median).into(), confidence_interval(summary).into()],
        None => ["–".into(), "–".into()],
    }
}

/// Formats the interval, marked if it is not the 95 % interval of the heading.
#[must_use]
pub fn confidence_interval(summary: &Summary) -> String {
    with_range_mark(format_interval(summary.low, summary.high), summary)
}

/// Returns the text of an interval, marked if it is not the 95 % interval of the heading but the range of all values.
#[must_use]
pub fn with_range_mark(text: String, summary: &Summary) -> String {
    if summary.confidence >= 0.95 { text } else { format!("{text} (range of {})", summary.n) }
}

/// Returns the rows of the link check, with pass or fail.
#[must_use]
pub fn checks(results: &Results) -> ReportTable {
    let mut table = ReportTable::new(&["Result", "Link", "Direction", "Property", "Wanted", "#Measured"]);
    for row in &results.checks {
        let result =
            if row.pass { TableCell::new("pass", CellKind::Good) } else { TableCell::new("fail", CellKind::Bad) };
        let texts = [&row.link, &row.direction, &row.property, &row.wanted, &row.measured];
        table.push(std::iter::once(result).chain(texts.map(|text| text.clone().into())).collect());
    }
    table.without_empty_columns()
}

/// Returns the invalid runs, with the reasons.
#[must_use]
pub fn invalid_runs(view: &ReportView) -> ReportTable {
    let mut table = ReportTable::new(&["#Run", "#Block", "Condition", "Treatment", "Why it does not count"]);
    for run in &view.results.runs {
        let Some(why) = &run.invalid else { continue };
        let style = view.treatments.iter().position(|name| *name == run.treatment).unwrap_or_default();
        table.push(vec![
            run.order.to_string().into(),
            run.block.to_string().into(),
            view.condition_label(&run.levels, None).into(),
            TableCell::new(&run.treatment, CellKind::Treatment(style)),
            why.clone().into(),
        ]);
    }
    table
}

/// Returns the emulator's counters for each direction of each link, summed over runs.
#[must_use]
pub fn directions(runs: &[Run]) -> ReportTable {
    let mut table = ReportTable::new(&[
        "Link",
        "Direction",
        "Hand-over",
        "#Packets out",
        "#p50",
        "#p99",
        "#p99.9",
        "#Latest",
        "Dropped, by cause",
        "#Marked",
        "#Copied",
        "#Hidden drops",
    ]);
    for sum in totals(runs) {
        let lateness = |q| {
            TableCell::from(if sum.packets_out == 0 {
                "–".to_owned()
            } else {
                format_nanos(sum.lateness.quantile(q))
            })
        };
        let nonzero = |number: u64| TableCell::from(if number == 0 { String::new() } else { format_count(number) });
        table.push(vec![
            sum.link.clone().into(),
            format!("{} → {}", sum.from, sum.to).into(),
            if sum.exact { "exact".into() } else { "fast".into() },
            format_count(sum.packets_out).into(),
            lateness(0.5),
            lateness(0.99),
            lateness(0.999),
            lateness(1.0),
            causes(&sum.dropped).into(),
            nonzero(sum.marked),
            nonzero(sum.copied),
            if sum.hidden == 0 { "0".into() } else { TableCell::new(format_count(sum.hidden), CellKind::Bad) },
        ]);
    }
    table.grouped_by(1).without_empty_columns()
}

/// Returns the reports of all directions of links, summed over runs, in the order of their first appearance in runs.
#[must_use]
pub fn totals(runs: &[Run]) -> Vec<DirectionReport> {
    let mut sums: Vec<DirectionReport> = Vec::new();
    for direction in runs.iter().flat_map(|run| &run.links) {
        let is_same_direction = |sum: &&mut DirectionReport| {
            (&sum.link, &sum.from, &sum.to) == (&direction.link, &direction.from, &direction.to)
        };
        match sums.iter_mut().find(is_same_direction) {
            Some(sum) => add_report(sum, direction),
            None => sums.push(direction.clone()),
        }
    }
    sums
}

fn add_report(sum: &mut DirectionReport, report: &DirectionReport) {
    sum.exact &= report.exact;
    sum.packets_in += report.packets_in;
    sum.bytes_in += report.bytes_in;
    sum.packets_out += report.packets_out;
    sum.bytes_out += report.bytes_out;
    sum.frames_in += report.frames_in;
    sum.frames_out += report.frames_out;
    sum.marked += report.marked;
    sum.copied += report.copied;
    sum.hidden += report.hidden;
    for (cause, packets) in &report.dropped {
        *sum.dropped.entry(*cause).or_default() += packets;
    }
    sum.waits.merge(&report.waits);
    add_lateness(&mut sum.lateness, &report.lateness);
}

/// Adds a histogram. Buckets are matched by their bounds, so that reports of different versions can be summed, too.
fn add_lateness(sum: &mut LatenessHistogram, other: &LatenessHistogram) {
    let mut buckets: BTreeMap<u64, u64> = BTreeMap::new();
    for lateness in [&*sum, other] {
        for (bound, packets) in lateness.bounds.iter().zip(&lateness.counts) {
            *buckets.entry(*bound).or_default() += packets;
        }
    }
    sum.max = sum.max.max(other.max);
    (sum.bounds, sum.counts) = buckets.into_iter().unzip();
}

fn causes(dropped: &BTreeMap<DropCause, u64>) -> String {
    let some = dropped.iter().filter(|(_, packets)| **packets > 0);
    let parts: Vec<String> =
        some.map(|(cause, packets)| format!("{} {}", format_count(*packets), cause.name())).collect();
    parts.join(", ")
}

/// Returns a table of names and values.
#[must_use]
pub fn pairs(pairs: &[(String, String)]) -> ReportTable {
    let mut table = ReportTable::new(&["Name", "Value"]);
    for (name, value) in pairs {
        table.push(vec![name.clone().into(), value.clone().into()]);
    }
    table
}

/// Returns names and values that identify the experiment: name, size, start, blocks, runs, seed and digest.
#[must_use]
pub fn identity(results: &Results) -> Vec<(String, String)> {
    let manifest = &results.manifest;
    let mut pairs = vec![
        ("experiment", manifest.name.clone()),
        ("size", manifest.size.clone()),
        ("started", manifest.started.clone()),
        ("blocks", manifest.blocks.to_string()),
        ("runs", format_count(results.runs.len() as u64)),
        ("seed", manifest.seed.to_string()),
        ("digest", manifest.digest.clone()),
    ];
    if let Some(source) = &manifest.source {
        pairs.insert(1, ("published by", source.clone()));
    }
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the CPU load of the machine in the median run and in the busiest run, as a sentence; `None` without runs.
#[must_use]
pub fn cpu_summary(runs: &[Run]) -> Option<String> {
    let mut shares: Vec<f64> = runs.iter().map(|run| run.cpu_busy).filter(|share| share.is_finite()).collect();
    shares.sort_by(f64::total_cmp);
    let (median, most) = (shares.get(shares.len() / 2)?, shares.last()?);
    let percent = crate::report::number::format_percent;
    Some(format!(
        "Of all cores together, {} were busy in the median run and {} in the busiest.",
        percent(*median),
        percent(*most)
    ))
}

/// Explanation above the table of groups.
pub const NOTE: &str = "Medians over valid runs, in Mbit/s. The congestion control is what the kernel said the connections had. \
    Retransmissions are counted over all of the run, short flows in milliseconds from their first packet to the receiver's answer.";

/// Returns a row for each group of every treatment at every combination of levels.
#[must_use]
pub fn table(view: &ReportView) -> ReportTable {
    let factors = &view.results.manifest.factors;
    let mut titles: Vec<String> = factors.iter().map(|(name, _)| name.clone()).collect();
    titles.extend(["Treatment", "Group", "Congestion control", "#Connections"].map(str::to_owned));
    titles.extend(["#All", "#Each", "#Least – most", "#Retransmissions", "#Short flows"].map(str::to_owned));
    let mut table = ReportTable::new(&titles);
    for levels in &view.combinations {
        for (style, treatment) in view.treatments.iter().enumerate() {
            let runs: Vec<&Run> = view.valid_runs(levels, treatment).collect();
            let names = runs.first().map(|run| run.groups.iter().map(|group| group.name.clone()).collect::<Vec<_>>());
            for name in names.unwrap_or_default() {
                let groups: Vec<&GroupRun> =
                    runs.iter().flat_map(|run| &run.groups).filter(|group| group.name == name).collect();
                table.push(row(view, levels, style, treatment, &groups));
            }
        }
    }
    table.without_empty_columns().grouped_by(factors.len())
}

fn row(view: &ReportView, levels: &Levels, style: usize, treatment: &str, groups: &[&GroupRun]) -> Vec<TableCell> {
    let factors = view.results.manifest.factors.iter();
    let mut row: Vec<TableCell> =
        factors.map(|(name, _)| levels.get(name).cloned().unwrap_or_default().into()).collect();
    let of = |figure: fn(&GroupRun) -> Option<f64>| {
        let values: Vec<f64> = groups.iter().filter_map(|group| figure(group)).collect();
        if values.is_empty() { String::new() } else { format_significant(median(&values)) }
    };
    let rates = || groups.iter().flat_map(|group| group.rates.iter().copied());
    let ends = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
    let (first, connections) = (groups.first(), groups.first().map_or(0, |group| group.rates.len()));
    row.push(TableCell::new(treatment, CellKind::Treatment(style)));
    row.push(first.map_or_else(String::new, |group| group.name.clone()).into());
    row.push(first.map_or_else(String::new, |group| group.congestion.clone()).into());
    row.push(if connections > 0 { connections.to_string() } else { String::new() }.into());
    row.push(of(|group| Some(group.mbit_s)).into());
    row.push(of(|group| mean(&group.rates)).into());
    row.push(if connections > 1 { format_interval(ends[0], ends[1]) } else { String::new() }.into());
    #[allow(clippy::cast_precision_loss, reason = "a number of packets")]
    row.push(of(|group| group.retransmits.map(|count| count as f64)).into());
    row.push(of(|group| (!group.completions.is_empty()).then(|| median(&group.completions))).into());
    row
}

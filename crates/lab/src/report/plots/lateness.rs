//! Charts of the lateness of packets that leave the emulator.

use crate::report::chart::{Chart, Histogram, HistogramBin, Scale};
use crate::report::number::{format_count, format_nanos, format_percent, pluralized};
use crate::report::plots::ChartGroup;
use crate::report::tables::totals;
use crate::report::view::ReportView;
use ekiden_emulator::ledger::DirectionReport;

/// Returns one histogram for each direction of each link, all with the same axes.
pub fn chart_group(view: &ReportView) -> Option<ChartGroup> {
    let totals: Vec<DirectionReport> = totals(&view.results.runs)
        .into_iter()
        .filter(|sum| sum.lateness.counts.iter().any(|count| *count > 0))
        .collect();
    let directions: Vec<(DirectionReport, Vec<(u32, u64)>)> =
        totals.into_iter().map(|sum| (rebin(&sum), sum)).map(|(bins, sum)| (sum, bins)).collect();
    let first = directions.iter().flat_map(|(_, bins)| bins).map(|(bin, _)| *bin).min()?;
    let last = directions.iter().flat_map(|(_, bins)| bins).map(|(bin, _)| *bin).max()?;
    let shares = directions.iter().flat_map(|(_, bins)| {
        let total = bins.iter().map(|(_, count)| count).sum::<u64>() as f64;
        bins.iter().map(move |(_, count)| *count as f64 / total * 100.0)
    });
    let scale = Scale::for_amounts(shares.chain([0.0]), 4);
    let runs = pluralized(view.results.runs.len(), "run");
    Some(ChartGroup {
        heading: "Lateness of the emulator".to_owned(),
        note: "How long after its ideal time each packet was handed over, valid runs or not.".to_owned(),
        legend: Vec::new(),
        charts: directions.iter().map(|(sum, bins)| chart(sum, bins, first, last, &scale, &runs)).collect(),
    })
}

fn chart(sum: &DirectionReport, bins: &[(u32, u64)], first: u32, last: u32, y: &Scale, runs: &str) -> Chart {
    let total: u64 = bins.iter().map(|(_, count)| count).sum();
    let label_all = last - first < 9;
    let bin = |number: u32| {
        let packets = bins.iter().find(|(bin, _)| *bin == number).map_or(0, |(_, packets)| *packets);
        let share = packets as f64 / total.max(1) as f64;
        let label = if label_all || number.is_multiple_of(3) { bin_label(number) } else { String::new() };
        let hint =
            format!("up to {}: {} of packets ({})", bin_label(number), format_percent(share), format_count(packets));
        HistogramBin { label, value: share * 100.0, tooltip: hint }
    };
    let bins = (first..=last).map(bin).collect();
    let title = format!("{}, {} → {}: lateness of packets, {runs}", sum.link, sum.from, sum.to);
    let quantile = |q| format_nanos(sum.lateness.quantile(q));
    let description = format!(
        "{} packets; half within {}, 99 % within {}, 99.9 % within {}, the latest {}.",
        format_count(total),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        format_nanos(sum.lateness.max)
    );
    let (x_label, y_label) = ("late by up to (logarithmic)".to_owned(), "% of packets".to_owned());
    Histogram { x_label, y_label, y: y.clone(), style: 1, bins }.chart(title, description)
}

/// Combines the buckets of a direction into bins that end at 1, 2 and 5 times powers of ten nanoseconds. Returns pairs
/// of bin number and packets.
fn rebin(sum: &DirectionReport) -> Vec<(u32, u64)> {
    let mut bins: Vec<(u32, u64)> = Vec::new();
    for (bound, packets) in sum.lateness.bounds.iter().zip(&sum.lateness.counts).filter(|(_, packets)| **packets > 0) {
        // The last bucket is open: the latest packet bounds it.
        let number = bin_of((*bound).min(sum.lateness.max));
        match bins.last_mut().filter(|(last, _)| *last == number) {
            Some((_, sum)) => *sum += packets,
            None => bins.push((number, *packets)),
        }
    }
    bins
}

/// Returns the number of the bin of a lateness: bin 0 ends at 1 ns, 1 at 2 ns, 2 at 5 ns, 3 at 10 ns, ...
fn bin_of(nanos: u64) -> u32 {
    (0..57).find(|number| bin_end(*number) >= nanos).unwrap_or(57)
}

/// Returns the upper bound of a bin, in nanoseconds.
fn bin_end(bin: u32) -> u64 {
    [1, 2, 5][bin as usize % 3] * 10u64.pow(bin / 3)
}

/// Formats the upper bound of a bin with its unit. The bound is a round number, so it needs no decimals.
fn bin_label(bin: u32) -> String {
    let nanos = bin_end(bin);
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} µs", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", nanos / 1_000_000),
        _ => format!("{} s", nanos / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_emulator::lateness::LatenessHistogram;

    #[test]
    fn bins_end_at_round_numbers() {
        assert_eq!([0, 1, 2, 3, 9, 10, 11, u64::MAX].map(bin_of), [0, 0, 1, 2, 3, 3, 4, 57]);
        assert_eq!([0, 3, 9, 14, 27].map(bin_label), ["1 ns", "10 ns", "1 µs", "50 µs", "1 s"]);
    }

    #[test]
    fn buckets_of_any_width_are_summed() {
        let lateness = LatenessHistogram { bounds: vec![3, 4, 40, u64::MAX], counts: vec![1, 2, 4, 8], max: 90 };
        let bins = rebin(&DirectionReport { lateness, ..DirectionReport::default() });
        assert_eq!(bins, [(2, 3), (5, 4), (6, 8)]);
    }
}

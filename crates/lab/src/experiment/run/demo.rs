//! Text of the demonstration: one file over a long path, direct and through relays.

use std::fmt::Write;

use crate::experiment::collect::results::{CellSummary, Results};

const BAR_WIDTH: usize = 40;

/// Returns the result of the demonstration as text for a terminal.
#[must_use]
pub fn summary_text(results: &Results) -> String {
    let mut text = String::from("\nOne file over a path of 50 ms, windows of 512 KiB:\n\n");
    text.push_str(&cell_lines(&results.cells));
    text.push('\n');
    text.push_str(&conclusion(&results.cells));
    text
}

fn cell_lines(cells: &[CellSummary]) -> String {
    let fastest = cells.iter().map(|cell| cell.summary.median).fold(0.0, f64::max);
    let mut text = String::new();
    for cell in cells {
        if cell.summary.n == 0 {
            let _ = writeln!(text, "  {:<14} no valid run, see above", display_name(&cell.treatment));
            continue;
        }
        let ratio = cell.ratio.map_or_else(|| "  1.00x".into(), |ratio| format!("{:>6.2}x", ratio.median));
        let bar = bar(cell.summary.median, fastest);
        let _ =
            writeln!(text, "  {:<14}{:>8.1} MB/s {ratio}  {bar}", display_name(&cell.treatment), cell.summary.median);
    }
    text
}

fn display_name(treatment: &str) -> String {
    treatment.replace('-', " ")
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a bar")]
fn bar(value: f64, most: f64) -> String {
    if most > 0.0 { "█".repeat((value / most * BAR_WIDTH as f64).round() as usize) } else { String::new() }
}

fn conclusion(cells: &[CellSummary]) -> String {
    let best = cells.iter().filter_map(|cell| cell.ratio).map(|ratio| ratio.median).fold(0.0, f64::max);
    if best < 1.2 {
        return "The relays made little difference. If other programs keep this machine busy, stop them and repeat the \
                demo.\n"
            .into();
    }
    format!(
        "A connection carries one window in each round trip. Relays cut the path into sections with shorter round trips,\n\
         and each section carries its own window: up to {best:.1} times as much, with the same client, server and links.\n\n\
         Next: `ekiden-lab list`, and `ekiden-lab run masuya2014-position` to see where a relay should be.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::collect::results::Summary;

    fn cell(treatment: &str, median: f64, ratio: Option<f64>) -> CellSummary {
        let summary = |median| Summary { n: 1, median, ..Summary::default() };
        CellSummary { ratio: ratio.map(summary), ..CellSummary::for_test(treatment, summary(median)) }
    }

    fn summary_for_ratio(ratio: f64) -> String {
        summary_text(&Results {
            cells: vec![cell("direct", 10.0, None), cell("one-relay", 10.0 * ratio, Some(ratio))],
            ..Results::default()
        })
    }

    #[test]
    fn summary_has_a_line_per_treatment_and_a_conclusion() {
        let text = summary_for_ratio(2.0);
        assert!(text.contains("one relay         20.0 MB/s   2.00x") && text.contains("up to 2.0 times"), "{text}");
        assert_eq!(text.matches('█').count(), BAR_WIDTH + BAR_WIDTH / 2);
    }

    #[test]
    fn treatment_without_a_valid_run_has_no_figure() {
        let mut failed = cell("direct", 0.0, None);
        failed.summary.n = 0;
        let text = cell_lines(&[failed]);
        assert_eq!(text, "  direct         no valid run, see above\n");
    }

    #[test]
    fn summary_reports_a_small_difference() {
        assert!(summary_for_ratio(1.05).contains("little difference"));
    }
}

//! Renders the terminal output at the end of an experiment.

use crate::experiment::collect::results::{ExpectationOutcome, ExpectationVerdict, Results};
use crate::report::table::{Column, ReportTable};
use crate::report::view::ReportView;
use crate::report::{gains, tables};

/// Minimum width of the text, in characters.
const MIN_COLUMN_WIDTH: usize = 40;

/// Renders the table of cells, warnings and verdicts, in lines of at most `width` characters, except for longer words.
/// The last line has the counts and is never broken: `12 expectations: 11 met, 1 missed`, or `run invalid: …`.
#[must_use]
pub fn render_terminal(results: &Results, width: usize) -> String {
    let width = width.max(MIN_COLUMN_WIDTH);
    let view = ReportView::new(results);
    let mut lines = wrap(&format!("{}: {}", results.manifest.name, results.manifest.title), "", width);
    for table in [tables::cells(&view), gains::table(&view)] {
        if !table.rows.is_empty() {
            lines.push(String::new());
            lines.extend(align_columns(&table, width));
        }
    }
    let warnings = view.warnings();
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings.iter().flat_map(|warning| wrap(&format!("warning: {warning}"), "  ", width)));
    }
    let outcomes = view.outcomes();
    if !outcomes.is_empty() {
        lines.push(String::new());
        lines.extend(outcomes.iter().flat_map(|outcome| wrap(&verdict(outcome), "         ", width)));
    }
    lines.push(String::new());
    lines.push(printable(&view.verdict_line()));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn verdict(outcome: &ExpectationOutcome) -> String {
    let word = match outcome.verdict {
        ExpectationVerdict::Met => "met    ",
        ExpectationVerdict::Missed => "MISSED ",
        ExpectationVerdict::Unknown => "unknown",
    };
    let mut text = format!("{word}  {}", outcome.expected);
    if let Some(published) = &outcome.published {
        text += &format!("; published {published}");
    }
    if let Some(ours) = &outcome.ours {
        text += &format!("; ours {ours}");
    }
    if let Some(interval) = &outcome.interval {
        text += &format!(" ({interval})");
    }
    if let Some(remark) = &outcome.remark {
        text += &format!("; {remark}");
    }
    text
}

/// Formats a table in columns two spaces apart, with numbers aligned to the right.
pub fn align_columns(table: &ReportTable, width: usize) -> Vec<String> {
    let head: Vec<&str> = table.columns.iter().map(|column| column.title.as_str()).collect();
    let body = table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>());
    let rows: Vec<Vec<&str>> = std::iter::once(head).chain(body).collect();
    let widths = widths(&rows, width);
    rows.iter().map(|row| line(row, &table.columns, &widths)).collect()
}

fn line(row: &[&str], columns: &[Column], widths: &[usize]) -> String {
    let mut text = String::new();
    for ((cell, column), &width) in row.iter().zip(columns).zip(widths) {
        let cell = truncate(cell, width);
        let padded = if column.numeric { format!("{cell:>width$}  ") } else { format!("{cell:<width$}  ") };
        text.push_str(&padded);
    }
    text.truncate(text.trim_end().len());
    text
}

/// Returns the width of the widest cell of each column. The widest columns are narrowed until the line fits.
fn widths(rows: &[Vec<&str>], width: usize) -> Vec<usize> {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    let gaps = 2 * columns.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > width {
        match widths.iter_mut().max() {
            Some(most) if *most > 3 => *most -= 1,
            _ => break,
        }
    }
    widths
}

/// Replaces control characters, which could move the cursor: reasons may quote the output of a program.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn truncate(text: &str, width: usize) -> String {
    let text = printable(text);
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Breaks text into lines of at most `width`; all lines except the first begin with `indent`.
pub fn wrap(text: &str, indent: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in printable(text).split(' ') {
        if line.chars().count() + 1 + word.chars().count() > width && !line.trim().is_empty() {
            lines.push(line.trim_end().to_owned());
            line = format!("{indent}{word}");
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

//! Renders the tables of a report as Markdown.

use crate::experiment::collect::results::Results;
use crate::report::table::{CellKind, ReportTable};
use crate::report::view::ReportView;
use crate::report::{floors, gains, paths, tables};

/// Renders everything except the plots as GitHub-flavoured Markdown.
#[must_use]
pub fn render_markdown(results: &Results) -> String {
    let view = ReportView::new(results);
    let manifest = &results.manifest;
    let mut text = format!("# {}\n\n{}\n\n", escape(&manifest.name), escape(&manifest.title));
    if let Some(source) = &manifest.source {
        text += &format!("After {}.\n\n", escape(source));
    }
    text += &format!("**{}**\n\n", escape(&view.verdict_line()));
    push_section(&mut text, "Expectations", &tables::outcomes(&view));
    if !results.gains.is_empty() {
        text += &format!("## Gains\n\n{}\n\n", gains::NOTE);
        push_rows(&mut text, &gains::table(&view));
    }
    let warnings = view.warnings();
    if !warnings.is_empty() {
        text += "## Warnings\n\n";
        for warning in &warnings {
            text += &format!("- {}\n", escape(warning));
        }
        text.push('\n');
    }
    push_section(&mut text, "Results", &tables::cells(&view));
    for further in results.by_extra_metrics() {
        let view = ReportView::new(&further);
        push_section(&mut text, &format!("Results: {}", view.metric_name()), &tables::cells(&view));
    }
    if !results.floors.is_empty() {
        text += &format!("## Arithmetic floors\n\n{}\n\n", floors::FORMULA_LEGEND);
        push_rows(&mut text, &floors::table(&view));
    }
    if results.runs.iter().any(|run| !run.groups.is_empty()) {
        text += &format!("## Groups\n\n{}\n\n", tables::NOTE);
        push_rows(&mut text, &tables::table(&view));
    }
    push_section(&mut text, "Paths", &paths::table(&view));
    push_section(&mut text, "Link validation", &tables::checks(results));
    push_section(&mut text, "Invalid runs", &tables::invalid_runs(&view));
    push_section(&mut text, "Emulator: lateness and drops, all runs", &tables::directions(&results.runs));
    if let Some(busy) = tables::cpu_summary(&results.runs) {
        text += &format!("{busy}\n\n");
    }
    push_section(&mut text, "Experiment", &tables::pairs(&tables::identity(results)));
    push_section(&mut text, "Machine", &tables::pairs(&manifest.machine));
    push_section(&mut text, "Programs", &tables::pairs(&manifest.programs));
    push_section(&mut text, "Settings", &tables::pairs(&manifest.settings));
    let fence = fence(&manifest.file);
    text += &format!("## Experiment file\n\n{fence}toml\n{}\n{fence}\n", manifest.file.trim_end());
    text
}

pub(super) fn push_section(text: &mut String, title: &str, table: &ReportTable) {
    if table.rows.is_empty() {
        return;
    }
    *text += &format!("## {title}\n\n");
    push_rows(text, table);
}

pub(super) fn push_rows(text: &mut String, table: &ReportTable) {
    let titles = table.columns.iter().map(|column| escape(&column.title));
    *text += &row_line(titles);
    *text += &row_line(table.columns.iter().map(|column| if column.numeric { "--:" } else { "---" }.to_owned()));
    for row in &table.rows {
        *text += &row_line(row.iter().map(|cell| match cell.kind {
            CellKind::Bad => format!("**{}**", escape(&cell.text)),
            _ => escape(&cell.text),
        }));
    }
    text.push('\n');
}

fn row_line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// Returns a code fence that is longer than any run of backticks in `text`.
fn fence(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(3.max(longest + 1))
}

/// Escapes text, so that it is neither Markdown markup nor the end of a table cell.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' | '~' => safe.extend(['\\', letter]),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            _ if letter.is_control() => safe.push(' '),
            _ => safe.push(letter),
        }
    }
    safe
}

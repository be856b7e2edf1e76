//! The tables of a report as Markdown, to be pasted into a note.

use crate::experiment::results::Results;
use crate::report::table::{Table, Tone};
use crate::report::view::View;
use crate::report::{floors, gains, groups, paths, tables};

/// Everything but the plots, as GitHub-flavoured Markdown.
#[must_use]
pub fn markdown(results: &Results) -> String {
    let view = View::new(results);
    let manifest = &results.manifest;
    let mut text = format!("# {}\n\n{}\n\n", escape(&manifest.name), escape(&manifest.title));
    if let Some(source) = &manifest.source {
        text += &format!("After {}.\n\n", escape(source));
    }
    text += &format!("**{}**\n\n", escape(&view.verdict()));
    section(&mut text, "Expectations", &tables::outcomes(&view));
    if !results.gains.is_empty() {
        text += &format!("## Gains\n\n{}\n\n", gains::NOTE);
        rows(&mut text, &gains::table(&view));
    }
    let warnings = view.warnings();
    if !warnings.is_empty() {
        text += "## Warnings\n\n";
        for warning in &warnings {
            text += &format!("- {}\n", escape(warning));
        }
        text.push('\n');
    }
    section(&mut text, "Results", &tables::cells(&view));
    for further in results.by_further_figures() {
        let view = View::new(&further);
        section(&mut text, &format!("Results: {}", view.metric()), &tables::cells(&view));
    }
    if !results.floors.is_empty() {
        text += &format!("## Arithmetic floors\n\n{}\n\n", floors::LETTERS);
        rows(&mut text, &floors::table(&view));
    }
    if results.runs.iter().any(|run| !run.groups.is_empty()) {
        text += &format!("## Groups\n\n{}\n\n", groups::NOTE);
        rows(&mut text, &groups::table(&view));
    }
    section(&mut text, "Paths", &paths::table(&view));
    section(&mut text, "Link validation", &tables::checks(results));
    section(&mut text, "Invalid runs", &tables::invalid_runs(&view));
    section(&mut text, "Emulator: lateness and drops, all runs", &tables::directions(&results.runs));
    if let Some(busy) = tables::busy(&results.runs) {
        text += &format!("{busy}\n\n");
    }
    section(&mut text, "Experiment", &tables::pairs(&tables::identity(results)));
    section(&mut text, "Machine", &tables::pairs(&manifest.machine));
    section(&mut text, "Programs", &tables::pairs(&manifest.programs));
    section(&mut text, "Settings", &tables::pairs(&manifest.settings));
    let fence = fence(&manifest.file);
    text += &format!("## Experiment file\n\n{fence}toml\n{}\n{fence}\n", manifest.file.trim_end());
    text
}

fn section(text: &mut String, title: &str, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    *text += &format!("## {title}\n\n");
    rows(text, table);
}

fn rows(text: &mut String, table: &Table) {
    let titles = table.columns.iter().map(|column| escape(&column.title));
    *text += &line(titles);
    *text += &line(table.columns.iter().map(|column| if column.numeric { "--:" } else { "---" }.to_owned()));
    for row in &table.rows {
        *text += &line(row.iter().map(|cell| match cell.tone {
            Tone::Bad => format!("**{}**", escape(&cell.text)),
            _ => escape(&cell.text),
        }));
    }
    text.push('\n');
}

fn line(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// Longer than any run of backticks inside.
fn fence(text: &str) -> String {
    let longest = text.split(|letter| letter != '`').map(str::len).max().unwrap_or(0);
    "`".repeat(3.max(longest + 1))
}

/// Text that is neither markup nor the end of a cell.
fn escape(text: &str) -> String {
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

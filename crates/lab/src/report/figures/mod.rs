//! The pages of `docs/results/`, from the figures that are stored beside them: equal figures give equal pages.

mod earlier;
mod html;
mod index;
mod pages;

use crate::experiment::judge::figures::PublishedFigures;
use crate::report::markdown::{escape, push_rows, push_section};
use crate::report::view::{Levels, ReportView};
use crate::report::{floors, gains, tables};

pub use earlier::{EarlierRun, with_notice};
pub use html::render_figures_html;
pub use index::{Listing, render_index, render_published};
pub use pages::{ResultPages, store_figures};

/// The page of one experiment, without charts.
#[must_use]
pub fn render_figures_page(figures: &PublishedFigures) -> String {
    let results = figures.to_results();
    let view = ReportView::new(&results);
    let manifest = &figures.manifest;
    let mut text = format!("# {}\n\n{}\n\n", escape(&manifest.name), escape(&manifest.title));
    if let Some(source) = &manifest.source {
        text += &format!("After {}.\n\n", escape(source));
    }
    text += &format!("**{}.** {}\n\n", verdict_line(&view), circumstances(figures));
    push_section(&mut text, "Expectations", &tables::outcomes(&view));
    if !figures.gains.is_empty() {
        text += &format!("## Gains\n\n{}\n\n", gains::NOTE);
        push_rows(&mut text, &gains::table(&view));
    }
    push_list(&mut text, "Warnings", &figures.warnings);
    push_section(&mut text, "Results", &tables::cells(&view));
    for further in results.by_extra_metrics() {
        let view = ReportView::new(&further);
        push_section(&mut text, &format!("Results: {}", view.metric_name()), &tables::cells(&view));
    }
    if !figures.floors.is_empty() {
        text += &format!("## Arithmetic floors\n\n{}\n\n", floors::FORMULA_LEGEND);
        push_rows(&mut text, &floors::table(&view));
    }
    push_commands(&mut text, figures);
    push_section(&mut text, "Machine", &tables::pairs(&manifest.machine));
    push_section(&mut text, "Programs", &tables::pairs(&manifest.programs));
    text.truncate(text.trim_end().len());
    text + "\n"
}

/// The number of met and missed expectations.
fn verdict_line(view: &ReportView) -> String {
    if view.results.outcomes.is_empty() { "No expectations".to_owned() } else { view.outcome_line() }
}

/// Size, blocks, runs, clock, time and seed, as a sentence.
fn circumstances(figures: &PublishedFigures) -> String {
    let (manifest, clock) = (&figures.manifest, if figures.is_virtual() { "virtual" } else { "real" });
    format!(
        "Full size in {clock} time, {} blocks, {} valid runs, seed {}, started {}.",
        manifest.blocks, figures.runs, manifest.seed, manifest.started
    )
}

fn push_list(text: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    *text += &format!("## {title}\n\n");
    items.iter().for_each(|item| *text += &format!("- {}\n", escape(item)));
    text.push('\n');
}

/// The commands that make all figures again, and those of one cell.
fn push_commands(text: &mut String, figures: &PublishedFigures) {
    let manifest = &figures.manifest;
    let (name, blocks) = (&manifest.name, manifest.blocks);
    *text += "## Run again\n\n```sh\n";
    *text += &format!("ekiden-lab figures --only {name} --blocks {blocks}\n");
    if let Some(cell) = figures.cells.first() {
        let levels = level_arguments(&manifest.factors, &cell.levels);
        let treatment = &cell.treatment;
        *text += &format!("ekiden-lab run {name} --full --blocks {blocks} --only {treatment}{levels}   # one cell\n");
    }
    *text += "```\n\n";
}

fn level_arguments(factors: &[(String, Vec<String>)], levels: &Levels) -> String {
    let argument = |name: &String| levels.get(name).map(|level| format!(" --at '{name}={level}'"));
    factors.iter().filter_map(|(name, _)| argument(name)).collect()
}

//! Renders the pages of `docs/results/` from the figures stored beside them. Equal figures give equal pages.

mod check;
mod earlier;
mod index;
mod pages;

use crate::experiment::judge::figures::PublishedFigures;
use crate::report::markdown::{escape, push_rows, push_section};
use crate::report::markup::Markup;
use crate::report::page::{draw_group, draw_page, draw_section};
use crate::report::view::{Levels, ReportView};
use crate::report::{floors, gains, plots, tables};

pub use check::compare_figures;
pub use earlier::{EarlierRun, with_notice};
pub use index::{Listing, render_index, render_published};
pub use pages::{ResultPages, load_figures, remove_stale_figures, store_figures};

/// Renders the page of one experiment as Markdown, without charts.
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

/// Renders one HTML page with the charts of all published figures, and a table of contents.
#[must_use]
pub fn render_figures_html(published: &[&PublishedFigures]) -> String {
    draw_page("ekiden: results of the laboratory", |main| {
        main.element("header", &[], |header| {
            header.leaf("h1", &[], "Results of the laboratory");
            let facts = "Medians of valid runs of the full size, with 95 % confidence intervals.";
            header.leaf("p", &[("class", &"facts")], facts);
        });
        main.element("ul", &[], |list| {
            for figures in published {
                let (name, title) = (&figures.manifest.name, &figures.manifest.title);
                list.element("li", &[], |item| item.leaf("a", &[("href", &format!("#{name}"))], title));
            }
        });
        published.iter().for_each(|figures| draw_experiment(main, figures));
    })
}

fn draw_experiment(main: &mut Markup, figures: &PublishedFigures) {
    let results = figures.to_results();
    let view = ReportView::new(&results);
    let manifest = &figures.manifest;
    main.element("header", &[("id", &manifest.name)], |header| {
        header.leaf("p", &[("class", &"eyebrow")], &manifest.name);
        header.leaf("h1", &[], &manifest.title);
        header.leaf("p", &[("class", &"facts")], &format!("{}. {}", verdict_line(&view), circumstances(figures)));
    });
    if let Some(charts) = plots::metric_charts(&view) {
        draw_group(main, &charts);
    }
    for further in results.by_extra_metrics() {
        if let Some(charts) = plots::metric_charts(&ReportView::new(&further)) {
            draw_group(main, &charts);
        }
    }
    draw_section(main, "Expectations", &tables::outcomes(&view), "");
    draw_section(main, "Gains", &gains::table(&view), gains::NOTE);
}

/// Returns the number of met and missed expectations, as text.
fn verdict_line(view: &ReportView) -> String {
    if view.results.outcomes.is_empty() { "No expectations".to_owned() } else { view.outcome_line() }
}

/// Returns size, clock, blocks, runs, seed and start time, as a sentence.
fn circumstances(figures: &PublishedFigures) -> String {
    let (manifest, clock) = (&figures.manifest, if figures.is_virtual() { "virtual" } else { "real" });
    let is_constant = figures.cells.iter().all(|cell| cell.summary.min >= cell.summary.max);
    let equal = if is_constant { " All blocks are equal: nothing in these runs is random." } else { "" };
    format!(
        "Full size in {clock} time, {} blocks, {} valid runs, seed {}, started {}.{equal}",
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

/// Appends the commands that reproduce all figures, or one cell.
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

//! Renders the list of all experiments with the state of their figures, and the page of published figures.

use super::{EarlierRun, verdict_line};
use crate::experiment::judge::figures::PublishedFigures;
use crate::experiment::judge::published::{self, PublishedRow};
use crate::experiment::spec::read::Experiment;
use crate::report::markdown::{escape, push_rows};
use crate::report::number::format_significant;
use crate::report::table::ReportTable;
use crate::report::tables::verdict;
use crate::report::view::ReportView;

/// An experiment, and its figures.
#[derive(Debug)]
pub struct Listing<'a> {
    /// Experiment of this row of the list.
    pub experiment: &'a Experiment,
    /// Published figures of the experiment; `None` if there are none.
    pub figures: Option<PublishedFigures>,
    /// Earlier run with a report, if there are no published figures.
    pub earlier: Option<EarlierRun>,
}

impl Listing<'_> {
    fn clock(&self) -> &'static str {
        self.experiment.settings.clock.name()
    }

    fn command(&self) -> String {
        format!("ekiden-lab figures --only {}", self.experiment.name)
    }
}

/// Renders a table of all experiments: circumstances and verdicts of the published figures, or the command that creates
/// the figures.
#[must_use]
pub fn render_index(listings: &[Listing]) -> String {
    let mut text = String::from("| experiment | published figures | otherwise |\n| --- | --- | --- |\n");
    for listing in listings {
        let name = &listing.experiment.name;
        let (page, figures, otherwise) = match (&listing.figures, &listing.earlier) {
            (Some(figures), _) => (format!("[{name}]({name}.md)"), state(figures), String::new()),
            (None, Some(run)) => {
                (format!("[{name}]({name}.md)"), "none".into(), format!("earlier run: {}", run.describe()))
            }
            (None, None) => (name.clone(), "none".into(), String::new()),
        };
        let missing = if listing.figures.is_none() { format!("`{}`", listing.command()) } else { String::new() };
        let parts = [otherwise, missing].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ");
        text += &format!("| {page} | {figures} | {parts} |\n");
    }
    text
}

fn state(figures: &PublishedFigures) -> String {
    let results = figures.to_results();
    let (clock, manifest) = (if figures.is_virtual() { "virtual" } else { "real" }, &figures.manifest);
    let verdicts = verdict_line(&ReportView::new(&results));
    format!("{clock} time, {} blocks, {} runs; {verdicts}", manifest.blocks, figures.runs)
}

/// Renders the page of published figures, with the figures of today's programs and of ekiden.
#[must_use]
pub fn render_published(listings: &[Listing]) -> String {
    let mut text = String::from(
        "# Published figures\n\nEach figure of the publications behind ekiden that the laboratory repeats: as published, with today's \
         versions of the published programs, and with ekiden. A pair of figures is without and with relays. The verdict is that of the \
         expectation in the experiment file. `ekiden-lab figures` writes this page.\n",
    );
    for listing in listings.iter().filter(|listing| has_published(listing.experiment)) {
        let experiment = listing.experiment;
        let source = experiment.source.as_deref().unwrap_or_default();
        text += &format!("\n## {}\n\n{}\n\n", experiment.name, escape(&experiment.title));
        let rows = match &listing.figures {
            Some(figures) => {
                text += &format!("After {}; {}.\n\n", escape(source), state(figures));
                figures.published.clone()
            }
            None => {
                let (clock, command) = (listing.clock(), listing.command());
                text +=
                    &format!("After {}. Not measured in full yet, clock: {clock}; `{command}`.\n\n", escape(source));
                published::published_rows(experiment, &[])
            }
        };
        push_rows(&mut text, &published_table(&rows));
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

fn has_published(experiment: &Experiment) -> bool {
    experiment.expectations.iter().any(published::is_published)
}

fn published_table(rows: &[PublishedRow]) -> ReportTable {
    let titles = ["Source", "Cell", "#Published", "#Today", "#ekiden", "#ekiden ÷ today", "Verdict", "Why"];
    let mut table = ReportTable::new(&titles);
    for row in rows {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        table.push(vec![
            row.source.clone().into(),
            row.cell.clone().into(),
            row.published.clone().into(),
            text(&row.today).into(),
            text(&row.ekiden).into(),
            row.ratio.map(format_significant).unwrap_or_default().into(),
            verdict(row.verdict),
            text(&row.why).into(),
        ]);
    }
    table.without_empty_columns()
}

//! Checks docs/results/: every page matches the stored figures, missed published figures have a reason, and figures
//! that other pages quote match the stored figures. `ekiden-lab figures --pages` writes the pages.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[allow(dead_code, reason = "the tests of ekiden use the rest")]
#[path = "../../../tests/docs/code_blocks.rs"]
mod code_blocks;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use ekiden_lab::experiment::collect::results::{CellSummary, ExpectationVerdict};
use ekiden_lab::experiment::judge::figures::PublishedFigures;
use ekiden_lab::experiment::spec::builtin::BUILT_IN_EXPERIMENTS;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::report::figures::{ResultPages, remove_stale_figures};
use ekiden_lab::temp_dir::TempDir;
use serde::Deserialize;

fn results_dir() -> PathBuf {
    code_blocks::root().join("docs/results")
}

/// All built-in experiments. They are parsed once, because that takes seconds.
static EXPERIMENTS: LazyLock<Vec<Experiment>> =
    LazyLock::new(|| BUILT_IN_EXPERIMENTS.map(|(name, text)| Experiment::parse(name, text).unwrap()).into());

fn result_pages() -> ResultPages<'static> {
    ResultPages::load(&results_dir(), &EXPERIMENTS).unwrap()
}

fn files_with_extension(extension: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(results_dir()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|own| own == extension)).collect()
}

fn is_built_in(path: &Path) -> bool {
    BUILT_IN_EXPERIMENTS.iter().any(|(name, _)| path.file_stem().is_some_and(|stem| stem == *name))
}

#[test]
fn every_page_matches_the_stored_figures() {
    let pages = result_pages().render().unwrap();
    let differs =
        |(name, text): &(&String, &String)| fs::read_to_string(results_dir().join(name)).unwrap_or_default() != **text;
    let wrong: Vec<&String> = pages.iter().filter(differs).map(|(name, _)| name).collect();
    assert!(wrong.is_empty(), "not as the stored figures: {wrong:?}; `ekiden-lab figures --pages` writes them");
    let stored = files_with_extension("json");
    assert!(stored.len() > 10, "only {} files of figures were found", stored.len());
    let foreign: Vec<PathBuf> = stored.into_iter().filter(|path| !is_built_in(path)).collect();
    assert!(foreign.is_empty(), "figures of no experiment: {foreign:?}");
}

#[test]
fn missed_published_figures_have_a_reason() {
    let pages = result_pages();
    let all = EXPERIMENTS.iter().filter_map(|experiment| pages.figures(&experiment.name));
    let rows = all.flat_map(|figures| figures.published.iter().map(|row| (&figures.manifest.name, row)));
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 10, "only {} published figures were found", rows.len());
    let missed = rows.into_iter().filter(|(_, row)| row.verdict != ExpectationVerdict::Met && row.why.is_none());
    let missed: Vec<_> = missed.map(|(name, row)| format!("{name}: {}, {}", row.source, row.cell)).collect();
    assert!(missed.is_empty(), "add a `remark` to these expectations: {missed:#?}");
}

/// The contents of docs/results/quoted.toml: the figures that other pages quote.
#[derive(Deserialize)]
struct Quotations {
    #[serde(default)]
    quote: Vec<Quotation>,
}

#[derive(Deserialize)]
struct Quotation {
    page: String,
    text: String,
    experiment: String,
    figures: Vec<QuotedFigure>,
}

/// A number of the text, and the cell that it comes from.
#[derive(Deserialize)]
struct QuotedFigure {
    value: String,
    treatment: String,
    #[serde(default)]
    at: BTreeMap<String, String>,
    metric: Option<String>,
    /// Whether the number is the ratio to the first treatment.
    #[serde(default)]
    ratio: bool,
}

impl QuotedFigure {
    /// The stored value with as many decimals as the quoted value; None if there is no such cell.
    fn stored(&self, figures: &PublishedFigures) -> Option<String> {
        let metric = self.metric.as_ref().filter(|metric| **metric != figures.manifest.metric.key);
        let cells = match metric {
            Some(key) => &figures.also.iter().find(|also| also.metric.key == *key)?.cells,
            None => &figures.cells,
        };
        let is_here = |cell: &&CellSummary| cell.treatment == self.treatment && cell.levels == self.at;
        let cell = cells.iter().find(is_here)?;
        let value = if self.ratio { cell.ratio?.median } else { cell.summary.median };
        let decimals = self.value.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        Some(format!("{value:.decimals$}"))
    }
}

fn quotations() -> Vec<Quotation> {
    let text = fs::read_to_string(results_dir().join("quoted.toml")).unwrap();
    toml::from_str::<Quotations>(&text).unwrap().quote
}

/// The words of a text with single spaces between them, to compare texts with different line breaks.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn quoted_figures_match_the_stored_figures() {
    let pages = result_pages();
    let (quotations, mut wrong) = (quotations(), Vec::new());
    assert!(quotations.len() > 3, "only {} quotations were found", quotations.len());
    for quote in &quotations {
        let place = format!("{}, {:?}", quote.page, quote.text);
        let page = fs::read_to_string(code_blocks::root().join(&quote.page)).unwrap();
        if !words(&page).contains(&words(&quote.text)) {
            wrong.push(format!("{place}: not in the page"));
        }
        let Some(stored) = pages.figures(&quote.experiment) else {
            wrong.push(format!("{place}: {} has no published figures", quote.experiment));
            continue;
        };
        for figure in &quote.figures {
            let own = figure.stored(stored);
            if own.as_ref() != Some(&figure.value) || !quote.text.contains(&figure.value) {
                wrong.push(format!("{place}: {} {} is {own:?}", figure.treatment, figure.value));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A paragraph, list item or table row with a link to the results of an experiment must contain a text of
/// docs/results/quoted.toml, or the words `earlier run`.
#[test]
fn links_to_results_quote_figures_or_name_an_earlier_run() {
    let quotations = quotations();
    let (mut links, mut wrong) = (0, Vec::new());
    for page in code_blocks::pages().iter().filter(|page| !page.name.starts_with("docs/results/")) {
        for part in page.text.split("\n\n").flat_map(|part| part.split("\n- ")).flat_map(|part| part.split("\n|")) {
            let part = words(part);
            for (name, _) in BUILT_IN_EXPERIMENTS {
                let is_linked = part.contains(&format!("results/{name}.md)"));
                links += usize::from(is_linked);
                let is_quoted = quotations.iter().any(|quote| {
                    quote.page == page.name && quote.experiment == name && part.contains(&words(&quote.text))
                });
                if is_linked && !is_quoted && !part.contains("earlier run") {
                    wrong.push(format!("{}: {part}", page.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(links > 5, "only {links} links were found");
}

/// Figures of an earlier format are stale and removed. A file that cannot be read may be valid and is kept.
#[test]
fn unreadable_figures_are_not_removed() {
    let folder = TempDir::create(&std::env::temp_dir(), &format!("ekiden-figures-{}", std::process::id())).unwrap();
    let experiment = &EXPERIMENTS[..1];
    let stored = folder.path().join(format!("{}.json", experiment[0].name));
    fs::create_dir(&stored).unwrap();
    let error = remove_stale_figures(folder.path(), experiment).unwrap_err();
    assert!(format!("{error:#}").contains("Is a directory"), "{error:#}");
    fs::remove_dir(&stored).expect("the directory is still there");
    fs::write(&stored, "{}").unwrap();
    let removed = remove_stale_figures(folder.path(), experiment).unwrap();
    assert_eq!(removed.iter().map(|(name, _)| name).collect::<Vec<_>>(), [&experiment[0].name]);
    assert!(!stored.exists());
}

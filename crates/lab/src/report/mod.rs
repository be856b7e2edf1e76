//! Reports of an experiment, for people and for programs: HTML with plots, Markdown, JSON, and terminal output.
//!
//! `view` orders the results and `tables` fills the tables; `page`, `markdown` and `terminal` render them, and `plots`
//! draws the charts. Equal results give byte-identical reports.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::experiment::collect::results::Results;

mod agreement;
mod chart;
mod comparison;
pub mod figures;
mod floors;
mod gains;
mod markdown;
mod markup;
mod number;
mod page;
mod paths;
mod plots;
mod table;
mod tables;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

pub use agreement::{Agreement, CellAgreement};
pub use comparison::render_comparison;
pub use markdown::render_markdown;
pub use page::render_html;
pub use terminal::render_terminal;

/// Writes `report.html`, `report.md` and `report.json` into `dir`, which is created if missing, and returns the path of
/// the first.
///
/// # Errors
/// A file cannot be written. The error names the file.
pub fn write(results: &Results, dir: &Path) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut json = serde_json::to_string_pretty(results).context("cannot write the results as JSON")?;
    json.push('\n');
    for (name, text) in
        [("report.json", json), ("report.md", render_markdown(results)), ("report.html", render_html(results))]
    {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(dir.join("report.html"))
}

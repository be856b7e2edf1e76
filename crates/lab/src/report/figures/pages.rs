//! The files of a directory such as `docs/results/`: stored figures, and the pages made from them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;

use super::{
    EarlierRun, Listing, render_figures_html, render_figures_page, render_index, render_published, with_notice,
};
use crate::experiment::judge::figures::PublishedFigures;
use crate::experiment::spec::read::Experiment;

/// The lines of README.md around the table of experiments.
const BEGIN: &str = "<!-- figures: `ekiden-lab figures` writes this table -->\n";
const END: &str = "<!-- end of figures -->\n";

/// A directory with the published figures of experiments.
#[derive(Debug)]
pub struct ResultPages<'a> {
    dir: PathBuf,
    listings: Vec<Listing<'a>>,
}

impl<'a> ResultPages<'a> {
    /// Reads the stored figures of `experiments`.
    ///
    /// # Errors
    /// A file cannot be read, or has figures that must not be published. The error has the reasons.
    pub fn load(dir: &Path, experiments: &'a [Experiment]) -> anyhow::Result<Self> {
        let listings = experiments.iter().map(|experiment| load_listing(dir, experiment));
        Ok(Self { dir: dir.to_owned(), listings: listings.collect::<Result<_, _>>()? })
    }

    /// Returns the published figures of an experiment; `None` if there are none.
    #[must_use]
    pub fn figures(&self, name: &str) -> Option<&PublishedFigures> {
        self.listings.iter().find(|listing| listing.experiment.name == name)?.figures.as_ref()
    }

    /// Renders all pages, by file name. Equal figures give equal pages. A report without stored figures is from a run
    /// of a smaller size, or of fewer blocks, and its page states this.
    ///
    /// # Errors
    /// README.md cannot be read, or lacks the markers of the table.
    pub fn render(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let all: Vec<&PublishedFigures> = self.listings.iter().filter_map(|listing| listing.figures.as_ref()).collect();
        let page =
            |figures: &&PublishedFigures| (format!("{}.md", figures.manifest.name), render_figures_page(figures));
        let mut pages: BTreeMap<String, String> = all.iter().map(page).collect();
        self.add_earlier_runs(&mut pages)?;
        pages.insert("figures.html".into(), render_figures_html(&all));
        pages.insert("published.md".into(), render_published(&self.listings));
        let path = self.dir.join("README.md");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let parts = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
        let (head, tail) =
            parts.with_context(|| format!("{}: the markers of the table are missing", path.display()))?;
        pages.insert("README.md".into(), format!("{head}{BEGIN}\n{}\n{END}{tail}", render_index(&self.listings)));
        Ok(pages)
    }

    /// Adds the reports without stored figures, with the notice of an earlier run.
    fn add_earlier_runs(&self, pages: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
        for entry in fs::read_dir(&self.dir).with_context(|| self.dir.display().to_string())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") && !pages.contains_key(&name) {
                let text = fs::read_to_string(self.dir.join(&name)).with_context(|| name.clone())?;
                pages.extend(with_notice(&text).map(|text| (name, text)));
            }
        }
        Ok(())
    }

    /// Writes all pages into the directory.
    ///
    /// # Errors
    /// The errors of [`Self::render`], or a page cannot be written.
    pub fn write(&self) -> anyhow::Result<()> {
        for (name, text) in self.render()? {
            let path = self.dir.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// Stores figures as `NAME.json`, each element of a list on a line of its own.
///
/// # Errors
/// The file cannot be written.
pub fn store_figures(dir: &Path, figures: &PublishedFigures) -> anyhow::Result<()> {
    let path = dir.join(format!("{}.json", figures.manifest.name));
    fs::write(&path, to_json_lines(figures)?).with_context(|| path.display().to_string())
}

fn to_json_lines(figures: &impl Serialize) -> anyhow::Result<String> {
    let Value::Object(fields) = serde_json::to_value(figures)? else { unreachable!("figures are a struct") };
    let field = |(name, value): (&String, &Value)| {
        let text = match value {
            Value::Array(items) if !items.is_empty() => {
                let items: Vec<String> = items.iter().map(|item| format!("\n    {item}")).collect();
                format!("[{}\n  ]", items.join(","))
            }
            Value::Object(_) => serde_json::to_string_pretty(value)?.replace('\n', "\n  "),
            _ => value.to_string(),
        };
        Ok(format!("  \"{name}\": {text}"))
    };
    let fields = fields.iter().map(field).collect::<serde_json::Result<Vec<_>>>()?;
    Ok(format!("{{\n{}\n}}\n", fields.join(",\n")))
}

/// Removes stored figures that must not be published for their experiment, and their pages. Returns the names of the
/// experiments, with the reasons.
///
/// # Errors
/// A file cannot be read or removed.
pub fn remove_stale_figures(dir: &Path, experiments: &[Experiment]) -> anyhow::Result<Vec<(String, String)>> {
    let mut removed = Vec::new();
    for experiment in experiments {
        let Err(reason) = load_figures(dir, experiment) else { continue };
        // The figures may be good.
        if reason.is::<io::Error>() {
            return Err(reason);
        }
        for extension in ["md", "json"] {
            let path = dir.join(&experiment.name).with_extension(extension);
            if path.exists() {
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        removed.push((experiment.name.clone(), format!("{reason:#}")));
    }
    Ok(removed)
}

fn load_listing<'a>(dir: &Path, experiment: &'a Experiment) -> anyhow::Result<Listing<'a>> {
    let figures = load_figures(dir, experiment)?;
    let page = dir.join(format!("{}.md", experiment.name));
    let earlier = fs::read_to_string(page).ok().filter(|_| figures.is_none());
    Ok(Listing { experiment, figures, earlier: earlier.and_then(|page| EarlierRun::read(&page)) })
}

/// Returns the stored figures of an experiment; `None` if there are none.
///
/// # Errors
/// A file cannot be read, or has figures that must not be published. The error has the reasons.
pub fn load_figures(dir: &Path, experiment: &Experiment) -> anyhow::Result<Option<PublishedFigures>> {
    let path = dir.join(format!("{}.json", experiment.name));
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let figures: PublishedFigures = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    let reasons = figures.reasons_against(experiment);
    ensure!(reasons.is_empty(), "{}: must not be published: {}", path.display(), reasons.join("; "));
    Ok(Some(figures))
}

//! `ekiden-lab report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::read::Experiment;
use ekiden_lab::experiment::results::Results;
use ekiden_lab::experiment::{analyse, store};
use ekiden_lab::report;

use crate::cli;

#[derive(Args)]
pub struct Report {
    /// A folder of results
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Another folder of results of the same experiment: do the two agree within their intervals?
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
}

impl Report {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let results = read(&self.dir)?;
        if let Some(other) = &self.against {
            let (text, agree) = report::agreement(&results, &read(other)?);
            print!("{text}");
            return Ok(ExitCode::from(if agree { 0 } else { cli::MISSED }));
        }
        let page = report::write(&results, &self.dir)?;
        cli::show(&results);
        println!("\nreport: {}", page.display());
        Ok(ExitCode::from(cli::run::verdict(&results)))
    }
}

fn read(dir: &Path) -> anyhow::Result<Results> {
    let (manifest, runs, checks) = store::read(dir)?;
    let experiment = Experiment::read(&manifest.name, &manifest.file);
    let experiment = experiment.map_err(|mistakes| cli::many(&manifest.name, &mistakes))?;
    Ok(analyse::results(&experiment, &manifest, &runs, &checks))
}

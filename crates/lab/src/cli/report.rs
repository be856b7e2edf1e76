//! `ekiden-lab report`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::read::Experiment;
use ekiden_lab::experiment::{analyse, store};
use ekiden_lab::report;

use crate::cli;

#[derive(Args)]
pub struct Report {
    /// A folder of results
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Report {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (manifest, runs, checks) = store::read(&self.dir)?;
        let experiment = Experiment::read(&manifest.name, &manifest.file);
        let experiment = experiment.map_err(|mistakes| cli::many(&manifest.name, &mistakes))?;
        let results = analyse::results(&experiment, &manifest, &runs, &checks);
        let page = report::write(&results, &self.dir)?;
        cli::show(&results);
        println!("\nreport: {}", page.display());
        Ok(ExitCode::from(cli::run::verdict(&results)))
    }
}

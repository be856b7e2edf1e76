//! `ekiden-lab list`.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::builtin;
use ekiden_lab::experiment::progress::human;
use ekiden_lab::experiment::read::Experiment;

#[derive(Args)]
pub struct List {}

impl List {
    pub fn execute(&self) -> anyhow::Result<ExitCode> {
        println!("{:<22}{:>9}{:>10}   what it asks", "experiment", "quick", "full");
        for (name, _) in builtin::ALL {
            let experiment = super::read(name)?;
            let [quick, full] = [false, true].map(|full| takes(&experiment, full));
            println!("{name:<22}{quick:>9}{full:>10}   {}", experiment.title);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How long a size takes, roughly.
fn takes(experiment: &Experiment, full: bool) -> String {
    let blocks = experiment.settings.blocks;
    let blocks = if full { blocks.full } else { blocks.quick };
    let runs = u32::try_from(experiment.cells_of(full).count()).unwrap_or(u32::MAX).saturating_mul(blocks);
    human(experiment.run_takes(full) * runs)
}

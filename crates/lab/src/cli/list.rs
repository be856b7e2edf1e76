//! `ekiden-lab list`.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::run::progress::format_duration;
use ekiden_lab::experiment::spec::builtin;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_sys::signal;

#[derive(Args)]
pub struct ListCommand {}

impl ListCommand {
    pub fn execute(&self) -> anyhow::Result<ExitCode> {
        signal::end_on_broken_pipe()?;
        println!("{:<22}{:>9}{:>10}   {:<9}question", "experiment", "quick", "full", "clock");
        for (name, _) in builtin::BUILT_IN_EXPERIMENTS {
            let experiment = super::load_experiment(name)?;
            let [quick, full] = [false, true].map(|full| estimated_time(&experiment, full));
            let clock = experiment.settings.clock.name();
            println!("{name:<22}{quick:>9}{full:>10}   {clock:<9}{}", experiment.title);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the estimated run time of an experiment in its quick or its full size.
fn estimated_time(experiment: &Experiment, full: bool) -> String {
    let blocks = experiment.settings.blocks;
    let blocks = if full { blocks.full } else { blocks.quick };
    let runs = u32::try_from(experiment.selected_cells(full).count()).unwrap_or(u32::MAX).saturating_mul(blocks);
    format_duration(experiment.estimated_run_time(full) * runs)
}

//! The subcommand `ekiden-lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::judge::compare::{self, ComparisonVerdict};
use ekiden_lab::report;
use ekiden_sys::signal;

use crate::cli;
use crate::cli::report::load_results;

#[derive(Args)]
pub struct CompareCommand {
    /// A folder of results, the base of the comparison
    #[arg(value_name = "A")]
    base: PathBuf,
    /// Another folder of results of the same experiment
    #[arg(value_name = "B")]
    other: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

impl CompareCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (a, b) = (load_results(&self.base)?, load_results(&self.other)?);
        let comparison = compare::compare(&a, &b)?;
        signal::end_on_broken_pipe()?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&comparison)?);
        } else {
            print!("{}", report::render_comparison(&comparison, &a.manifest, cli::terminal_width()));
        }
        let is_worse = comparison.metrics[0].count(ComparisonVerdict::Worse) > 0;
        Ok(ExitCode::from(if is_worse { cli::EXIT_MISSED } else { 0 }))
    }
}

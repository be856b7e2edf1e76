//! The subcommand `ekiden-lab demo`.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::run::campaign::ExperimentOptions;
use ekiden_lab::experiment::run::demo;
use ekiden_sys::signal;

use crate::cli;
use crate::cli::capture_arguments::CaptureArguments;
use crate::cli::run::{self, EkidenPath};
use crate::cli::virtual_options::ClockOptions;

#[derive(Args)]
pub struct DemoCommand {
    #[command(flatten)]
    ekiden: EkidenPath,
    #[command(flatten)]
    capture: CaptureArguments,
    #[command(flatten)]
    clock: ClockOptions,
}

impl DemoCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let experiment = cli::load_experiment("demo")?;
        // The results are temporary: they go to the directory for temporary files, and are removed afterwards.
        let results_dir = std::env::temp_dir().join(format!("ekiden-lab-demo-{}", std::process::id()));
        let request = ExperimentOptions {
            out: Some(results_dir.clone()),
            fresh: true,
            no_check: true,
            ekiden: self.ekiden.path,
            capture: self.capture.into_options(),
            virtual_time: run::choose_clock(&self.clock, &experiment, false)?,
            ..ExperimentOptions::default()
        };
        let results = run::run_experiment(&experiment, &request);
        // The error is ignored: the process in the sandbox and the process outside both get here, and the second finds
        // the directory removed.
        let _ = std::fs::remove_dir_all(&results_dir);
        match results? {
            Err(ended) => Ok(ended),
            Ok(results) => {
                signal::end_on_broken_pipe()?;
                print!("{}", demo::summary_text(&results));
                let failed = results.cells.iter().any(|cell| cell.summary.n == 0);
                Ok(ExitCode::from(if failed { cli::EXIT_ERROR } else { 0 }))
            }
        }
    }
}

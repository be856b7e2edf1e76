//! `ekiden completions`: what a shell has to know to complete our words.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

/// Prints the script.
#[derive(Args)]
pub struct Completions {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // Not straight to standard output: `generate` takes a reader that has gone for a bug of ours.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ekiden", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

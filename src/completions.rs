//! `ekiden completions`: prints a shell completion script.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

/// Print a shell completion script to standard output
#[derive(Args)]
pub struct Completions {
    /// The shell that will read the script
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // `generate` panics on a write error, such as EPIPE from a closed standard output, so it writes to memory.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ekiden", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

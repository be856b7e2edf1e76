//! `ekiden-lab completions`.

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

#[derive(Args)]
pub struct CompletionsCommand {
    /// Shell that runs the script
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        // Written to memory first, because `generate` panics if standard output is closed.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ekiden-lab", &mut script);
        std::io::stdout().write_all(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

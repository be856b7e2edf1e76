//! `ekiden-lab shell`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use ekiden_lab::topology::RunningLab;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_lab::topology::{file, shell};

use crate::cli::virtual_options::ClockOptions;

#[derive(Args)]
pub struct ShellCommand {
    /// A lab file, or a lab that comes with the laboratory: acceptance, bufferbloat, long, lossy
    #[arg(value_name = "LAB")]
    file: PathBuf,
    /// On which host [default: the first by name]
    host: Option<String>,
    #[command(flatten)]
    clock: ClockOptions,
}

impl ShellCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let name = self.file.to_str().context("the name of the lab is not UTF-8")?;
        let arguments: Vec<&str> = ["shell", name].into_iter().chain(self.host.as_deref()).collect();
        if let Some(code) = self.clock.run_in_machine(&arguments)? {
            return Ok(code);
        }
        let lab = file::load_lab(&self.file)?;
        if let SandboxEntry::Exited(status) = sandbox::enter()? {
            return Ok(ExitCode::from(status));
        }
        let running = RunningLab::start(&lab)?;
        shell::run_shell(running.network(), &lab, self.host.as_deref()).map(ExitCode::from)
    }
}

//! `ekiden-lab shell`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::topology::running::Running;
use ekiden_lab::topology::sandbox::{self, Outcome};
use ekiden_lab::topology::{file, shell};

#[derive(Args)]
pub struct Shell {
    /// A lab file, or a lab that comes with the laboratory: acceptance, bufferbloat, long, lossy
    #[arg(value_name = "LAB")]
    file: PathBuf,
    /// On which host [default: the first by name]
    host: Option<String>,
}

impl Shell {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let lab = file::read(&self.file)?;
        if let Outcome::Ended(status) = sandbox::enter()? {
            return Ok(ExitCode::from(status));
        }
        let running = Running::start(&lab)?;
        shell::run(running.network(), &lab, self.host.as_deref()).map(ExitCode::from)
    }
}

//! `ekiden-lab machine-job`: one run of an experiment, started in a virtual machine.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::experiment::run::virtual_runs::MachineJob;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};

#[derive(Args)]
pub struct MachineJobCommand {}

impl MachineJobCommand {
    pub fn execute(&self) -> anyhow::Result<ExitCode> {
        let job: MachineJob = serde_json::from_reader(std::io::stdin().lock())?;
        if let SandboxEntry::Exited(status) = sandbox::enter()? {
            return Ok(ExitCode::from(status));
        }
        println!("{}", job.execute()?);
        Ok(ExitCode::SUCCESS)
    }
}

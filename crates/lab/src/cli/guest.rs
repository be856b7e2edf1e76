//! `ekiden-lab guest`: the first process of a virtual machine, started by its kernel.

use std::process::ExitCode;

use clap::Args;
use ekiden_lab::virtual_time::guest;

#[derive(Args)]
pub struct GuestCommand {}

impl GuestCommand {
    pub fn execute(&self) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(std::process::id() == 1, "this command runs only as the first process of a virtual machine");
        guest::run().map(|()| ExitCode::SUCCESS)
    }
}

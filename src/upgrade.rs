//! `ekiden upgrade`: a new version, and nobody notices.

use std::process::ExitCode;

use clap::Args;
use ekiden_relay::server::upgrade;

use crate::status::AdminArgs;

/// Has a running relay start its program again and hand over to it; exit 0 when the new process serves, 1 when the one
/// before goes on
#[derive(Args)]
pub struct Upgrade {
    #[command(flatten)]
    relay: AdminArgs,
}

impl Upgrade {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.admin_address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (before, now) = runtime.block_on(upgrade::request(&address))?;
        println!("process {} serves, ekiden {}; sessions of process {} finish there", now.pid, now.version, before.pid);
        Ok(ExitCode::SUCCESS)
    }
}

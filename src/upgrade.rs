//! `ekiden upgrade`: replaces the process of a running relay without dropping connections.

use std::process::ExitCode;

use clap::Args;
use ekiden_relay::server::upgrade;

use crate::admin_address::AdminArgs;

/// Make a running relay start its program again and hand its listeners over to the new process. Exit status: 0 the new
/// process serves, 1 the old process continues
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
        println!(
            "process {} serves new sessions with ekiden {}; sessions of process {} finish in that process",
            now.pid, now.version, before.pid
        );
        Ok(ExitCode::SUCCESS)
    }
}

//! `ekiden status`: shows sessions and pipes of a running relay.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ekiden_relay::{admin, status};

use crate::admin_address::AdminArgs;

/// Show the sessions and pipes of a running relay
#[derive(Args)]
pub struct Status {
    /// Print the complete answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Status {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.admin_address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime
            .block_on(admin::fetch(&address, "/api/sessions"))
            .with_context(|| format!("no relay answers at {address} (is `ekiden run` up?)"))?;
        if self.json {
            print!("{answer}");
        } else {
            print!("{}", status::table(&answer)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

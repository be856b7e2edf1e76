//! `ekiden-lab sink`: started by an experiment, on the server's host.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ekiden_lab::program::sink;

#[derive(Args)]
pub struct SinkCommand {
    /// Where it listens
    #[arg(long)]
    port: u16,
    /// The size of blocks that carry the time at which they were written, in bytes
    #[arg(long, value_name = "BLOCK")]
    stamped: Option<usize>,
}

impl SinkCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        sink::serve(self.port, self.stamped).with_context(|| format!("port {}", self.port))?;
        Ok(ExitCode::SUCCESS)
    }
}

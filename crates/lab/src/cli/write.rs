//! `ekiden-lab write`: started by an experiment, on the client's host.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::program::{sink, writer};
use ekiden_proto::units::Span;

#[derive(Args)]
pub struct WriteCommand {
    /// Address of the sink
    to: SocketAddr,
    /// Number of bytes to write
    amount: u64,
    /// Size of a block, in bytes
    block: usize,
    /// Pause after each block; each block begins with a timestamp
    #[arg(long, value_name = "TIME")]
    pause: Option<Span>,
}

impl WriteCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let least = if self.pause.is_some() { sink::STAMP_LEN } else { 1 };
        anyhow::ensure!(self.block >= least, "expected a block of at least {least} bytes");
        let (to, amount, block, pause) = (self.to, self.amount, self.block, self.pause.map(|pause| pause.0));
        let written = writer::run(writer::WriteRequest { to, amount, block, pause })?;
        println!("{}", serde_json::to_string(&written)?);
        Ok(ExitCode::SUCCESS)
    }
}

//! `ekiden-lab write`: started by an experiment, on the client's host.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use ekiden_lab::program::{sink, writer};
use ekiden_proto::units::Span;

#[derive(Args)]
pub struct WriteCommand {
    /// To whom
    to: SocketAddr,
    /// How much, in bytes
    amount: u64,
    /// How much at once, in bytes
    block: usize,
    /// How long after each block the next one is written, with its time in front
    #[arg(long, value_name = "TIME")]
    pause: Option<Span>,
}

impl WriteCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let least = if self.pause.is_some() { sink::STAMP_LEN } else { 1 };
        anyhow::ensure!(self.block >= least, "a block of {least} bytes at least");
        let (to, amount, block, pause) = (self.to, self.amount, self.block, self.pause.map(|pause| pause.0));
        let written = writer::run(writer::WriteRequest { to, amount, block, pause })?;
        println!("{}", serde_json::to_string(&written)?);
        Ok(ExitCode::SUCCESS)
    }
}

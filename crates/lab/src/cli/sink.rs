//! `ekiden-lab sink`: started by an experiment, on the server's host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ekiden_lab::program::sink;

#[derive(Args)]
pub struct SinkCommand {
    /// Port to listen on
    #[arg(long)]
    port: u16,
    /// Accept connections by IPv6
    #[arg(long)]
    ipv6: bool,
    /// Size of blocks with a timestamp, in bytes
    #[arg(long, value_name = "BLOCK")]
    stamped: Option<usize>,
}

impl SinkCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let any = if self.ipv6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
        sink::serve(SocketAddr::new(any, self.port), self.stamped)
            .with_context(|| format!("cannot listen on port {}", self.port))?;
        Ok(ExitCode::SUCCESS)
    }
}

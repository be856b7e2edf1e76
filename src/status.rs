//! `ekiden status`: what is a running relay doing?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ekiden_relay::config::{Admin, read};
use ekiden_relay::{admin, status};

/// Asks a running relay.
#[derive(Args)]
pub struct Status {
    /// Everything, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    relay: Where,
}

/// Where a running relay answers.
#[derive(Args)]
pub struct Where {
    /// Where the relay answers: 127.0.0.1:PORT or unix:PATH; by default where `ekiden run` listens by default
    #[arg(long, value_name = "ADDR", env = "EKIDEN_ADMIN")]
    admin: Option<String>,
    /// The relay's configuration file, to learn the address from
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
}

impl Status {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.address()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime
            .block_on(admin::ask(&address, "/api/sessions"))
            .with_context(|| format!("no relay answers at {address} (is `ekiden run` up?)"))?;
        if self.json {
            print!("{answer}");
        } else {
            print!("{}", status::table(&answer)?);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Where {
    /// As the command line says, or the configuration, or where it is by default.
    pub fn address(&self) -> anyhow::Result<Admin> {
        if let Some(text) = &self.admin {
            return read::admin_address(text)
                .map_err(|expected| anyhow::anyhow!("--admin {text}: expected {expected}"));
        }
        match &self.config {
            Some(file) => Ok(read::load(Some(file), &read::Flags::default())?.admin),
            None => Ok(read::default_admin()),
        }
    }
}

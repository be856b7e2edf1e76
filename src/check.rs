//! `ekiden check`: is this configuration right?

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ekiden_relay::config::read::{self, Flags};

/// Validates a configuration file.
#[derive(Args)]
pub struct Check {
    /// The file
    file: PathBuf,
}

impl Check {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match read::load(Some(&self.file), &Flags::default()) {
            Ok(config) => {
                let (listeners, relays) = (config.listeners.len(), config.relays.len());
                let paths = config.paths().len();
                println!("{}: ok, {listeners} listener(s), {relays} relay(s), {paths} path(s)", self.file.display());
                Ok(ExitCode::SUCCESS)
            }
            Err(mistakes) => {
                eprintln!("{mistakes}");
                Ok(ExitCode::from(2))
            }
        }
    }
}

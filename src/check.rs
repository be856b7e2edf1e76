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
                println!("{}: ok, {} listener(s)", self.file.display(), config.listeners.len());
                Ok(ExitCode::SUCCESS)
            }
            Err(mistakes) => {
                eprintln!("{mistakes}");
                Ok(ExitCode::from(2))
            }
        }
    }
}

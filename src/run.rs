//! `ekiden run`: starts the relay daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Once;

use clap::Args;
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, Flags};
use ekiden_relay::server::{self, RunError};

use crate::cc;

/// Run the relay daemon. A flag overrides its environment variable, which overrides the configuration file
#[derive(Args)]
pub struct Run {
    /// Configuration file, or directory with *.toml files; repeat -c to merge several, or separate them by colons.
    /// Reloaded on SIGHUP
    #[arg(short = 'c', long = "config", value_name = "PATH", env = "EKIDEN_CONFIG", value_delimiter = ':')]
    config: Vec<PathBuf>,
    /// Add listeners: auto://ADDR socks://ADDR http://ADDR tcp://ADDR/HOST:PORT, with ?profile=NAME and other listener
    /// keys; section://ADDR?key=FILE&peers=FILE accepts other relays
    #[arg(short = 'L', long = "listen", value_name = "URL", env = "EKIDEN_LISTEN", value_delimiter = ' ')]
    listen: Vec<String>,
    /// Hops to forward through, in order: `section://HOST:PORT?key=PUBLIC[&encrypt=true]`,
    /// `socks5://[USER:PASS@]HOST:PORT`, `http://[USER:PASS@]HOST:PORT`, or the name of a relay in the configuration
    /// file. `ps` shows PASS to every user: `socks5://USER@HOST:PORT?password_file=FILE` reads the password from FILE
    #[arg(short = 'F', long = "forward", value_name = "URL", env = "EKIDEN_FORWARD", value_delimiter = ' ')]
    forward: Vec<String>,
    /// File with this relay's private key, made by `ekiden keygen`
    #[arg(long, value_name = "FILE", env = "EKIDEN_KEY")]
    key: Option<String>,
    /// Log format: text or json
    #[arg(long, value_name = "FORMAT", env = "EKIDEN_LOG")]
    log: Option<String>,
    /// Events to log: sessions (all events), problems, or off
    #[arg(long, value_name = "LEVEL", env = "EKIDEN_LOG_LEVEL")]
    log_level: Option<String>,
    /// Admin address, which `ekiden status` connects to: 127.0.0.1:PORT, unix:PATH or off
    #[arg(long, value_name = "ADDR", env = "EKIDEN_ADMIN")]
    admin: Option<String>,
}

impl Run {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { config, listen, forward, key, log, log_level, admin } = self;
        let flags = Flags { listen, forward, key, log, log_level, admin };
        let (key_printed, load) = (Once::new(), || read::load(config.iter().map(PathBuf::as_path), &flags));
        let load = || load().inspect(|config| key_printed.call_once(|| print_temporary_key(config)));
        match server::run(&load, &cc::acquire) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(RunError::Config(mistakes)) => {
                eprintln!("{mistakes}");
                Ok(ExitCode::from(2))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Warns at startup that the relay uses a temporary key, and prints the line that the next relay's `peers` file needs.
fn print_temporary_key(config: &Config) {
    let Some(key) = config.temporary_key() else { return };
    eprintln!(
        "ekiden: no --key, so this relay uses a temporary key, which changes at each start. If another\n\
         relay refuses the key, add this line to its `peers` file:\n  {key} NAME\n\
         To use a permanent key: (umask 077; ekiden keygen > FILE), then start with --key FILE\n\
         or private_key = \"FILE\"."
    );
}

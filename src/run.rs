//! `ekiden run`: the daemon.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Once;

use clap::Args;
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, Flags};
use ekiden_relay::server::{self, RunError};

use crate::cc;

/// What a configuration can also be told on the command line; a flag beats the environment, which beats the file.
#[derive(Args)]
pub struct Run {
    /// Configuration file; read again on SIGHUP
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// Listens: auto://ADDR socks://ADDR http://ADDR tcp://ADDR/HOST:PORT, with ?profile=NAME and other listener keys;
    /// section://ADDR?key=FILE&peers=FILE for other relays
    #[arg(short = 'L', long = "listen", value_name = "URL", env = "EKIDEN_LISTEN", value_delimiter = ' ')]
    listen: Vec<String>,
    /// Goes on through these, in order: `section://HOST:PORT?key=PUBLIC[&encrypt=true]`,
    /// `socks5://[USER:PASS@]HOST:PORT`, `http://[USER:PASS@]HOST:PORT`, or the name of a relay in the file. `ps` shows PASS to
    /// every user: `socks5://USER@HOST:PORT?password_file=FILE` reads the password from FILE
    #[arg(short = 'F', long = "forward", value_name = "URL", env = "EKIDEN_FORWARD", value_delimiter = ' ')]
    forward: Vec<String>,
    /// File with our own private key, made by `ekiden keygen`
    #[arg(long, value_name = "FILE", env = "EKIDEN_KEY")]
    key: Option<String>,
    /// How log lines look: text or json
    #[arg(long, value_name = "FORMAT", env = "EKIDEN_LOG")]
    log: Option<String>,
    /// Which events have a log line: sessions (all), problems, or off
    #[arg(long, value_name = "LEVEL", env = "EKIDEN_LOG_LEVEL")]
    log_level: Option<String>,
    /// Where `ekiden status` asks: 127.0.0.1:PORT, unix:PATH or off
    #[arg(long, value_name = "ADDR", env = "EKIDEN_ADMIN")]
    admin: Option<String>,
}

impl Run {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let Self { config, listen, forward, key, log, log_level, admin } = self;
        let flags = Flags { listen, forward, key, log, log_level, admin };
        let (told, load) = (Once::new(), || read::load(config.as_deref(), &flags));
        let load = || load().inspect(|config| told.call_once(|| print_temporary_key(config)));
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

/// Prints at the start that the relay uses a temporary key, and the line that the other relay needs for this key.
fn print_temporary_key(config: &Config) {
    let Some(key) = config.temporary_key() else { return };
    eprintln!(
        "ekiden: no --key, so this relay calls other relays with a temporary key, which changes at each start. Where a\n\
         relay refuses it, write this line into the file that its `peers` names:\n  {key} NAME\n\
         To keep one key: (umask 077; ekiden keygen > FILE), and start with --key FILE or private_key = \"FILE\"."
    );
}

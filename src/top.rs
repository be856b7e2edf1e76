//! `ekiden top`: a live view of the sessions of a running relay.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ekiden_proto::units::Span;
use ekiden_relay::admin;
use ekiden_top::{Column, Theme, TopOptions};

use crate::admin_address::AdminArgs;

/// Watch the sessions of a running relay
#[derive(Args)]
#[command(after_help = "keys: ? lists all keys, q quits")]
pub struct Top {
    /// Interval between two requests to the relay, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    every: Duration,
    /// Initial sort column: session, client, user, target, path, age, down, up, limited; and with the suffix -down or
    /// -up: bytes of the session; rtt, queued, retrans, window of the section
    #[arg(long, value_name = "COLUMN", default_value = "down")]
    sort: Column,
    /// Show only sessions with all of these words in their addresses, target, path, user or limit
    #[arg(long, value_name = "WORDS", default_value = "")]
    filter: String,
    /// Print one screen as text and exit, for scripts. Its size is that of the terminal, else COLUMNS by LINES, else 80
    /// by 24
    #[arg(long)]
    once: bool,
    /// Disable colours, like the environment variable NO_COLOR
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Top {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.admin_address()?;
        let mut theme = Theme::from_env();
        theme.colour &= !self.no_color;
        let options = TopOptions { interval: self.every, sort: self.sort, filter: self.filter, theme };
        let ask = async || admin::fetch(&address, "/api/sessions").await;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.once {
            let size = ekiden_top::screen_size();
            print!("{}", runtime.block_on(ekiden_top::run_once(&options, &address.to_string(), size, ask))?);
        } else {
            runtime.block_on(ekiden_top::run(&options, &address.to_string(), ask))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Parses `--every`. A shorter interval only adds load on the relay.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let Span(interval) = text.parse::<Span>().map_err(|expected| format!("expected {expected}"))?;
    if interval < Duration::from_millis(100) {
        return Err("expected 100ms or more".to_owned());
    }
    Ok(interval)
}

//! `ekiden top`: what is a running relay doing, live?

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ekiden_proto::units::Span;
use ekiden_relay::admin;
use ekiden_top::{Column, Theme, TopOptions};

use crate::status::AdminArgs;

/// Watches a running relay.
#[derive(Args)]
#[command(after_help = "keys: ? shows them; q ends")]
pub struct Top {
    /// How often to ask the relay, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    every: Duration,
    /// What to sort by at first: session, client, user, target, path, age, down, up, limited; and of sections
    /// rtt, queued, retrans, window, of sessions bytes, each with -down or -up
    #[arg(long, value_name = "COLUMN", default_value = "down")]
    sort: Column,
    /// Only sessions that have all of these words in their addresses, target, path, user or limit
    #[arg(long, value_name = "WORDS", default_value = "")]
    filter: String,
    /// One screen as text and no more, for scripts; as large as the terminal, or COLUMNS by LINES, or 80 by 24
    #[arg(long)]
    once: bool,
    /// No colours; NO_COLOR in the environment does the same
    #[arg(long)]
    no_color: bool,
    #[command(flatten)]
    relay: AdminArgs,
}

impl Top {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let address = self.relay.admin_address()?;
        let mut look = Theme::from_env();
        look.colour &= !self.no_color;
        let options = TopOptions { interval: self.every, sort: self.sort, filter: self.filter, theme: look };
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

/// Oftener than that only the relay would have something of it.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let Span(every) = text.parse::<Span>().map_err(|expected| format!("expected {expected}"))?;
    if every < Duration::from_millis(100) {
        return Err("expected 100ms or more".to_owned());
    }
    Ok(every)
}

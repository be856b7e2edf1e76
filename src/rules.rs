//! `ekiden rules`: manages nftables and routing rules for transparent listeners.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, Flags};
use ekiden_relay::rules::{self, Applied, Owner, Queue, Ruleset};
use ekiden_sys::signal;

/// Manage nftables and routing rules for transparent listeners. The daemon applies and removes the rules itself, unless
/// `[transparent] rules = "manual"`
#[derive(Args)]
pub struct Rules {
    #[command(subcommand)]
    action: RulesAction,
}

#[derive(Subcommand)]
enum RulesAction {
    /// Print the rules as a shell script without changing anything
    Print(ConfigArgs),
    /// Load the rules into the kernel, replacing older ones
    Apply(ConfigArgs),
    /// Remove the rules from the kernel
    Remove(RemoveArgs),
}

/// The configuration, with the options of `ekiden run`.
#[derive(Args)]
struct ConfigArgs {
    /// Configuration file or directory with the listeners
    #[arg(short = 'c', long = "config", value_name = "PATH", env = "EKIDEN_CONFIG", value_delimiter = ':')]
    config: Vec<PathBuf>,
    /// Add listeners: `tproxy://ADDR?interfaces=NAME`, `redirect://ADDR?interfaces=NAME`
    #[arg(short = 'L', long = "listen", value_name = "URL", env = "EKIDEN_LISTEN", value_delimiter = ' ')]
    listen: Vec<String>,
}

/// Selects the instance whose rules are removed.
#[derive(Args)]
struct RemoveArgs {
    #[command(flatten)]
    source: ConfigArgs,
    /// Instance number of the daemon on this host, 1 to 15; default: that of the configuration, else 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    instance: Option<u8>,
}

impl Rules {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            RulesAction::Print(source) => source.with_config(|config| {
                if let Some(rules) = required_rules(config) {
                    let script = rules.script(&Queue::probe());
                    signal::end_on_broken_pipe()?;
                    print!("{script}");
                }
                Ok(())
            }),
            RulesAction::Apply(source) => source.with_config(|config| {
                let Some(rules) = required_rules(config) else { return Ok(()) };
                let Applied { queue } = rules.apply(Owner::Operator)?;
                signal::end_on_broken_pipe()?;
                println!(
                    "rules of instance {} are in the kernel{}",
                    config.transparent.instance,
                    describe_queue(&queue)
                );
                Ok(())
            }),
            RulesAction::Remove(RemoveArgs { source, instance: None }) if !source.is_empty() => {
                source.with_config(|config| remove_rules(config.transparent.instance))
            }
            RulesAction::Remove(RemoveArgs { instance, .. }) => {
                remove_rules(instance.unwrap_or(1)).map(|()| ExitCode::SUCCESS)
            }
        }
    }
}

impl ConfigArgs {
    fn is_empty(&self) -> bool {
        self.config.is_empty() && self.listen.is_empty()
    }

    fn with_config(self, act: impl FnOnce(&Config) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        let flags = Flags { listen: self.listen, ..Flags::default() };
        match read::load(self.config.iter().map(PathBuf::as_path), &flags) {
            Ok(config) => act(&config).map(|()| ExitCode::SUCCESS),
            Err(mistakes) => {
                eprintln!("{mistakes}");
                Ok(ExitCode::from(2))
            }
        }
    }
}

fn required_rules(config: &Config) -> Option<Ruleset> {
    let rules = Ruleset::of(config);
    if rules.is_none() {
        eprintln!("no rules needed: no listener is tproxy, redirect or tun, or has keep_client_address");
    }
    rules
}

fn describe_queue(queue: &Queue) -> String {
    match queue {
        Queue::Nft => String::new(),
        Queue::Iptables => "; first packets wait in a queue of iptables".to_owned(),
        Queue::Missing(why) => format!("; without a queue, so \"hold\" works like \"strict\": {why}"),
    }
}

fn remove_rules(instance: u8) -> anyhow::Result<()> {
    let removed = rules::remove(instance)?;
    signal::end_on_broken_pipe()?;
    println!("{} of instance {instance}", if removed { "removed the rules" } else { "there are no rules" });
    Ok(())
}

//! `ekiden rules`: what the kernel is told for transparent listeners.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ekiden_relay::config::Config;
use ekiden_relay::config::read::{self, Flags};
use ekiden_relay::rules::{self, Applied, Owner, Queue, Ruleset};

/// The daemon does this itself, unless `[transparent] rules = "manual"`.
#[derive(Args)]
pub struct Rules {
    #[command(subcommand)]
    action: RulesAction,
}

#[derive(Subcommand)]
enum RulesAction {
    /// Prints them as a shell script; changes nothing
    Print(ConfigArgs),
    /// Puts them into the kernel, in the place of older ones
    Apply(ConfigArgs),
    /// Takes them out again
    Remove(RemoveArgs),
}

/// The configuration, as `ekiden run` takes it.
#[derive(Args)]
struct ConfigArgs {
    /// Configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", env = "EKIDEN_CONFIG")]
    config: Option<PathBuf>,
    /// Listens: `tproxy://ADDR?interfaces=NAME`, `redirect://ADDR?interfaces=NAME`
    #[arg(short = 'L', long = "listen", value_name = "URL", env = "EKIDEN_LISTEN", value_delimiter = ' ')]
    listen: Vec<String>,
}

/// Whose rules go.
#[derive(Args)]
struct RemoveArgs {
    #[command(flatten)]
    source: ConfigArgs,
    /// Which of the daemons on this host, 1 to 15; default: that of the configuration, or 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=15))]
    instance: Option<u8>,
}

impl Rules {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        match self.action {
            RulesAction::Print(source) => source.with_config(|config| {
                if let Some(rules) = required_rules(config) {
                    print!("{}", rules.script(&Queue::probe()));
                }
                Ok(())
            }),
            RulesAction::Apply(source) => source.with_config(|config| {
                let Some(rules) = required_rules(config) else { return Ok(()) };
                let Applied { queue } = rules.apply(Owner::Operator)?;
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
        self.config.is_none() && self.listen.is_empty()
    }

    fn with_config(self, act: impl FnOnce(&Config) -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        let flags = Flags { listen: self.listen, ..Flags::default() };
        match read::load(self.config.as_deref(), &flags) {
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
        eprintln!("no rules: no listener is tproxy, redirect or tun, or has keep_client_address");
    }
    rules
}

fn describe_queue(queue: &Queue) -> String {
    match queue {
        Queue::Nft => String::new(),
        Queue::Iptables => "; first packets wait in a queue of iptables".to_owned(),
        Queue::Missing(why) => format!("; without a queue, so that \"hold\" is \"strict\": {why}"),
    }
}

fn remove_rules(instance: u8) -> anyhow::Result<()> {
    let removed = rules::remove(instance)?;
    println!("{} of instance {instance}", if removed { "removed: the rules" } else { "nothing was there" });
    Ok(())
}

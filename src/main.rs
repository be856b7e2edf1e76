//! The command line: one file for each subcommand, no logic.
#![forbid(unsafe_code)]

#[cfg(feature = "bpf")]
mod aqm;
#[cfg(feature = "bpf")]
mod cc;
mod check;
mod completions;
mod doctor;
mod fleet;
mod keygen;
#[cfg(not(feature = "bpf"))]
mod lacking;
mod man;
mod plan;
mod probe;
mod rules;
mod run;
mod status;
mod top;
mod upgrade;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{Parser, Subcommand};

#[cfg(not(feature = "bpf"))]
use {lacking as aqm, lacking as cc};

/// Makes far servers feel near: cuts a long TCP connection into short sections at relays.
#[derive(Parser)]
#[command(name = "ekiden", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The daemon: -L listens, -F are the hops in order
    Run(run::Run),
    /// Validates a configuration file; every mistake at once; exit 0 or 2
    Check(check::Check),
    /// Prints a private and a public key; to keep them: (umask 077; ekiden keygen > FILE)
    Keygen(keygen::Keygen),
    /// Tries a target direct and through each relay: RTT, loss, rate, and which is best
    Probe(probe::Probe),
    /// Predicts where relays help, from sites and round trips, and where to put the next one
    Plan(plan::Plan),
    /// A fleet of relays: keys, certificates, who is there
    Fleet(fleet::FleetArgs),
    /// What the kernel is told for transparent listeners: print, apply, remove
    Rules(rules::Rules),
    /// Congestion controls: list, load, unload
    Cc(cc::Cc),
    /// Queue management at an interface, for what this host forwards: attach, detach, show
    Aqm(aqm::Aqm),
    /// Sessions and pipes of a running relay
    Status(status::Status),
    /// The same, live: rates, sections, what limits; sort, filter, one session in detail
    Top(top::Top),
    /// A new version in the place of a running relay, which loses no connection by that
    Upgrade(upgrade::Upgrade),
    /// Kernel, ceilings, congestion controls, capabilities: what is missing and the fix
    Doctor(doctor::Doctor),
    /// Prints what a shell completes our words with; to try it: source <(ekiden completions bash)
    Completions(completions::Completions),
    /// Writes the manual pages, as packages do
    #[command(hide = true)]
    Man(man::Man),
}

/// Commands that start other daemons.
const START_COMMANDS: [&str; 6] = ["daemon", "listen", "serve", "server", "start", "up"];

/// Adds the subcommand `run` as a suggestion for these commands: clap compares only the spelling.
fn with_run_suggestion(mut error: clap::Error) -> clap::Error {
    let is_start = matches!(error.get(ContextKind::InvalidSubcommand), Some(ContextValue::String(word)) if START_COMMANDS.contains(&&**word));
    if is_start {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec!["run".to_owned()]));
    }
    error
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| with_run_suggestion(error).exit());
    let result = match cli.command {
        Command::Run(run) => run.execute(),
        Command::Check(check) => check.execute(),
        Command::Keygen(keygen) => keygen.execute(),
        Command::Probe(probe) => probe.execute(),
        Command::Plan(plan) => plan.execute(),
        Command::Fleet(fleet) => fleet.execute(),
        Command::Rules(rules) => rules.execute(),
        Command::Cc(cc) => cc.execute(),
        Command::Aqm(aqm) => aqm.execute(),
        Command::Status(status) => status.execute(),
        Command::Top(top) => top.execute(),
        Command::Upgrade(upgrade) => upgrade.execute(),
        Command::Doctor(doctor) => doctor.execute(),
        Command::Completions(completions) => completions.execute(),
        Command::Man(man) => man.execute(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ekiden: {error:#}");
        ExitCode::FAILURE
    })
}

//! The `ekiden` command line: one module per subcommand. The logic is in the library crates.
#![forbid(unsafe_code)]

mod admin_address;
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
use ekiden_sys::signal;

#[cfg(not(feature = "bpf"))]
use {lacking as aqm, lacking as cc};

/// Speeds up TCP to distant servers: relays split a long connection into short sections
#[derive(Parser)]
#[command(name = "ekiden", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the relay daemon: -L adds listeners, -F lists the hops in order
    Run(run::Run),
    /// Validate a configuration file and report all errors; exit status 0 or 2
    Check(check::Check),
    /// Generate a key pair and print it; to save it: (umask 077; ekiden keygen > FILE)
    Keygen(keygen::Keygen),
    /// Measure RTT, loss and rate to a target, direct and through each relay, and name the best path
    Probe(probe::Probe),
    /// Predict from sites and round-trip times where relays help and where to place the next one
    Plan(plan::Plan),
    /// Manage a fleet of relays: keys, certificates, members
    Fleet(fleet::FleetArgs),
    /// Manage nftables and routing rules for transparent listeners: print, apply, remove
    Rules(rules::Rules),
    /// Manage congestion controls: list, load, unload
    Cc(cc::Cc),
    /// Manage active queue management for forwarded packets on an interface: attach, detach, show
    Aqm(aqm::Aqm),
    /// Show sessions and pipes of a running relay
    Status(status::Status),
    /// Watch the sessions of a running relay: rates, sections, limits; sort, filter, view one session
    Top(top::Top),
    /// Upgrade a running relay without dropping connections
    Upgrade(upgrade::Upgrade),
    /// Check kernel, resource limits, congestion controls and capabilities, and suggest fixes
    Doctor(doctor::Doctor),
    /// Print a shell completion script; to try it: source <(ekiden completions bash)
    Completions(completions::Completions),
    /// Write the manual pages (used when building packages)
    #[command(hide = true)]
    Man(man::Man),
}

/// Words that start the daemon in other programs.
const START_COMMANDS: [&str; 6] = ["daemon", "listen", "serve", "server", "start", "up"];

/// Suggests the subcommand `run` for [`START_COMMANDS`]. clap's own suggestions only compare the spelling.
fn with_run_suggestion(mut error: clap::Error) -> clap::Error {
    let is_start = matches!(error.get(ContextKind::InvalidSubcommand), Some(ContextValue::String(word)) if START_COMMANDS.contains(&&**word));
    if is_start {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec!["run".to_owned()]));
    }
    error
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| with_run_suggestion(error).exit());
    execute(cli.command).unwrap_or_else(|error| {
        eprintln!("ekiden: {error:#}");
        ExitCode::FAILURE
    })
}

fn execute(command: Command) -> anyhow::Result<ExitCode> {
    // These commands write to sockets or to other programs, and handle the error of a closed connection or pipe.
    if !matches!(command, Command::Run(_) | Command::Probe(_) | Command::Rules(_) | Command::Doctor(_)) {
        signal::end_on_broken_pipe()?;
    }
    match command {
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
    }
}

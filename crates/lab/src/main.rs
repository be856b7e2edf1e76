//! The command line: one file for each subcommand, no logic.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cli;

/// Long paths on one machine, and experiments on them.
#[derive(Parser)]
#[command(name = "ekiden-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// One file over a long path: direct, with one relay, with three; under a minute
    Demo(cli::demo::DemoCommand),
    /// The experiments that come with the laboratory
    List(cli::list::ListCommand),
    /// Measures every link of a lab and compares with what its file says
    Check(cli::check::CheckCommand),
    /// A shell on a host of a lab that runs
    Shell(cli::shell::ShellCommand),
    /// Makes the runs of an experiment, goes on where it was interrupted, and reports
    Run(cli::run::RunCommand),
    /// Reports again what is in a folder of results
    Report(cli::report::ReportCommand),
    /// Prints what a shell completes our words with; to try it: source <(ekiden-lab completions bash)
    Completions(cli::completions::CompletionsCommand),
    /// Writes the manual pages, as packages do
    #[command(hide = true)]
    Man(cli::man::ManCommand),
    /// Writes a fixed amount in blocks of one size: what an experiment starts as a client
    #[command(hide = true)]
    Write(cli::write::WriteCommand),
    /// Takes what a writer writes: what an experiment starts as a server
    #[command(hide = true)]
    Sink(cli::sink::SinkCommand),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(demo) => demo.execute(),
        Command::List(list) => list.execute(),
        Command::Check(check) => check.execute(),
        Command::Shell(shell) => shell.execute(),
        Command::Run(run) => run.execute(),
        Command::Report(report) => report.execute(),
        Command::Completions(completions) => completions.execute(),
        Command::Man(man) => man.execute(),
        Command::Write(write) => write.execute(),
        Command::Sink(sink) => sink.execute(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ekiden-lab: {error:#}");
        ExitCode::from(cli::EXIT_ERROR)
    })
}

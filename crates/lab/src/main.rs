//! Command line of the laboratory. Each subcommand has a file in `cli`; the logic is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cli;

/// Emulate long network paths on one machine, and run experiments on them
#[derive(Parser)]
#[command(name = "ekiden-lab", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Transfer a file over a long path: directly, with one relay, with three; under a minute
    Demo(cli::demo::DemoCommand),
    /// List the built-in experiments
    List(cli::list::ListCommand),
    /// Measure every link of a lab and compare it with its file
    Check(cli::check::CheckCommand),
    /// Open a shell on a host of a running lab
    Shell(cli::shell::ShellCommand),
    /// Run or resume an experiment, and report
    Run(cli::run::RunCommand),
    /// Build virtual kernels, list them, and run commands in them
    Kernel(cli::kernel::KernelCommand),
    /// Report again from a folder of results
    Report(cli::report::ReportCommand),
    /// Run every experiment in full, and write the published figures
    Figures(cli::figures::FiguresCommand),
    /// Compare two results of one experiment, cell by cell
    Compare(cli::compare::CompareCommand),
    /// Print a shell completion script; to try it: source <(ekiden-lab completions bash)
    Completions(cli::completions::CompletionsCommand),
    /// Write the manual pages, for packaging
    #[command(hide = true)]
    Man(cli::man::ManCommand),
    /// Run as the first process of a virtual machine
    #[command(hide = true)]
    Guest(cli::guest::GuestCommand),
    /// Make one run of an experiment, in a virtual machine
    #[command(hide = true)]
    MachineJob(cli::machine_job::MachineJobCommand),
    /// Write a fixed amount in blocks of one size: the client of an experiment
    #[command(hide = true)]
    Write(cli::write::WriteCommand),
    /// Receive data from `write`: the server of an experiment
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
        Command::Kernel(kernel) => kernel.execute(),
        Command::MachineJob(job) => job.execute(),
        Command::Guest(guest) => guest.execute(),
        Command::Report(report) => report.execute(),
        Command::Figures(figures) => figures.execute(),
        Command::Compare(compare) => compare.execute(),
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

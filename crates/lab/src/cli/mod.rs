//! Subcommands, and the code that they share.

use std::path::Path;
use std::time::Duration;

use ekiden_lab::experiment::collect::results::Results;
use ekiden_lab::experiment::spec::builtin;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::topology::file::lines::prefix_line_numbers;
use ekiden_proto::units::Span;
use ekiden_sys::signal;

pub mod capture_arguments;
pub mod check;
pub mod compare;
pub mod completions;
pub mod demo;
pub mod figures;
pub mod guest;
pub mod kernel;
pub mod list;
pub mod machine_job;
pub mod man;
pub mod report;
pub mod run;
pub mod shell;
pub mod sink;
pub mod virtual_options;
pub mod write;

/// The exit status for an invalid request or a failed run.
pub const EXIT_ERROR: u8 = 2;
/// The exit status if an expectation is not met.
pub const EXIT_MISSED: u8 = 1;

/// Reads an experiment by name or file.
pub fn load_experiment(name: &str) -> anyhow::Result<Experiment> {
    let (name, text) = builtin::find_experiment(name)?;
    parse_experiment(&name, &text)
}

/// Reads the text of an experiment file.
pub fn parse_experiment(name: &str, text: &str) -> anyhow::Result<Experiment> {
    Experiment::parse(name, text).map_err(|mistakes| format_errors(name, &prefix_line_numbers(text, mistakes)))
}

/// Reads a time span such as `5s`.
pub fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    let time = text.parse::<Span>().map_err(|error| error.to_string())?.0;
    if time.is_zero() || time.subsec_nanos() > 0 {
        return Err("expected whole seconds, like 5s".into());
    }
    Ok(time)
}

/// Returns an error with one mistake on each line.
pub fn format_errors(name: &str, mistakes: &[String]) -> anyhow::Error {
    let lines: String = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
    anyhow::anyhow!("{name}: {} mistake{}{lines}", mistakes.len(), if mistakes.len() == 1 { "" } else { "s" })
}

/// Prints the report to standard output, as wide as the terminal, and the path of its page.
pub fn print_report(results: &Results, page: &Path) -> anyhow::Result<()> {
    signal::end_on_broken_pipe()?;
    println!("{}\nreport: {}", ekiden_lab::report::render_terminal(results, terminal_width()), page.display());
    Ok(())
}

/// Returns the width of the terminal in characters, or 120 if unknown.
pub fn terminal_width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(120)
}

//! The subcommand `ekiden-lab run`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use ekiden_lab::experiment::collect::manifest::InstalledPrograms;
use ekiden_lab::experiment::collect::results::{ExpectationVerdict, Results};
use ekiden_lab::experiment::judge::analyse;
use ekiden_lab::experiment::run::campaign::{self, ExperimentOptions};
use ekiden_lab::experiment::spec::builtin;
use ekiden_lab::experiment::spec::drawn;
use ekiden_lab::experiment::spec::factor::{self, LevelFilter, LevelNames};
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::program::congestion::{self, LoadedControls};
use ekiden_lab::report;
use ekiden_lab::topology::sandbox::{self, SandboxEntry};
use ekiden_lab::virtual_time::machine::VirtualTime;

use crate::cli;
use crate::cli::capture_arguments::CaptureArguments;
use crate::cli::virtual_options::ClockOptions;

#[derive(Args)]
pub struct RunCommand {
    /// An experiment of `ekiden-lab list`, or a file
    experiment: String,
    /// Few levels and few blocks (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All levels, and blocks enough for a 95 % confidence interval
    #[arg(long)]
    full: bool,
    /// Number of blocks, instead of the number in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// Duration of a stream in whole seconds, instead of the duration in the file
    #[arg(long, value_name = "TIME", value_parser = cli::parse_whole_seconds)]
    time: Option<Duration>,
    /// Only these treatments
    #[arg(long, value_name = "TREATMENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Only at this level of a factor; repeat the option for further levels and factors
    #[arg(long, value_name = "FACTOR=LEVEL", value_parser = parse_level)]
    at: Vec<(String, String)>,
    /// Draw the levels of drawn factors with this seed, instead of the seed in the file
    #[arg(long, value_name = "SEED")]
    drawn_seed: Option<u64>,
    /// Directory of the results [default: results/NAME-SIZE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Remove earlier results first
    #[arg(long)]
    fresh: bool,
    /// Number of concurrent runs, each in its own sandbox, instead of the number in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    jobs: Option<u32>,
    /// Do not measure the links before the first run
    #[arg(long)]
    no_check: bool,
    #[command(flatten)]
    ekiden: EkidenPath,
    #[command(flatten)]
    capture: CaptureArguments,
    #[command(flatten)]
    clock: ClockOptions,
}

#[derive(Args)]
pub struct EkidenPath {
    /// Path of the ekiden binary [default: ekiden beside this program]
    #[arg(long = "ekiden", env = "EKIDEN", value_name = "PATH")]
    pub path: Option<PathBuf>,
}

impl RunCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let (name, text) = builtin::find_experiment(&self.experiment)?;
        let text = self.drawn_seed.map_or(Ok(text.clone()), |seed| drawn::with_seed(&text, seed))?;
        let experiment = cli::parse_experiment(&name, &text)?;
        for treatment in &self.only {
            let known = &experiment.settings.treatments;
            anyhow::ensure!(
                known.contains(treatment),
                "there is no treatment {treatment:?}; treatments are {}",
                known.join(", ")
            );
        }
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (factor, level) in self.at {
            names.entry(factor).or_default().push(level);
        }
        let levels: LevelFilter = names.into_iter().map(|(factor, all)| (factor, LevelNames::Any(all))).collect();
        let unknown = factor::unknown_levels(&experiment.factors, &levels);
        anyhow::ensure!(unknown.is_empty(), "--at: {}", unknown.join("; "));
        let request = ExperimentOptions {
            levels,
            full: self.full,
            blocks: self.blocks,
            time: self.time,
            only: self.only,
            out: self.out,
            fresh: self.fresh,
            jobs: self.jobs,
            no_check: self.no_check,
            ekiden: self.ekiden.path,
            capture: self.capture.into_options(),
            virtual_time: choose_clock(&self.clock, &experiment, self.full)?,
        };
        let results = match run_experiment(&experiment, &request)? {
            Ok(results) => results,
            Err(ended) => return Ok(ended),
        };
        let page = report::write(&results, &request.result_dir(&experiment))?;
        cli::print_report(&results, &page)?;
        Ok(ExitCode::from(print_verdict(&results)))
    }
}

/// Reads a level such as `loss=1%`.
fn parse_level(text: &str) -> Result<(String, String), String> {
    let (factor, level) = text.split_once('=').ok_or("expected FACTOR=LEVEL")?;
    Ok((factor.to_owned(), level.to_owned()))
}

/// Returns the virtual machines of an experiment, or `None` for real time.
pub fn choose_clock(
    options: &ClockOptions,
    experiment: &Experiment,
    full: bool,
) -> anyhow::Result<Option<VirtualTime>> {
    options.choose(experiment.settings.clock, &required_controls(experiment, full)).context(experiment.name.clone())
}

fn required_controls(experiment: &Experiment, full: bool) -> BTreeSet<String> {
    congestion::required_controls(&experiment.selected_cells(full).collect::<Vec<_>>())
}

/// Runs an experiment in virtual machines or in the sandbox. In the process outside of the sandbox, the inner `Err` is
/// the exit status.
pub fn run_experiment(
    experiment: &Experiment,
    request: &ExperimentOptions,
) -> anyhow::Result<Result<Results, ExitCode>> {
    let tools = InstalledPrograms::find(experiment, request)
        .map_err(|missing| cli::format_errors(&experiment.name, &missing))?;
    let make_runs = || campaign::run_experiment(experiment, &tools, request).map(Ok).context(experiment.name.clone());
    if request.virtual_time.is_some() {
        return make_runs();
    }
    let controls = required_controls(experiment, request.full);
    // Dropped only after the process in the sandbox has ended.
    let _loaded = LoadedControls::load(&controls, tools.ekiden.as_deref()).context(experiment.name.clone())?;
    if let SandboxEntry::Exited(status) = sandbox::enter()? {
        return Ok(Err(ExitCode::from(status)));
    }
    make_runs()
}

/// Prints the verdict on the expectations in one line, and returns the exit status.
pub fn print_verdict(results: &Results) -> u8 {
    let count = |verdict| results.outcomes.iter().filter(|outcome| outcome.verdict == verdict).count();
    let (met, missed, unknown) =
        (count(ExpectationVerdict::Met), count(ExpectationVerdict::Missed), count(ExpectationVerdict::Unknown));
    let (invalid, failed_checks) =
        (analyse::missing_runs(&results.runs), results.checks.iter().filter(|row| !row.pass).count());
    let checks = if failed_checks > 0 { format!(", {failed_checks} link checks failed") } else { String::new() };
    println!("{met} expectations met, {missed} missed, {unknown} unknown; {invalid} runs invalid{checks}");
    match (invalid + failed_checks, missed) {
        (0, 0) => 0,
        (0, _) => cli::EXIT_MISSED,
        _ => cli::EXIT_ERROR,
    }
}

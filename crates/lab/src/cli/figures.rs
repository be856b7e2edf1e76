//! The subcommand `ekiden-lab figures`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use ekiden_lab::experiment::judge::figures::{MIN_BLOCKS, PublishedFigures};
use ekiden_lab::experiment::run::jobs::forward_interrupts;
use ekiden_lab::experiment::spec::builtin::BUILT_IN_EXPERIMENTS;
use ekiden_lab::experiment::spec::file::ExperimentClock;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::report::figures::{ResultPages, remove_stale_figures, store_figures};
use ekiden_sys::{init, signal};

use crate::cli;
use crate::cli::report::load_results;
use crate::cli::run::EkidenPath;

#[derive(Args)]
pub struct FiguresCommand {
    /// Only these of the built-in experiments
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of blocks, at least 6 [default: the number in the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(MIN_BLOCKS)..))]
    blocks: Option<u32>,
    /// Makes no runs: writes the pages from the stored figures
    #[arg(long)]
    pages: bool,
    /// Where the runs go
    #[arg(long, value_name = "DIR", default_value = "results/figures")]
    runs: PathBuf,
    /// Where the figures and pages go
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    docs: PathBuf,
    #[command(flatten)]
    ekiden: EkidenPath,
}

impl FiguresCommand {
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let names = BUILT_IN_EXPERIMENTS.iter().map(|(name, _)| cli::load_experiment(name));
        let experiments: Vec<Experiment> = names.collect::<anyhow::Result<_>>()?;
        let is_known = |name: &String| experiments.iter().any(|experiment| experiment.name == *name);
        if let Some(unknown) = self.only.iter().find(|name| !is_known(name)) {
            bail!("there is no experiment {unknown:?}; `ekiden-lab list` names all");
        }
        for (name, reason) in remove_stale_figures(&self.docs, &experiments)? {
            eprintln!("{name}: removed: {reason}");
        }
        ResultPages::load(&self.docs, &experiments)?.write()?;
        if self.pages {
            return Ok(ExitCode::SUCCESS);
        }
        let mut planned: Vec<&Experiment> = experiments
            .iter()
            .filter(|experiment| self.only.is_empty() || self.only.contains(&experiment.name))
            .collect();
        planned.sort_by_key(|experiment| self.estimated_time(experiment));
        signal::catch_interrupts()?;
        let mut is_complete = true;
        for experiment in planned {
            eprintln!("{}: {}", experiment.name, experiment.title);
            if let Err(reasons) = self.publish(experiment)? {
                is_complete = false;
                eprintln!("{}: not published: {}", experiment.name, reasons.join("; "));
            }
            ResultPages::load(&self.docs, &experiments)?.write()?;
            if let Some(code) = signal::interrupt_exit_code() {
                return Ok(ExitCode::from(code));
            }
        }
        Ok(ExitCode::from(if is_complete { 0 } else { cli::EXIT_ERROR }))
    }

    fn block_count(&self, experiment: &Experiment) -> u32 {
        self.blocks.unwrap_or(experiment.settings.blocks.full)
    }

    fn estimated_time(&self, experiment: &Experiment) -> Duration {
        let runs = u32::try_from(experiment.cells.len()).unwrap_or(u32::MAX);
        experiment.estimated_run_time(true).saturating_mul(runs.saturating_mul(self.block_count(experiment)))
    }

    /// Makes the missing runs, and stores the figures. The inner error has the reasons why they must not be published.
    fn publish(&self, experiment: &Experiment) -> anyhow::Result<Result<(), Vec<String>>> {
        let dir = self.runs.join(&experiment.name);
        let status = run_to_end(&mut self.run_command(experiment, &dir)?).context("cannot run ekiden-lab run")?;
        let is_complete = status.code().is_some_and(|code| [0, cli::EXIT_MISSED].map(i32::from).contains(&code));
        let results = load_results(&dir);
        if !is_complete && results.is_err() {
            return Ok(Err(vec![format!("ekiden-lab run: {status}")]));
        }
        match PublishedFigures::summarise(experiment, &results?) {
            Ok(figures) if is_complete => store_figures(&self.docs, &figures).map(Ok),
            Ok(_) => Ok(Err(vec![format!("ekiden-lab run: {status}")])),
            Err(reasons) => Ok(Err(reasons)),
        }
    }

    /// `ekiden-lab run`, in a process of its own: in real time, runs are made in a sandbox that is never left.
    fn run_command(&self, experiment: &Experiment, dir: &Path) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find the executable of this process")?;
        let is_real = experiment.settings.clock == ExperimentClock::Real;
        let mut command = Command::new(own);
        command.args(["run", &experiment.name, "--full", if is_real { "--real" } else { "--virtual" }]);
        command.args(["--blocks", &self.block_count(experiment).to_string()]).arg("--out").arg(dir);
        if let Some(ekiden) = &self.ekiden.path {
            command.arg("--ekiden").arg(ekiden);
        }
        init::kill_with_parent(&mut command);
        Ok(command)
    }
}

/// Runs `command` to its end. An interrupt of this process ends it, after it has stored its results.
fn run_to_end(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let process = i32::try_from(child.id())?;
    let mut status = None;
    forward_interrupts(&[process], || {
        status = child.try_wait().transpose();
        status.is_some()
    });
    Ok(status.context("it has not ended")??)
}

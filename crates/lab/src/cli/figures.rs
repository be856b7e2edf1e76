//! The subcommand `ekiden-lab figures`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context as _, bail};
use clap::Args;
use ekiden_lab::experiment::judge::figures::{MIN_BLOCKS, PublishedFigures};
use ekiden_lab::experiment::run::jobs::forward_interrupts;
use ekiden_lab::experiment::spec::builtin::BUILT_IN_EXPERIMENTS;
use ekiden_lab::experiment::spec::file::ExperimentClock;
use ekiden_lab::experiment::spec::read::Experiment;
use ekiden_lab::report::figures::{ResultPages, compare_figures, load_figures, remove_stale_figures, store_figures};
use ekiden_sys::{init, signal};

use crate::cli;
use crate::cli::report::load_results;
use crate::cli::run::EkidenPath;

#[derive(Args)]
pub struct FiguresCommand {
    /// Only these built-in experiments
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    only: Vec<String>,
    /// Number of blocks, at least 6 [default: the number in the file]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(MIN_BLOCKS)..))]
    blocks: Option<u32>,
    /// Write the pages from the stored figures, without runs
    #[arg(long, conflicts_with = "check")]
    pages: bool,
    /// Repeat the runs of all stored figures and compare the figures; write nothing into --docs
    #[arg(long, conflicts_with = "blocks")]
    check: bool,
    /// Directory of the runs [default: results/figures; with --check: results/check]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    /// Directory of the figures and pages
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
            bail!("there is no experiment {unknown:?}; `ekiden-lab list` lists the experiments");
        }
        if self.check { self.check_stored(&experiments) } else { self.publish(&experiments) }
    }

    /// Computes the missing figures, and writes all pages.
    fn publish(&self, experiments: &[Experiment]) -> anyhow::Result<ExitCode> {
        for (name, reason) in remove_stale_figures(&self.docs, experiments)? {
            eprintln!("{name}: removed: {reason}");
        }
        ResultPages::load(&self.docs, experiments)?.write()?;
        if self.pages {
            return Ok(ExitCode::SUCCESS);
        }
        let planned = self.planned(experiments.iter().map(|experiment| (experiment, self.block_count(experiment))));
        signal::catch_interrupts()?;
        let mut is_complete = true;
        for (experiment, blocks) in planned {
            match self.make_figures(experiment, blocks)? {
                Ok(figures) => store_figures(&self.docs, &figures)?,
                Err(reasons) => {
                    is_complete = false;
                    eprintln!("{}: not published: {}", experiment.name, reasons.join("; "));
                }
            }
            ResultPages::load(&self.docs, experiments)?.write()?;
            if let Some(code) = signal::interrupt_exit_code() {
                return Ok(ExitCode::from(code));
            }
        }
        Ok(ExitCode::from(if is_complete { 0 } else { cli::EXIT_ERROR }))
    }

    /// Repeats the runs of stored figures, and prints how both sets of figures compare.
    fn check_stored(&self, experiments: &[Experiment]) -> anyhow::Result<ExitCode> {
        let mut stored = Vec::new();
        for experiment in experiments {
            match load_figures(&self.docs, experiment)? {
                Some(figures) => stored.push((experiment, figures.manifest.blocks)),
                None if self.only.contains(&experiment.name) => {
                    bail!("{}: no figures in {}", experiment.name, self.docs.display());
                }
                None => {}
            }
        }
        signal::catch_interrupts()?;
        let mut status = 0;
        for (experiment, blocks) in self.planned(stored.into_iter()) {
            match self.make_figures(experiment, blocks)? {
                Ok(figures) if self.are_reproduced(experiment, &figures)? => {}
                Ok(_) => status = status.max(cli::EXIT_MISSED),
                Err(reasons) => {
                    status = cli::EXIT_ERROR;
                    eprintln!("{}: not compared: {}", experiment.name, reasons.join("; "));
                }
            }
            if let Some(code) = signal::interrupt_exit_code() {
                return Ok(ExitCode::from(code));
            }
        }
        Ok(ExitCode::from(status))
    }

    /// Stores repeated figures, and prints how they compare with the stored ones.
    fn are_reproduced(&self, experiment: &Experiment, again: &PublishedFigures) -> anyhow::Result<bool> {
        store_figures(&self.runs(), again)?;
        // Both are read, because a number may change its last digit when it is written as text and read.
        let read = |dir: &Path| load_figures(dir, experiment)?.with_context(|| dir.display().to_string());
        let (text, are_reproduced) = compare_figures(&read(&self.docs)?, &read(&self.runs())?);
        signal::end_on_broken_pipe()?;
        print!("{text}");
        Ok(are_reproduced)
    }

    /// Returns the selected experiments with their numbers of blocks, the shortest first.
    fn planned<'a>(&self, all: impl Iterator<Item = (&'a Experiment, u32)>) -> Vec<(&'a Experiment, u32)> {
        let is_chosen = |experiment: &Experiment| self.only.is_empty() || self.only.contains(&experiment.name);
        let mut planned: Vec<_> = all.filter(|(experiment, _)| is_chosen(experiment)).collect();
        planned.sort_by_key(|(experiment, blocks)| {
            let runs = u32::try_from(experiment.cells.len()).unwrap_or(u32::MAX).saturating_mul(*blocks);
            experiment.estimated_run_time(true).saturating_mul(runs)
        });
        planned
    }

    fn block_count(&self, experiment: &Experiment) -> u32 {
        self.blocks.unwrap_or(experiment.settings.blocks.full)
    }

    fn runs(&self) -> PathBuf {
        let default = if self.check { "results/check" } else { "results/figures" };
        self.runs.clone().unwrap_or_else(|| default.into())
    }

    /// Makes the missing runs, and summarises all runs. The inner error contains the reasons that forbid publication.
    fn make_figures(
        &self,
        experiment: &Experiment,
        blocks: u32,
    ) -> anyhow::Result<Result<PublishedFigures, Vec<String>>> {
        eprintln!("{}: {}", experiment.name, experiment.title);
        let dir = self.runs().join(&experiment.name);
        let mut command = self.run_command(experiment, blocks, &dir)?;
        let status = run_to_end(&mut command).context("cannot start ekiden-lab run")?;
        let is_complete = status.code().is_some_and(|code| [0, cli::EXIT_MISSED].map(i32::from).contains(&code));
        let incomplete = || vec![format!("ekiden-lab run: {status}")];
        let results = match load_results(&dir) {
            Err(_) if !is_complete => return Ok(Err(incomplete())),
            results => results?,
        };
        let figures = PublishedFigures::summarise(experiment, &results);
        Ok(figures.and_then(|figures| if is_complete { Ok(figures) } else { Err(incomplete()) }))
    }

    /// Returns the command `ekiden-lab run`. It needs its own process: in real time, runs are made in a sandbox that a
    /// process cannot leave.
    fn run_command(&self, experiment: &Experiment, blocks: u32, dir: &Path) -> anyhow::Result<Command> {
        let own = std::env::current_exe().context("cannot find the executable of this process")?;
        let is_real = experiment.settings.clock == ExperimentClock::Real;
        let mut command = Command::new(own);
        command.args(["run", &experiment.name, "--full", if is_real { "--real" } else { "--virtual" }]);
        command.args(["--blocks", &blocks.to_string()]).arg("--out").arg(dir);
        if let Some(ekiden) = &self.ekiden.path {
            command.arg("--ekiden").arg(ekiden);
        }
        init::kill_with_parent(&mut command);
        Ok(command)
    }
}

/// Runs `command` until it exits. An interrupt of this process is forwarded to it, so that it stores its results.
fn run_to_end(command: &mut Command) -> anyhow::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let process = i32::try_from(child.id())?;
    let mut status = None;
    forward_interrupts(&[process], || {
        status = child.try_wait().transpose();
        status.is_some()
    });
    Ok(status.context("ekiden-lab run has not ended")??)
}

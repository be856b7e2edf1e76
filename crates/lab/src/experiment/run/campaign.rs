//! A whole experiment: plans the runs, makes and stores the missing ones, and analyses the results.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use ekiden_sys::signal;

use super::jobs::WorkerPool;
use super::plan::{self, PlannedRun};
use super::program_files::ProgramFiles;
use super::progress::Progress;
use super::virtual_runs::{RunObserver, VirtualRuns};
use crate::capture::CaptureOptions;
use crate::check::{self, CheckSize};
use crate::experiment::collect::manifest::{self, InstalledPrograms};
use crate::experiment::collect::results::{CheckRow, Results, Run};
use crate::experiment::collect::store::ResultStore;
use crate::experiment::judge::analyse;
use crate::experiment::run::{self, RunContext};
use crate::experiment::spec::factor::{self, LevelFilter};
use crate::experiment::spec::read::{CellKey, Experiment, ExperimentCell};
use crate::program;
use crate::temp_dir::TempDir;
use crate::topology::sandbox;
use crate::virtual_time::machine::VirtualTime;

/// Maximum number of attempts to get a valid run, of all commands together. In virtual time, a command makes only one.
const MAX_ATTEMPTS: usize = 3;

/// The options of a campaign.
#[derive(Debug, Clone, Default)]
pub struct ExperimentOptions {
    /// Whether to run all levels with the number of blocks of the full size, rather than of the quick size.
    pub full: bool,
    /// Number of blocks. Default: the number in the experiment file for the size.
    pub blocks: Option<u32>,
    /// Duration of a stream. Default: the duration in the experiment file for the size.
    pub time: Option<Duration>,
    /// Treatments to run. Empty: all.
    pub only: Vec<String>,
    /// Levels of factors to run. Empty: all.
    pub levels: LevelFilter,
    /// Directory of the results. Default: `results/NAME-SIZE`.
    pub out: Option<PathBuf>,
    /// Whether earlier results are removed.
    pub fresh: bool,
    /// Number of concurrent runs. Default in real time: the number in the experiment file; in virtual time: the number
    /// of processors.
    pub jobs: Option<u32>,
    /// Whether to skip the measurement of the links before the first run.
    pub no_check: bool,
    /// Path of the ekiden executable. Default: in the directory of the running executable.
    pub ekiden: Option<PathBuf>,
    /// Captures of all runs. Default: none.
    pub capture: Option<CaptureOptions>,
    /// Kernel and options of the virtual machines. Default: runs are made in real time, without virtual machines.
    pub virtual_time: Option<VirtualTime>,
}

impl ExperimentOptions {
    /// Returns the name of the size: `quick` or `full`.
    #[must_use]
    pub const fn size_name(&self) -> &'static str {
        if self.full { "full" } else { "quick" }
    }

    /// Returns the directory that the results are written to.
    #[must_use]
    pub fn result_dir(&self, experiment: &Experiment) -> PathBuf {
        self.out
            .clone()
            .unwrap_or_else(|| Path::new("results").join(format!("{}-{}", experiment.name, self.size_name())))
    }

    /// Whether `only` and `levels` select the runs of this cell.
    fn is_selected(&self, cell_key: &CellKey) -> bool {
        let has_treatment = self.only.is_empty() || self.only.contains(&cell_key.treatment);
        has_treatment && factor::is_match(&cell_key.levels, &self.levels)
    }

    /// Returns the number of blocks: how many times each treatment runs at each combination of levels.
    #[must_use]
    pub fn block_count(&self, experiment: &Experiment) -> u32 {
        let blocks = experiment.settings.blocks;
        self.blocks.unwrap_or(if self.full { blocks.full } else { blocks.quick })
    }
}

/// Makes the missing runs, and analyses all runs. Without virtual time, the caller must be inside the sandbox.
///
/// # Errors
/// A program is missing or was replaced, the directory has results of another experiment, the links cannot be measured,
/// or an interrupt: the text then says how to continue.
pub fn run_experiment(
    experiment: &Experiment,
    tools: &InstalledPrograms,
    request: &ExperimentOptions,
) -> anyhow::Result<Results> {
    signal::catch_interrupts()?;
    let cells: Vec<&ExperimentCell> = experiment.selected_cells(request.full).collect();
    let dir = request.result_dir(experiment);
    let own = std::env::current_exe().context("cannot find the executable of this process")?;
    let programs = ProgramFiles::record(tools.ekiden.clone().into_iter().chain([own]))?;
    let manifest = manifest::build_manifest(experiment, tools, request)?;
    let blocks = manifest.blocks;
    let mut store = ResultStore::open(&dir, manifest, request.fresh)?;
    let plan = plan::plan_runs(&cells, blocks, store.manifest.seed);
    let plan: Vec<PlannedRun<'_>> = plan.into_iter().filter(|planned| request.is_selected(&planned.cell.key)).collect();
    if let Some(virtual_time) = &request.virtual_time {
        // The check of the links detects a machine that is too slow, which cannot happen in virtual time.
        let machines = VirtualRuns::new(experiment, request, virtual_time, tools.ekiden.clone(), &dir)?;
        run_missing_in_machines(experiment, &plan, &machines, request, &programs, &mut store)?;
    } else {
        program::mount_private_shm()?;
        let folder = TempDir::create(sandbox::run_directory()?, "experiment")?;
        let context = RunContext::new(experiment, request, folder.path(), &dir, tools.ekiden.clone());
        if store.checks.is_empty() && !request.no_check {
            store.save_checks(check_links(&plan)?)?;
        }
        let jobs = request.jobs.unwrap_or(experiment.settings.jobs);
        run_missing(experiment, &plan, &context, &programs, &mut store, jobs)?;
    }
    Ok(analyse::build_results(experiment, &store.manifest, &store.runs, &store.checks))
}

/// Measures the links of the first run, and reports each result on standard error.
fn check_links(plan: &[PlannedRun<'_>]) -> anyhow::Result<Vec<CheckRow>> {
    let Some(first) = plan.first() else { return Ok(Vec::new()) };
    let report = |row: &CheckRow| {
        let verdict = if row.pass { "in range" } else { "OUT OF RANGE" };
        eprintln!("link {} {}, {}: {}, {verdict}", row.link, row.direction, row.property, row.measured);
    };
    check::run(&first.cell.spec.lab, CheckSize::Quick, &mut { report })
}

/// Stores completed runs, and reports the progress.
struct RunRecorder<'a> {
    experiment: &'a Experiment,
    plan: &'a [PlannedRun<'a>],
    programs: &'a ProgramFiles,
    store: &'a mut ResultStore,
    progress: Progress,
    /// Sum of the durations of the recorded runs.
    virtual_time: Duration,
}

impl RunRecorder<'_> {
    /// Stores a run. Returns whether the run must be repeated.
    fn record_run(&mut self, run: Run) -> anyhow::Result<bool> {
        self.programs.ensure_unchanged().inspect_err(|_| self.progress.finish())?;
        if signal::is_interrupted() {
            self.progress.finish();
            anyhow::bail!(
                "interrupted after {} of {} runs: run the same command again to continue (results so far: {})",
                self.progress.done(),
                self.plan.len(),
                self.store.dir().display()
            );
        }
        let planned =
            self.plan.iter().find(|planned| planned.order == run.order).context("the run is not in the plan")?;
        self.progress.on_run_finished(&run, analyse::ratio_so_far(self.experiment, &self.store.runs, &run));
        self.store.append_run(run)?;
        Ok(!is_done(&self.store.runs, planned))
    }
}

impl RunObserver for RunRecorder<'_> {
    fn on_run(&mut self, run: Run) -> anyhow::Result<()> {
        self.virtual_time += run.duration();
        self.record_run(run).map(drop)
    }

    fn on_tick(&mut self, virtual_time: Duration) {
        self.progress.on_time_passed(self.virtual_time + virtual_time);
    }
}

fn run_missing(
    experiment: &Experiment,
    plan: &[PlannedRun<'_>],
    context: &RunContext,
    programs: &ProgramFiles,
    store: &mut ResultStore,
    jobs: u32,
) -> anyhow::Result<()> {
    let missing: Vec<usize> = (0..plan.len()).filter(|number| !is_done(&store.runs, &plan[*number])).collect();
    let progress = Progress::new(experiment, context.full, plan.len(), plan.len() - missing.len());
    let workers = if jobs > 1 && missing.len() > 1 { Some(WorkerPool::start(jobs, plan, context)?) } else { None };
    let virtual_time = Duration::ZERO;
    let mut recorder = RunRecorder { experiment, plan, programs, store, progress, virtual_time };
    if let Some(workers) = workers {
        workers.run(missing.into(), |run| recorder.record_run(run))?;
    } else {
        for planned in missing.into_iter().map(|number| &plan[number]) {
            loop {
                recorder.progress.on_run_started(planned);
                if !recorder.record_run(run::execute_run(planned, context))? {
                    break;
                }
            }
        }
    }
    recorder.progress.finish();
    Ok(())
}

/// Makes each missing run in its own virtual machine, several concurrently. The runs are recorded in the order of the
/// plan, so the file of runs does not depend on the number of concurrent machines.
fn run_missing_in_machines(
    experiment: &Experiment,
    plan: &[PlannedRun<'_>],
    machines: &VirtualRuns,
    request: &ExperimentOptions,
    programs: &ProgramFiles,
    store: &mut ResultStore,
) -> anyhow::Result<()> {
    // A repetition has the same result, unless the host ended the machine, for example for lack of memory. Therefore an
    // invalid run is repeated only by the next command.
    let missing: Vec<&PlannedRun<'_>> = plan.iter().filter(|planned| !is_done(&store.runs, planned)).collect();
    let progress = Progress::new(experiment, request.full, plan.len(), plan.len() - missing.len());
    let virtual_time = Duration::ZERO;
    let mut recorder = RunRecorder { experiment, plan, programs, store, progress, virtual_time };
    let started = Instant::now();
    machines.run_all(&missing, request.jobs, &mut recorder)?;
    recorder.progress.finish();
    if !missing.is_empty() {
        let times = [recorder.virtual_time, started.elapsed()];
        let [virtual_time, real_time] = times.map(|time| time.as_secs_f64());
        eprintln!("{virtual_time:.1} s of virtual time in {real_time:.1} s of real time");
    }
    Ok(())
}

/// Whether a valid result of the planned run exists, or [`MAX_ATTEMPTS`] results of any kind.
fn is_done(runs: &[Run], planned: &PlannedRun<'_>) -> bool {
    let cell_key = &planned.cell.key;
    let is_same_run =
        |run: &&Run| run.block == planned.block && run.treatment == cell_key.treatment && run.levels == cell_key.levels;
    let mut attempts = 0;
    for run in runs.iter().filter(is_same_run) {
        attempts += 1;
        if run.invalid.is_none() {
            return true;
        }
    }
    attempts >= MAX_ATTEMPTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::examples_for_tests::small_experiment;

    #[test]
    fn run_is_done_when_valid_or_after_three_attempts() {
        let experiment = small_experiment("").unwrap();
        let planned = PlannedRun { block: 0, order: 0, cell: &experiment.cells[0], seed: 1 };
        let CellKey { levels, treatment } = planned.cell.key.clone();
        let valid = Run { levels, treatment, ..Run::default() };
        let invalid = Run { invalid: Some("it died".to_owned()), ..valid.clone() };
        let other = Run { block: 1, ..valid.clone() };
        let after_invalid = |count: usize| is_done(&vec![invalid.clone(); count], &planned);
        assert_eq!([0, 1, 2, 3].map(after_invalid), [false, false, false, true]);
        assert!(!is_done(&[other], &planned) && is_done(&[invalid.clone(), valid], &planned));
    }
}

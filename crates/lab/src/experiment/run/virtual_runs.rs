//! Runs in virtual machines: each run boots its own machine.
//!
//! A run therefore depends only on its cell, its seed, the kernel and the programs, and not on earlier runs: the result
//! of a run is the same in another order, beside concurrent runs, and after an interrupt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::campaign::ExperimentOptions;
use super::plan::PlannedRun;
use crate::capture::CaptureOptions;
use crate::experiment::collect::results::Run;
use crate::experiment::run::{self, RunContext};
use crate::experiment::spec::read::{CellKey, Experiment};
use crate::program::{self, service::last_lines};
use crate::temp_dir::TempDir;
use crate::topology::sandbox;
use crate::virtual_time::clock::KernelClock;
use crate::virtual_time::machine::{Machine, MachineCommand, MachineOptions, VirtualTime};

/// One run of an experiment, for one machine; the machine reads the job as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub struct MachineJob {
    name: String,
    /// The text of the experiment file.
    text: String,
    full: bool,
    time: Option<Duration>,
    ekiden: Option<PathBuf>,
    levels: BTreeMap<String, String>,
    treatment: String,
    block: u32,
    order: u32,
    seed: u64,
    capture: Option<CaptureOptions>,
}

/// The result of a job; the machine writes it as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct JobResult {
    run: Run,
    /// Contents of packet logs by path below the directory of results.
    files: BTreeMap<PathBuf, String>,
}

/// Receives the results of [`VirtualRuns::run_all`].
pub trait RunObserver {
    /// Receives each run, in the order of the plan. After an error, no further run begins.
    ///
    /// # Errors
    /// The observer cannot process the run.
    fn on_run(&mut self, run: Run) -> anyhow::Result<()>;

    /// Receives, once a second of real time, the total virtual time of the runs that [`Self::on_run`] has not received
    /// yet.
    fn on_tick(&mut self, virtual_time: Duration);
}

/// Interval of the readings of the clocks of running machines, in real time.
const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Executor of an experiment's runs in virtual machines.
#[derive(Debug)]
pub struct VirtualRuns {
    virtual_time: VirtualTime,
    clock: Option<KernelClock>,
    /// Process ids of running machines.
    running: Mutex<BTreeSet<u32>>,
    experiment: (String, String),
    full: bool,
    time: Option<Duration>,
    ekiden: Option<PathBuf>,
    results_dir: PathBuf,
    capture: Option<CaptureOptions>,
    command: MachineCommand,
}

impl VirtualRuns {
    /// Prepares the command that each machine executes.
    ///
    /// # Errors
    /// The executables of this process and of ekiden, or the current directory, cannot be found.
    pub fn new(
        experiment: &Experiment,
        request: &ExperimentOptions,
        virtual_time: &VirtualTime,
        ekiden: Option<PathBuf>,
        results_dir: &Path,
    ) -> anyhow::Result<Self> {
        let executable = std::env::current_exe().context("cannot find the executable of this process")?;
        let capture = request.capture.as_ref().map(CaptureOptions::in_machine).transpose()?;
        let capture_directory = capture.as_ref().map(|capture| capture.directory.clone());
        Ok(Self {
            virtual_time: virtual_time.clone(),
            clock: KernelClock::find(&virtual_time.kernel.path),
            running: Mutex::default(),
            experiment: (experiment.name.clone(), experiment.text.clone()),
            full: request.full,
            time: request.time,
            ekiden: ekiden.map(fs::canonicalize).transpose()?,
            results_dir: results_dir.to_owned(),
            command: MachineCommand {
                directory: "/".into(),
                host_directory: capture_directory,
                ..MachineCommand::new(executable, &["machine-job"])?
            },
            capture,
        })
    }

    /// Makes runs in up to `jobs` concurrent machines, by default one for each processor.
    ///
    /// # Errors
    /// The observer fails, or a file cannot be written.
    pub fn run_all(
        &self,
        runs: &[&PlannedRun<'_>],
        jobs: Option<u32>,
        observer: &mut impl RunObserver,
    ) -> anyhow::Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let jobs = jobs.map_or(processors, |jobs| jobs as usize).min(runs.len());
        let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for processor in 0..jobs {
                let (sender, next, is_stopped) = (sender.clone(), &next, &is_stopped);
                scope.spawn(move || {
                    while !is_stopped.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(planned) = runs.get(number) else { return };
                        // Sending fails only after `record_in_order` has returned with an error, which the caller
                        // receives.
                        let _ = sender.send((number, self.make_run(planned, processor)));
                    }
                });
            }
            drop(sender);
            let recorded = record_in_order(&receiver, observer, || self.read_clocks());
            is_stopped.store(true, Ordering::Relaxed);
            recorded
        })
    }

    /// Makes a run. A failure of the machine is recorded in the field `invalid` of the result.
    fn make_run(&self, planned: &PlannedRun<'_>, processor: usize) -> anyhow::Result<Run> {
        match self.execute(planned, processor) {
            Err(error) => Ok(Run {
                block: planned.block,
                order: planned.order,
                levels: planned.cell.key.levels.clone(),
                treatment: planned.cell.key.treatment.clone(),
                invalid: Some(format!("{error:#}")),
                ..Run::default()
            }),
            Ok(result) => {
                self.write_files(&result.files)?;
                Ok(result.run)
            }
        }
    }

    /// Returns the sum of the virtual times of all running machines.
    fn read_clocks(&self) -> Duration {
        let Some(clock) = self.clock else { return Duration::ZERO };
        self.running().iter().filter_map(|process| clock.read(*process)).sum()
    }

    fn running(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // No thread panics while it holds the lock.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_files(&self, files: &BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
        for (name, text) in files {
            let path = self.results_dir.join(name);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn execute(&self, planned: &PlannedRun<'_>, processor: usize) -> anyhow::Result<JobResult> {
        let job = MachineJob {
            name: self.experiment.0.clone(),
            text: self.experiment.1.clone(),
            full: self.full,
            time: self.time,
            ekiden: self.ekiden.clone(),
            levels: planned.cell.key.levels.clone(),
            treatment: planned.cell.key.treatment.clone(),
            block: planned.block,
            order: planned.order,
            seed: planned.seed,
            capture: self.capture.clone(),
        };
        let options = MachineOptions { seed: planned.seed, processor, ..self.virtual_time.options };
        let kernel = &self.virtual_time.kernel.path;
        let machine = Machine::boot(kernel, &self.command, &options, true)?;
        let process = machine.process();
        self.running().insert(process);
        let output = machine.run_to_end(&serde_json::to_vec(&job)?);
        self.running().remove(&process);
        let output = output?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "virtual machine: {}: {}", output.status, last_lines(&errors));
        serde_json::from_slice(&output.stdout).context("the virtual machine returned no valid run")
    }
}

/// Passes the results to the observer in the order of their numbers: each result waits until all results with lower
/// numbers have been passed. `read_clocks` returns the virtual time of the runs that have not ended.
fn record_in_order(
    results: &mpsc::Receiver<(usize, anyhow::Result<Run>)>,
    observer: &mut impl RunObserver,
    read_clocks: impl Fn() -> Duration,
) -> anyhow::Result<()> {
    let (mut waiting, mut next) = (BTreeMap::<usize, Run>::new(), 0);
    let mut tick = Instant::now() + TICK_INTERVAL;
    loop {
        match results.recv_timeout(tick.saturating_duration_since(Instant::now())) {
            Ok((number, run)) => {
                waiting.insert(number, run?);
                while let Some(run) = waiting.remove(&next) {
                    observer.on_run(run)?;
                    next += 1;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                observer.on_tick(waiting.values().map(Run::duration).sum::<Duration>() + read_clocks());
                tick = Instant::now() + TICK_INTERVAL;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

impl MachineJob {
    /// Executes the job inside the machine and the sandbox. Returns its result as JSON.
    ///
    /// # Errors
    /// The experiment text is invalid or has no such run, or files cannot be written or read. A failed run is not an
    /// error: the result contains the reason.
    pub fn execute(&self) -> anyhow::Result<String> {
        let experiment =
            Experiment::parse(&self.name, &self.text).map_err(|mistakes| anyhow::anyhow!(mistakes.join("; ")))?;
        let key = CellKey { levels: self.levels.clone(), treatment: self.treatment.clone() };
        let cell = experiment.cells.iter().find(|cell| cell.key == key).context("the experiment has no such run")?;
        program::mount_private_shm()?;
        let folder = TempDir::create(sandbox::run_directory()?, "experiment")?;
        let results_dir = folder.path().join("results");
        let request = ExperimentOptions {
            full: self.full,
            time: self.time,
            capture: self.capture.clone(),
            ..ExperimentOptions::default()
        };
        let context = RunContext::new(&experiment, &request, folder.path(), &results_dir, self.ekiden.clone());
        let planned = PlannedRun { block: self.block, order: self.order, cell, seed: self.seed };
        let run = run::execute_run(&planned, &context);
        let mut files = BTreeMap::new();
        read_files(&results_dir, Path::new(""), &mut files)?;
        Ok(serde_json::to_string(&JobResult { run, files })?)
    }
}

/// Adds all files below `base/directory` to `files`. A missing directory has no files.
fn read_files(base: &Path, directory: &Path, files: &mut BTreeMap<PathBuf, String>) -> anyhow::Result<()> {
    for entry in fs::read_dir(base.join(directory)).into_iter().flatten() {
        let entry = entry?;
        let name = directory.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            read_files(base, &name, files)?;
        } else {
            ensure!(entry.metadata()?.is_file(), "{}: not a file", name.display());
            files.insert(name, fs::read_to_string(entry.path())?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records the runs and the ticks. The first tick drops the sender of the results, which ends `record_in_order`.
    #[derive(Default)]
    struct RecordingObserver {
        orders: Vec<u32>,
        ticks: Vec<Duration>,
        sender: Option<mpsc::Sender<(usize, anyhow::Result<Run>)>>,
    }

    impl RunObserver for RecordingObserver {
        fn on_run(&mut self, run: Run) -> anyhow::Result<()> {
            self.orders.push(run.order);
            Ok(())
        }

        fn on_tick(&mut self, virtual_time: Duration) {
            self.ticks.push(virtual_time);
            self.sender = None;
        }
    }

    fn run_of(order: u32) -> Run {
        Run { order, took: 10.0, ..Run::default() }
    }

    #[test]
    fn results_are_recorded_in_the_order_of_the_plan() {
        let (sender, receiver) = mpsc::channel();
        for number in [2, 0, 3, 1] {
            sender.send((number, Ok(run_of(u32::try_from(number).unwrap())))).unwrap();
        }
        drop(sender);
        let mut observer = RecordingObserver::default();
        record_in_order(&receiver, &mut observer, || Duration::ZERO).unwrap();
        assert_eq!(observer.orders, [0, 1, 2, 3]);
    }

    /// Of three runs, the first is recorded, the second is running, and the third is complete and waits for the second.
    #[test]
    fn tick_adds_the_times_of_waiting_and_running_runs() {
        let (sender, receiver) = mpsc::channel();
        for number in [0, 2] {
            sender.send((number, Ok(run_of(u32::try_from(number).unwrap())))).unwrap();
        }
        let mut observer = RecordingObserver { sender: Some(sender), ..RecordingObserver::default() };
        record_in_order(&receiver, &mut observer, || Duration::from_secs(4)).unwrap();
        assert_eq!((observer.orders, observer.ticks), (vec![0], vec![Duration::from_secs(14)]));
    }
}

//! Concurrent runs: each worker is a process in its own sandbox, and makes one run after another.
//!
//! Workers are forked inside the sandbox of the laboratory, so that the end of that sandbox always ends them, too. A
//! worker reads the number of a run from a pipe, and writes the result to another pipe as a line of JSON.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use ekiden_sys::{init, signal};

use super::plan::PlannedRun;
use crate::experiment::collect::results::Run;
use crate::experiment::run::{self, RunContext};
use crate::program;
use crate::temp_dir::TempDir;
use crate::topology::sandbox::{self, SandboxEntry};

/// Interval of the checks for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The pool's handle of a worker: its process id and pipes.
#[derive(Debug)]
struct WorkerProcess {
    process: i32,
    requests: PipeWriter,
    responses: BufReader<PipeReader>,
}

/// Worker processes that make runs. After a drop of the pool, each worker ends when its current run is complete.
#[derive(Debug)]
pub struct WorkerPool(Vec<WorkerProcess>);

impl WorkerPool {
    /// Starts `count` workers, each of which can make any run of `plan`. Must be called while the process has only one
    /// thread.
    ///
    /// # Errors
    /// fork(2) or pipe(2) fails.
    pub fn start(count: u32, plan: &[PlannedRun<'_>], context: &RunContext) -> anyhow::Result<Self> {
        let mut workers = Self(Vec::new());
        for _ in 0..count {
            let (orders, answers) = (std::io::pipe()?, std::io::pipe()?);
            let Some(process) = init::fork().context("cannot start a worker")? else {
                // Closes the inherited pipe ends of other workers: a worker reads end of file only when all copies are
                // closed.
                drop(workers);
                drop((orders.1, answers.0));
                std::process::exit(worker_main(orders.0, answers.1, plan, context));
            };
            workers.0.push(WorkerProcess { process, requests: orders.1, responses: BufReader::new(answers.0) });
        }
        Ok(workers)
    }

    /// Makes every run of `queue`, which holds numbers of runs in the plan, on the next free worker. `on_result`
    /// receives each result, and returns whether the run must be repeated.
    ///
    /// # Errors
    /// `on_result` fails, or a worker has ended unexpectedly.
    pub fn run(
        self,
        queue: VecDeque<usize>,
        on_result: impl FnMut(Run) -> anyhow::Result<bool> + Send,
    ) -> anyhow::Result<()> {
        let (queue, on_result) = (Mutex::new(queue), Mutex::new(on_result));
        let serve = |mut worker: WorkerProcess| {
            let result = std::iter::from_fn(|| lock(&queue).pop_front()).try_for_each(|number| {
                let run = worker.run(number)?;
                if (lock(&on_result))(run)? {
                    lock(&queue).push_back(number);
                }
                Ok(())
            });
            // When one worker fails, the others stop after their current runs.
            if result.is_err() {
                lock(&queue).clear();
            }
            result
        };
        let processes: Vec<i32> = self.0.iter().map(|worker| worker.process).collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = self.0.into_iter().map(|worker| scope.spawn(|| serve(worker))).collect();
            forward_interrupts(&processes, || threads.iter().all(std::thread::ScopedJoinHandle::is_finished));
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            ended.collect::<Vec<_>>().into_iter().collect()
        })
    }
}

/// Waits until `is_over` returns true. Forwards an interrupt of this process to its children `processes`.
pub fn forward_interrupts(processes: &[i32], mut is_over: impl FnMut() -> bool) {
    let mut is_forwarded = false;
    while !is_over() {
        if signal::is_interrupted() && !is_forwarded {
            is_forwarded = true;
            // The signal fails for a process that has ended: no error.
            processes.iter().for_each(|process| drop(signal::send_term(*process)));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

impl WorkerProcess {
    fn run(&mut self, number: usize) -> anyhow::Result<Run> {
        writeln!(self.requests, "{number}").context("a worker has ended unexpectedly")?;
        let mut answer = String::new();
        let length = self.responses.read_line(&mut answer).context("a worker has ended unexpectedly")?;
        anyhow::ensure!(length > 0, "a worker has ended unexpectedly: run the same command again to continue");
        Ok(serde_json::from_str(&answer)?)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The panic of a thread that held the lock is resumed when the thread is joined.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Main function of a worker process. Returns the exit status.
fn worker_main(orders: PipeReader, answers: PipeWriter, plan: &[PlannedRun<'_>], context: &RunContext) -> i32 {
    match serve_in_sandbox(orders, answers, plan, context) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("worker: {error:#}");
            2
        }
    }
}

fn serve_in_sandbox(
    orders: PipeReader,
    mut answers: PipeWriter,
    plan: &[PlannedRun<'_>],
    context: &RunContext,
) -> anyhow::Result<i32> {
    if let SandboxEntry::Exited(status) = sandbox::enter()? {
        return Ok(i32::from(status));
    }
    signal::catch_interrupts()?;
    program::mount_private_shm()?;
    let folder = TempDir::create(sandbox::run_directory()?, "experiment")?;
    let context = RunContext { folder: folder.path().to_owned(), ..context.clone() };
    for order in BufReader::new(orders).lines() {
        let planned = plan.get(order?.parse::<usize>()?).context("the run is not in the plan")?;
        let run = serde_json::to_string(&run::execute_run(planned, &context))?;
        writeln!(answers, "{run}")?;
    }
    Ok(0)
}

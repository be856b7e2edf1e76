//! Metrics of the process: version, start, threads, pipes and configuration.

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ekiden_sys::clock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::Metrics;
use super::declare::{Declare, SecondsCounter, duration_histogram, set_count, set_seconds};
use crate::pump::PipeCounts;

/// Counters of one worker thread.
#[derive(Debug, Default)]
pub struct WorkerCounts {
    /// The name of the thread.
    pub name: String,
    /// The counters of the thread's pipes.
    pub pipes: PipeCounts,
    /// The CPU time of the thread.
    pub busy: Duration,
    /// Number of connections that the thread has accepted and handed over to a less loaded worker.
    pub handed_over: u64,
}

label_sets! {
    ByResult { result: &'static str }
    ByWorker { worker: String }
    ByFile { file: String, result: &'static str }
}

/// The results of a reload, as values of the label.
const RESULTS: [&str; 2] = ["taken", "rejected"];

/// The metrics of the relay itself.
#[derive(Debug)]
pub(super) struct RelayMetrics {
    reloads: Family<ByResult, Counter>,
    reload_taken: Gauge,
    reload_duration: Histogram,
    list_reloads: Family<ByFile, Counter>,
    busy: Family<ByWorker, SecondsCounter>,
    handed_over: Family<ByWorker, Counter>,
    event_loop_lag: Histogram,
    pipes_open: Gauge,
    pipes_idle: Gauge,
    pipe_fallbacks: Counter,
    process: ProcessMetrics,
}

impl Default for RelayMetrics {
    fn default() -> Self {
        let itself = Self {
            reloads: Family::default(),
            reload_taken: Gauge::default(),
            reload_duration: duration_histogram(),
            list_reloads: Family::default(),
            busy: Family::default(),
            handed_over: Family::default(),
            event_loop_lag: Histogram::new((0..18).map(|power| 0.000_01 * f64::from(1 << power))),
            pipes_open: Gauge::default(),
            pipes_idle: Gauge::default(),
            pipe_fallbacks: Counter::default(),
            process: ProcessMetrics::default(),
        };
        // The relay has started, so the first configuration has been applied.
        itself.reload_taken.set(1);
        // The counters exist from the start, because an alert on a counter that does not exist yet would never fire.
        RESULTS.into_iter().for_each(|result| drop(itself.reloads.get_or_create(&ByResult { result })));
        itself
    }
}

impl RelayMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        self.process.register(registry);
        let r = registry.sub_registry_with_prefix("ekiden");
        r.declare("build", "The running version", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        r.declare("reloads", "Configuration reloads by result", self.reloads.clone());
        let taken = "Whether the last reload succeeded: 1 if applied, 0 if rejected";
        r.declare("reload_taken", taken, self.reload_taken.clone());
        r.declare(
            "reload_seconds",
            "Duration of configuration reloads, from the signal to the result",
            self.reload_duration.clone(),
        );
        r.declare("target_list_reloads", "Changed files of to_files by result", self.list_reloads.clone());
        r.declare("worker_busy_seconds", "Processor time of the worker", self.busy.clone());
        let handed_over = "Connections that the worker accepted and passed to a less loaded worker";
        r.declare("worker_handed_over", handed_over, self.handed_over.clone());
        let lag = "Time from an event being ready to its worker handling it, sampled";
        r.declare("event_loop_lag_seconds", lag, self.event_loop_lag.clone());
        r.declare("pipes_open", "Open pipes", self.pipes_open.clone());
        r.declare("pipes_idle", "Idle pipes", self.pipes_idle.clone());
        r.declare("pipe_fallbacks", "Times a flow copied because no pipe was available", self.pipe_fallbacks.clone());
    }

    pub(super) fn record_reload(&self, is_applied: bool) {
        self.reloads.get_or_create(&ByResult { result: RESULTS[usize::from(!is_applied)] }).inc();
        self.reload_taken.set(i64::from(is_applied));
    }

    /// Updates the values that are read only for a scrape.
    pub(super) fn update(&self, workers: &[WorkerCounts]) {
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let pipes = || workers.iter().map(|worker| worker.pipes);
        self.pipes_open.set(number(pipes().map(|pipes| pipes.open).sum()));
        self.pipes_idle.set(number(pipes().map(|pipes| pipes.idle).sum()));
        set_count(&self.pipe_fallbacks, pipes().map(|pipes| pipes.fallbacks).sum());
        for worker in workers {
            let label = ByWorker { worker: worker.name.clone() };
            set_seconds(&self.busy.get_or_create(&label), worker.busy.as_secs_f64());
            set_count(&self.handed_over.get_or_create(&label), worker.handed_over);
        }
        self.process.update();
    }
}

impl Metrics {
    /// Records the duration of a reload, including rejected reloads.
    pub fn record_reload_duration(&self, span: Duration) {
        self.relay.reload_duration.observe(span.as_secs_f64());
    }

    /// Counts an attempt to read a changed file with a list of targets.
    pub fn record_list_reload(&self, file: String, result: &'static str) {
        self.relay.list_reloads.get_or_create(&ByFile { file, result }).inc();
    }

    /// Records the time for which a ready task waited for its worker thread.
    pub fn record_event_loop_lag(&self, span: Duration) {
        self.relay.event_loop_lag.observe(span.as_secs_f64());
    }
}

/// The metrics of the process.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    start: Gauge<f64, AtomicU64>,
    cpu_time: SecondsCounter,
    resident: Gauge,
    virtual_memory: Gauge,
    open_descriptors: Gauge,
    max_descriptors: Gauge,
    threads: Gauge,
}

impl Default for ProcessMetrics {
    fn default() -> Self {
        let process = Self {
            start: Gauge::default(),
            cpu_time: SecondsCounter::default(),
            resident: Gauge::default(),
            virtual_memory: Gauge::default(),
            open_descriptors: Gauge::default(),
            max_descriptors: Gauge::default(),
            threads: Gauge::default(),
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        process.start.set(now.as_secs_f64());
        process
    }
}

impl ProcessMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.declare("process_start_time_seconds", "Start time of the process since the Unix epoch", self.start.clone());
        r.declare("process_cpu_seconds", "Processor time of the process, user and system", self.cpu_time.clone());
        r.declare("process_resident_memory_bytes", "Resident memory", self.resident.clone());
        r.declare("process_virtual_memory_bytes", "Virtual memory", self.virtual_memory.clone());
        r.declare("process_open_fds", "Open file descriptors", self.open_descriptors.clone());
        r.declare("process_max_fds", "Limit on open file descriptors", self.max_descriptors.clone());
        r.declare("process_threads", "Threads", self.threads.clone());
    }

    /// Reads the values from the kernel. After a failed read, the old value is kept.
    pub(super) fn update(&self) {
        set_seconds(&self.cpu_time, clock::process_cpu_time().as_secs_f64());
        let tell = |gauge: &Gauge, number: Option<u64>| {
            if let Some(number) = number.and_then(|number| i64::try_from(number).ok()) {
                gauge.set(number);
            }
        };
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kib = |key| field(&status, key).map(|kib| kib * 1024);
        tell(&self.resident, kib("VmRSS:"));
        tell(&self.virtual_memory, kib("VmSize:"));
        tell(&self.threads, field(&status, "Threads:"));
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        tell(&self.max_descriptors, field(&limits, "Max open files"));
        tell(&self.open_descriptors, open_descriptors());
    }
}

/// Returns the number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Returns the number of open file descriptors. Since Linux 6.2, the size of the directory is that number; on older
/// kernels, the entries are counted.
fn open_descriptors() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    let size = fs::metadata(FOLDER).ok()?.len();
    if size > 0 { Some(size) } else { u64::try_from(fs::read_dir(FOLDER).ok()?.count()).ok() }
}

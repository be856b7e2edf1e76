//! The process as every Prometheus client library shows it, under the names that dashboards know (proc(5)).

use std::fs;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};

use ekiden_sys::clock;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::declare::{Declare, SecondsCounter, set_seconds};

/// The numbers of the process.
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
        r.declare("process_start_time_seconds", "When the process started, since 1970", self.start.clone());
        r.declare("process_cpu_seconds", "Processor time of the process, user and system", self.cpu_time.clone());
        r.declare("process_resident_memory_bytes", "Memory that is in RAM", self.resident.clone());
        r.declare("process_virtual_memory_bytes", "Memory that is mapped", self.virtual_memory.clone());
        r.declare("process_open_fds", "Open descriptors", self.open_descriptors.clone());
        r.declare("process_max_fds", "Most descriptors that may be open", self.max_descriptors.clone());
        r.declare("process_threads", "Threads", self.threads.clone());
    }

    /// Asks the kernel. What it does not say stays as it was.
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

/// The number behind `key`.
fn field(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// How many there are. Linux says so since 6.2 by the size of the folder; before, they have to be counted.
fn open_descriptors() -> Option<u64> {
    const FOLDER: &str = "/proc/self/fd";
    let size = fs::metadata(FOLDER).ok()?.len();
    if size > 0 { Some(size) } else { u64::try_from(fs::read_dir(FOLDER).ok()?.count()).ok() }
}

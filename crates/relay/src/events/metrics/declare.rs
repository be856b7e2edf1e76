//! The declaration of metrics, and histogram buckets that several metrics share.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The units with which names of metrics end.
const UNITS: [&str; 5] = ["seconds", "bytes", "ratio", "bits_per_second", "bytes_per_second"];

/// Registers metrics with their names and descriptions.
pub trait Declare {
    /// Registers `metric` under `name`. A counter is exposed as `NAME_total`.
    fn declare(&mut self, name: &str, help: &str, metric: impl Metric);
}

impl Declare for Registry {
    fn declare(&mut self, name: &str, help: &str, metric: impl Metric) {
        // The registry appends the unit to the name again.
        let split = |unit: &&'static str| Some((name.strip_suffix(*unit)?.strip_suffix('_')?, *unit));
        match UNITS.iter().find_map(split) {
            Some((stem, unit)) => self.register_with_unit(stem, help, Unit::Other(unit.to_owned()), metric),
            None => self.register(name, help, metric),
        }
    }
}

/// A counter of time in seconds.
pub type SecondsCounter = Counter<f64, AtomicU64>;

/// Sets the counter to a value that the kernel counts.
pub fn set_seconds(counter: &SecondsCounter, value: f64) {
    counter.inner().store(value.to_bits(), Ordering::Relaxed);
}

/// Sets the counter to a value that another part of the relay counts.
pub fn set_count(counter: &Counter, count: u64) {
    counter.inner().store(count, Ordering::Relaxed);
}

/// Creates a histogram of durations, with buckets from 0.1 ms to about 3.3 s in powers of two.
pub fn duration_histogram() -> Histogram {
    Histogram::new((0..16).map(|power| 0.0001 * f64::from(1 << power)))
}

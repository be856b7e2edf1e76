//! What the machine itself does to time: a row that cannot fail, to read the others by.

use std::thread;
use std::time::{Duration, Instant};

use super::row::Finding;
use crate::{emulator, stats};

const SLEEP_INTERVAL: Duration = Duration::from_millis(1);

/// How late a thread is woken that does nothing but sleep, as promptly as the emulator may. A guest whose host is busy is
/// stopped for milliseconds, and so is everything on it.
pub fn check_wakeup_latency(duration: Duration) -> Finding {
    let mut late = thread::scope(|scope| {
        scope.spawn(|| measure_oversleep(duration)).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    late.sort_by(f64::total_cmp);
    let [median, p999, most] = [0.5, 0.999, 1.0].map(|q| stats::quantile(&late, q));
    Finding {
        wanted: "to compare: how late a thread wakes that only sleeps".to_owned(),
        measured: format!("median {median:.0}, p99.9 {p999:.0}, at most {most:.0} µs in {} s", duration.as_secs()),
        pass: true,
    }
}

/// By how much each sleep ended too late, in microseconds.
fn measure_oversleep(duration: Duration) -> Vec<f64> {
    let _awake = emulator::hold_cpu_dma_latency();
    // As in the emulator: without the privilege it is simply later.
    let _ = ekiden_sys::thread::set_min_timer_slack();
    let _ = ekiden_sys::thread::set_realtime();
    let start = Instant::now();
    let wakes = (1..).map(|tick| start + SLEEP_INTERVAL * tick).take_while(|wake| *wake < start + duration);
    wakes
        .map(|wake| {
            thread::sleep(wake.saturating_duration_since(Instant::now()));
            wake.elapsed().as_secs_f64() * 1e6
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_never_ends_early_and_every_tick_is_counted() {
        let late = measure_oversleep(Duration::from_millis(50));
        assert_eq!(late.len(), 49);
        assert!(late.iter().all(|micros| *micros >= 0.0));
    }
}

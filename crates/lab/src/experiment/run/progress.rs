//! Progress of the runs on standard error: one line for each run, and on a terminal a bar with the remaining time.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::plan::PlannedRun;
use crate::experiment::collect::results::{Metric, Run};
use crate::experiment::spec::read::Experiment;

const BAR_WIDTH: usize = 24;

/// Progress report of an experiment on standard error.
#[derive(Debug)]
pub struct Progress {
    metric: Metric,
    treatments: usize,
    total: usize,
    done: usize,
    finished: u32,
    estimated_run_time: Duration,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Creates the report for `total` runs, of which `done` exist already.
    #[must_use]
    pub fn new(experiment: &Experiment, full: bool, total: usize, done: usize) -> Self {
        if done > 0 {
            eprintln!("{done} of {total} runs already exist");
        }
        Self {
            metric: experiment.metric.clone(),
            treatments: experiment.settings.treatments.iter().map(String::len).max().unwrap_or(0),
            total,
            done,
            finished: 0,
            estimated_run_time: experiment.estimated_run_time(full),
            started: Instant::now(),
            terminal: stderr().is_terminal(),
        }
    }

    /// Returns the number of completed runs, including those of earlier starts.
    #[must_use]
    pub const fn done(&self) -> usize {
        self.done
    }

    /// On a terminal, draws the bar with the treatment of the run that begins.
    pub fn on_run_started(&self, planned: &PlannedRun<'_>) {
        if self.terminal {
            let treatment = &planned.cell.key.treatment;
            let left = format_duration(self.time_left());
            eprint!("\r\x1b[2K{} {}/{}  {left} left  {treatment}", bar(self.done, self.total), self.done, self.total);
            // Only the bar would be missing.
            let _ = stderr().flush();
        }
    }

    /// On a terminal, draws the bar with two clocks: the real time since the start, and `virtual_time`, the sum over
    /// all machines.
    pub fn on_time_passed(&self, virtual_time: Duration) {
        if self.terminal {
            eprint!("\r\x1b[2K{}", self.format_clocks(self.started.elapsed(), virtual_time));
            // Only the bar would be missing.
            let _ = stderr().flush();
        }
    }

    /// Prints the line of a completed run. `ratio` is the ratio of its metric to that of the base run.
    pub fn on_run_finished(&mut self, run: &Run, ratio: Option<f64>) {
        self.done += usize::from(run.invalid.is_none());
        self.finished += 1;
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
        eprintln!("{}", self.format_line(run, ratio));
    }

    /// Clears the bar after the last run.
    pub fn finish(&self) {
        if self.terminal {
            eprint!("\r\x1b[2K");
        }
    }

    fn format_clocks(&self, real_time: Duration, virtual_time: Duration) -> String {
        let [real_time, virtual_time] = [real_time, virtual_time].map(format_clock);
        let clocks = format!("{real_time}, virtual {virtual_time}");
        // The estimate of the experiment is in virtual time, so the remaining real time is unknown before the first
        // run.
        let left = (self.finished > 0).then(|| format!("  {} left", format_duration(self.time_left())));
        let left = left.unwrap_or_default();
        format!("{} {}/{}  {clocks}{left}", bar(self.done, self.total), self.done, self.total)
    }

    fn format_line(&self, run: &Run, ratio: Option<f64>) -> String {
        let levels: Vec<String> = run.levels.iter().map(|(factor, level)| format!("{factor}={level}")).collect();
        let (width, wide) = (self.total.to_string().len(), self.treatments);
        let head = format!("{:>width$}/{}  block {}", self.done, self.total, run.block + 1);
        let what = format!("{head}  {}  {:<wide$}", levels.join(" "), run.treatment);
        if let Some(reason) = &run.invalid {
            return format!("{what}  invalid: {reason}");
        }
        let value = run.metrics.get(&self.metric.key).copied().unwrap_or_default();
        let ratio = ratio.map_or_else(String::new, |ratio| format!("  {ratio:.2}x"));
        let warnings: String = run.warnings.iter().map(|warning| format!("  warning: {warning}")).collect();
        format!("{what}  {value:>8.2} {}{ratio}{warnings}", self.metric.unit)
    }

    fn time_left(&self) -> Duration {
        let each = if self.finished == 0 { self.estimated_run_time } else { self.started.elapsed() / self.finished };
        each * u32::try_from(self.total.saturating_sub(self.done)).unwrap_or(u32::MAX)
    }
}

fn bar(done: usize, total: usize) -> String {
    let full = (BAR_WIDTH * done).checked_div(total).unwrap_or(BAR_WIDTH).min(BAR_WIDTH);
    format!("{}{}", "█".repeat(full), "░".repeat(BAR_WIDTH - full))
}

/// Formats a duration in seconds up to 99 s, in minutes up to 100 min, else in hours.
#[must_use]
pub fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5999 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", Duration::from_secs(seconds).as_secs_f64() / 3600.0),
    }
}

/// Formats a time as `M:SS`, from one hour on as `H:MM:SS`.
fn format_clock(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs() % 60);
    match minutes {
        0..=59 => format!("{minutes}:{seconds:02}"),
        _ => format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_clocks_and_bars_are_formatted() {
        let shown = [5, 100, 5400, 9000].map(|seconds| format_duration(Duration::from_secs(seconds)));
        assert_eq!(shown, ["5 s", "2 min", "90 min", "2.5 h"]);
        let clocks = [0, 35, 250, 3600, 7384].map(|seconds| format_clock(Duration::from_secs(seconds)));
        assert_eq!(clocks, ["0:00", "0:35", "4:10", "1:00:00", "2:03:04"]);
        assert_eq!(bar(6, 12), format!("{}{}", "█".repeat(12), "░".repeat(12)));
        assert_eq!(bar(0, 0).chars().filter(|c| *c == '█').count(), BAR_WIDTH);
    }
}

//! CPU use of the machine (proc_stat(5)) and of the programs on each host.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

use crate::topology::network::Network;

/// Clock ticks per second in the files of the kernel, independent of the kernel's timer frequency (time(7)).
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the CPU time of the running programs on each host so far, in seconds. Programs that have ended are not
/// included.
///
/// # Errors
/// `/proc` or the network namespace of a host cannot be read.
pub fn cpu_time_by_host(network: &Network) -> anyhow::Result<BTreeMap<String, f64>> {
    let mut hosts = BTreeMap::new();
    for host in network.hosts() {
        hosts.insert(fs::read_link(host.namespace_path()?)?, (host.name().to_owned(), 0.0));
    }
    for process in fs::read_dir("/proc").context("/proc")? {
        let folder = process?.path();
        // Most entries are processes outside the lab, processes that have just ended, or not processes.
        let host = fs::read_link(folder.join("ns/net")).ok().and_then(|namespace| hosts.get_mut(&namespace));
        if let (Some((_, used)), Some(time)) = (host, process_cpu_time(&folder)) {
            *used += time;
        }
    }
    Ok(hosts.into_values().collect())
}

/// Returns the CPU time of this process so far, in seconds; `None` if `/proc` cannot be read.
#[must_use]
pub fn own_cpu_time() -> Option<f64> {
    process_cpu_time(&PathBuf::from("/proc/self"))
}

fn process_cpu_time(process: &std::path::Path) -> Option<f64> {
    parse_cpu_seconds(&fs::read_to_string(process.join("stat")).ok()?)
}

/// Returns the user and system time of a process and of the children that it has waited for, in seconds
/// (proc_pid_stat(5)).
fn parse_cpu_seconds(stat: &str) -> Option<f64> {
    // The name of the program may contain any character, including parentheses and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks: Option<Vec<f64>> = rest.split_whitespace().skip(11).take(4).map(|tick| tick.parse().ok()).collect();
    Some(ticks.filter(|ticks| ticks.len() == 4)?.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// Sum of the times of all processors since the system started, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuSample {
    busy_ticks: u64,
    total_ticks: u64,
}

impl CpuSample {
    /// Takes a sample. `None` if `/proc/stat` cannot be read.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let ticks: Vec<u64> =
            text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|t| t.parse().ok()).collect();
        // The fields are user nice system idle iowait irq softirq steal; guest times are part of user and nice. Time
        // taken by other virtual machines (steal) was not available to this machine, so it counts as busy.
        let all = ticks.iter().take(8).sum();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        Some(Self { busy_ticks: all - idle, total_ticks: all })
    }

    /// Returns the share of the processors that was busy between `before` and this sample, from 0 to 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share")]
    pub fn busy_since(self, before: Self) -> f64 {
        let all = self.total_ticks.saturating_sub(before.total_ticks);
        if all == 0 { 0.0 } else { self.busy_ticks.saturating_sub(before.busy_ticks) as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ekiden_sys::clock::thread_cpu_time;

    use super::*;

    #[test]
    fn cpu_time_includes_children_for_any_process_name() {
        let stat = "7 (a (b) 1) S 1 7 7 0 -1 4194560 9 8 0 0 150 50 20 5 20 0 1 0 99 1 2";
        assert_eq!(parse_cpu_seconds(stat), Some(2.25));
        assert_eq!(parse_cpu_seconds("7 (a) S 1"), None);
    }

    #[test]
    fn own_cpu_time_increases_by_the_work_of_a_thread() {
        let (before, start) = (own_cpu_time().unwrap(), thread_cpu_time());
        let mut number = 1_u64;
        while thread_cpu_time() < start + Duration::from_millis(50) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        // User and system time are each rounded down to a tick of 10 ms. The work of other threads only adds to them.
        let worked = own_cpu_time().unwrap() - before;
        assert!(worked > 0.03 - 1e-9, "{worked} s of 50 ms of work");
    }

    #[test]
    fn iowait_is_idle_and_steal_is_busy() {
        let before = CpuSample::parse("cpu  10 0 0 100 0 0 0 0 0 0\ncpu0 1").unwrap();
        let after = CpuSample::parse("cpu  20 0 10 140 20 0 10 10 5 0\n").unwrap();
        assert!((after.busy_since(before) - 0.4).abs() < 1e-9);
        assert_eq!(CpuSample::parse("intr 5"), None);
    }
}

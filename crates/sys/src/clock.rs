//! A clock that several processes of one machine can compare (clock_gettime(2)); [`std::time::Instant`] hides its number.

use std::time::Duration;

/// The time since some moment before this process (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec for the kernel to fill; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn another_process_reads_the_same_clock() {
        let before = monotonic();
        let uptime = Command::new("cat").arg("/proc/uptime").output().unwrap();
        let text = String::from_utf8(uptime.stdout).unwrap();
        let boot: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        // Time that the machine slept is in the other, and not in this one (proc_uptime(5)); it has two decimals.
        assert!(before.as_secs_f64() <= boot + 0.01, "{before:?} of {boot} s");
        assert!(monotonic() > before);
    }
}

//! Clocks (clock_gettime(2)): one that several processes of one machine can compare, which [`std::time::Instant`] does not
//! show, and those of processor time.

use std::time::Duration;

/// The time since some moment before this process (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// Processor time of this process, user and system, of all its threads (`CLOCK_PROCESS_CPUTIME_ID`).
#[must_use]
pub fn process_cpu_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Processor time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`).
#[must_use]
pub fn thread_cpu_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec for the kernel to fill; these clocks are always there.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn monotonic_time_advances_and_does_not_exceed_uptime() {
        let before = monotonic();
        let uptime = Command::new("cat").arg("/proc/uptime").output().unwrap();
        let text = String::from_utf8(uptime.stdout).unwrap();
        let boot: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
        // Uptime includes suspended time, the monotonic clock does not (proc_uptime(5)). Uptime has two decimals.
        assert!(before.as_secs_f64() <= boot + 0.01, "{before:?} of {boot} s");
        assert!(monotonic() > before);
    }

    #[test]
    fn work_counts_for_the_cpu_time_of_its_thread_and_process() {
        // The process clock is read first, so that time between the two reads counts for both.
        let (process, thread) = (process_cpu_time(), thread_cpu_time());
        let mut number = 1_u64;
        while thread_cpu_time() < thread + Duration::from_millis(20) {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(process_cpu_time() >= process + Duration::from_millis(20));
        let new_thread = std::thread::spawn(thread_cpu_time).join().unwrap();
        assert!(new_thread < Duration::from_millis(20), "{new_thread:?} for a new thread");
    }
}

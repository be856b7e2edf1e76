//! Clocks (clock_gettime(2)): the monotonic clock as a number that processes of one machine can compare, unlike
//! [`std::time::Instant`], and the clocks of CPU time.

use std::time::Duration;

/// Returns the time of the monotonic clock, whose zero is the same for all processes of this machine
/// (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// Returns the CPU time, user and system, of all threads of this process (`CLOCK_PROCESS_CPUTIME_ID`).
#[must_use]
pub fn process_cpu_time() -> Duration {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the CPU time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`).
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
    use std::io::{Read as _, Write as _};
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    const WORK: Duration = Duration::from_millis(20);

    /// Consumes [`WORK`] of CPU time on this thread.
    fn work() {
        let (start, mut number) = (thread_cpu_time(), 1_u64);
        while thread_cpu_time() < start + WORK {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
    }

    /// [`Instant`] reads the same clock on Linux: its readings outside and inside the measured interval are the bounds.
    #[test]
    fn monotonic_time_passes_as_fast_as_that_of_instant() {
        let (outer, before, inner) = (Instant::now(), monotonic(), Instant::now());
        work();
        let (least, after, most) = (inner.elapsed(), monotonic(), outer.elapsed());
        let passed = after.checked_sub(before).expect("the clock is not behind an earlier reading");
        assert!(passed >= least && passed <= most, "{passed:?}, by Instant {least:?} to {most:?}");
        // The monotonic clock is slewed (adjtimex(2)), but CPU time is not, hence the tolerance of one half.
        assert!(passed > WORK / 2, "{passed:?} with {WORK:?} of work");
    }

    #[test]
    fn waiting_takes_no_cpu_time_of_the_thread() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let (start, thread) = (monotonic(), thread_cpu_time());
        let worker = std::thread::spawn(move || {
            work();
            writer.write_all(b"!").unwrap();
        });
        reader.read_exact(&mut [0]).unwrap();
        let (waited, used) = (monotonic() - start, thread_cpu_time() - thread);
        worker.join().unwrap();
        assert!(waited > WORK / 2 && used < WORK / 2, "{used:?} of processor time in {waited:?}");
    }

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
        let process = process_cpu_time();
        work();
        assert!(process_cpu_time() >= process + WORK);
        let new_thread = std::thread::spawn(thread_cpu_time).join().unwrap();
        assert!(new_thread < WORK, "{new_thread:?} for a new thread");
    }
}

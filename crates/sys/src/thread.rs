//! Scheduling of the calling thread, and its statistics (prctl(2), sched(7)).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// The scheduler's statistics of a thread, since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedStats {
    /// Time on a processor.
    pub run_time: Duration,
    /// Time for which the thread was ready to run and waited for a processor, because other threads ran or the quota of
    /// its cgroup was used up.
    pub runqueue_wait: Duration,
}

/// Returns the statistics of the calling thread (`/proc/thread-self/schedstat`; sched-stats.rst in the kernel's
/// documentation).
///
/// # Errors
/// The file is missing: there is no `/proc`, or the kernel lacks `CONFIG_SCHED_INFO`.
pub fn sched_stats() -> io::Result<SchedStats> {
    read(&std::fs::read_to_string("/proc/thread-self/schedstat")?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn read(text: &str) -> Option<SchedStats> {
    let mut spans = text.split_whitespace().map(|nanos| nanos.parse().ok().map(Duration::from_nanos));
    Some(SchedStats { run_time: spans.next()??, runqueue_wait: spans.next()?? })
}

/// Sets the timer slack of the thread to one nanosecond (`PR_SET_TIMERSLACK`); the default is 50 µs.
///
/// # Errors
/// The kernel's error.
pub fn set_min_timer_slack() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the thread precedence over all threads that are not real-time (`SCHED_FIFO`, lowest priority).
///
/// # Errors
/// The kernel's error: the process lacks `CAP_SYS_NICE`.
pub fn set_realtime() -> io::Result<()> {
    // The kernel's `struct sched_param` is this number. The system call is direct, because the function of musl always
    // fails.
    let priority: libc::c_int = 1;
    // SAFETY: the number outlives the call; 0 means the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_FIFO, &raw const priority) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the numbers of the processors on which the calling thread may run (`sched_getaffinity(2)`).
///
/// # Errors
/// The kernel's error: `EINVAL` on a machine with more than 1024 processors.
pub fn allowed_processors() -> io::Result<Vec<usize>> {
    // SAFETY: a cpu_set_t is plain bits, for which zero means no processor.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: the kernel fills `set` up to its size; 0 means the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the numbers are below the size of the set.
    let is_allowed = |number: &usize| unsafe { libc::CPU_ISSET(*number, &set) };
    Ok((0..libc::CPU_SETSIZE as usize).filter(is_allowed).collect())
}

/// Makes `command` start its program on one processor (`sched_setaffinity(2)`). An error is then the error of `spawn`.
pub fn start_on_processor(command: &mut Command, number: usize) {
    // SAFETY: a cpu_set_t is plain bits, for which zero means no processor.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    // SAFETY: CPU_SET checks that the number is in the set.
    unsafe { libc::CPU_SET(number, &mut set) };
    let pin = move || {
        // SAFETY: `set` is valid and has this size; 0 means the calling thread.
        let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork(2) and exec(3) the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(pin) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_time_grows_with_work() {
        let before = sched_stats().unwrap();
        let mut sum = 0_u64;
        let mut now = before;
        for step in 0..1_000_000 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(step));
            if step % 10_000 == 0 {
                now = sched_stats().unwrap();
            }
        }
        assert!(now.run_time > before.run_time && now.runqueue_wait >= before.runqueue_wait, "{before:?} {now:?}");
    }

    #[test]
    fn schedstat_text_is_parsed() {
        let expected =
            SchedStats { run_time: Duration::from_nanos(596_993), runqueue_wait: Duration::from_nanos(117_155) };
        assert_eq!(read("596993 117155 2\n"), Some(expected));
        assert_eq!([read(""), read("5"), read("a b c")], [None; 3]);
    }
}

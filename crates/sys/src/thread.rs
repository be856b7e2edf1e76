//! How promptly the calling thread runs (prctl(2), sched(7)).

use std::io;

/// Asks for timers that are at most a nanosecond late by design (`PR_SET_TIMERSLACK`); the default is 50 µs.
///
/// # Errors
/// The kernel's.
pub fn tight_timers() -> io::Result<()> {
    // SAFETY: this option takes one number and touches no memory.
    let done = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Makes the thread run before all others that are not real-time (`SCHED_FIFO`, lowest priority).
///
/// # Errors
/// The kernel's: no `CAP_SYS_NICE`.
pub fn realtime() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters outlive the call; 0 means the calling thread.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

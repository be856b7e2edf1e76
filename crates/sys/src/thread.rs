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

/// Keeps the calling thread on the last processor it may run on, and returns that processor's number.
///
/// # Errors
/// The kernel's, from sched_setaffinity(2).
pub fn pin_to_last_processor() -> io::Result<usize> {
    // SAFETY: a cpu_set_t is plain bits, for which zero is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of::<libc::cpu_set_t>();
    // SAFETY: the kernel writes at most `size` bytes into the set; 0 means the calling thread.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut allowed) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let count = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the number is below the size of the set.
    let last = (0..count).rev().find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) }).unwrap_or(0);
    // SAFETY: as above, for which zero is the empty set.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is one of the set the kernel has given us.
    unsafe { libc::CPU_SET(last, &mut one) };
    // SAFETY: the kernel reads `size` bytes of the set.
    let done = unsafe { libc::sched_setaffinity(0, size, &raw const one) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(last) }
}

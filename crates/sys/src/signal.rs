//! Handlers of signals, and signals to other processes (sigaction(2), kill(2)).

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// Number of the last interrupt signal; 0 before the first.
static INTERRUPT: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_interrupt(signal: libc::c_int) {
    INTERRUPT.store(signal, Ordering::Relaxed);
}

/// Installs a handler of SIGINT and SIGTERM. From now on these signals do not end the process: [`is_interrupted`]
/// reports them, and they interrupt a blocking system call of the main thread, which returns `EINTR`.
///
/// # Errors
/// The error of sigaction(2).
pub fn catch_interrupts() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all zeroes is a valid sigaction: no flags, hence no SA_RESTART, and an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_interrupt as *const () as libc::sighandler_t;
        // SAFETY: `action` is initialised, and its handler does nothing but store an atomic, which any signal handler may.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Returns whether SIGINT or SIGTERM has arrived since [`catch_interrupts`].
#[must_use]
pub fn is_interrupted() -> bool {
    INTERRUPT.load(Ordering::Relaxed) != 0
}

/// Returns the exit code of an interrupted process as shells report it: 128 plus the number of the signal. `None`
/// without an interrupt since [`catch_interrupts`].
#[must_use]
pub fn interrupt_exit_code() -> Option<u8> {
    let signal = INTERRUPT.load(Ordering::Relaxed);
    (signal != 0).then(|| u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// Restores the default action of SIGPIPE, which the runtime of Rust ignores. From now on a write to a pipe without a
/// reader ends this process without a message, as users expect of a command such as `ekiden status | head`. Do not call
/// this in a process that writes to other programs, or to sockets without `MSG_NOSIGNAL`.
///
/// # Errors
/// The error of signal(2).
pub fn end_on_broken_pipe() -> io::Result<()> {
    // SAFETY: SIG_DFL is a valid action of SIGPIPE, and runs no code of this process.
    if unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) } == libc::SIG_ERR {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Kills every process of a process group.
///
/// # Errors
/// The error of kill(2): `ESRCH` if there is no such group. `EINVAL` for 0 and 1, with which kill(2) would signal other
/// processes.
pub fn kill_group(group: u32) -> io::Result<()> {
    let group = libc::pid_t::try_from(group).ok().filter(|group| *group > 1);
    let group = group.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: kill(2) touches no memory of ours.
    if unsafe { libc::kill(-group, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends SIGTERM to a child of this process that has not been waited for.
///
/// # Errors
/// The error of kill(2): `ESRCH` if there is no such process. `EINVAL` for a number that is not a pid, or that denotes
/// a process group.
pub fn send_term(child: i32) -> io::Result<()> {
    send(child, libc::SIGTERM)
}

/// Kills a process with SIGKILL.
///
/// # Errors
/// As [`send_term`].
pub fn send_kill(process: u32) -> io::Result<()> {
    send(number(process)?, libc::SIGKILL)
}

/// Requests an upgrade of a relay (SIGUSR2).
///
/// # Errors
/// As [`send_term`], and `EPERM` if the process belongs to another user.
pub fn send_upgrade(process: u32) -> io::Result<()> {
    send(number(process)?, libc::SIGUSR2)
}

fn number(process: u32) -> io::Result<i32> {
    i32::try_from(process).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn send(process: i32, signal: libc::c_int) -> io::Result<()> {
    if process <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: kill(2) touches no memory of ours.
    if unsafe { libc::kill(process, signal) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

//! The init process of a pid namespace and its ancestors: fork(2), and processes that wait for a child, forward
//! signals, reap orphans and exit with the status of the child (`pid_namespaces(7)`, signal(7)).

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

use libc::{c_int, pid_t};

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks. Returns the pid of the child in the parent, and `None` in the child.
///
/// # Errors
/// The error of fork(2); or the process has more than one thread, whose locks would stay locked in the child.
pub fn fork() -> io::Result<Option<pid_t>> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads cannot fork safely")));
    }
    // SAFETY: the only thread is this one, so the child finds memory and locks in order.
    let pid = check(unsafe { libc::fork() })?;
    Ok((pid != 0).then_some(pid))
}

/// Makes the kernel kill the program that `command` starts when the thread that started it ends.
pub fn kill_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let bind = move || {
        // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // SAFETY: getppid(2) takes nothing and cannot fail.
        let is_orphan = u32::try_from(unsafe { libc::getppid() }) != Ok(parent);
        if is_orphan { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
    };
    // SAFETY: between fork(2) and exec(3) the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(bind) };
}

/// Makes the program that `command` starts have the same addresses in every run (personality(2)).
pub fn disable_address_randomization(command: &mut Command) {
    // The constant is an int, and its value fits.
    const NO_RANDOMIZE: libc::c_ulong = libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: personality(2) takes a number.
    let disable = || check(unsafe { libc::personality(NO_RANDOMIZE) }).map(drop);
    // SAFETY: between fork(2) and exec(3) the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(disable) };
}

/// Powers the machine off (reboot(2)), for the init process of a virtual machine. Processes are not stopped and file
/// systems not synchronised.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_SYS_BOOT`.
pub fn power_off() -> io::Result<()> {
    // SAFETY: reboot(2) takes a number.
    check(unsafe { libc::reboot(libc::RB_POWER_OFF) }).map(drop)
}

/// Makes the kernel kill this process when its parent ends. `parent` is the read end of a pipe whose only write end the
/// parent holds. Returns false if the parent has already ended. (The pid of a parent outside the pid namespace cannot
/// be read.)
///
/// # Errors
/// The error of prctl(2) or poll(2).
pub fn kill_on_parent_exit(parent: impl AsFd) -> io::Result<bool> {
    // SAFETY: PR_SET_PDEATHSIG takes a signal number and no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
    let mut poll = libc::pollfd { fd: parent.as_fd().as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid pollfd, and no waiting.
    check(unsafe { libc::poll(&raw mut poll, 1, 0) })?;
    Ok(poll.revents & libc::POLLHUP == 0)
}

/// Blocked signals for [`ChildWaiter::wait_for_child`], so that none is lost between fork(2) and the wait.
pub struct ChildWaiter {
    watched: libc::sigset_t,
    previous: libc::sigset_t,
}

impl ChildWaiter {
    /// Blocks the signals. Call this before fork(2).
    ///
    /// # Errors
    /// The error of sigprocmask(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: a sigset_t is plain bits; sigemptyset(3) then gives it its meaning.
        let (mut watched, mut previous) = unsafe { (mem::zeroed::<libc::sigset_t>(), mem::zeroed()) };
        // SAFETY: `watched` and `previous` are valid; the signal numbers exist.
        unsafe {
            libc::sigemptyset(&raw mut watched);
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                libc::sigaddset(&raw mut watched, signal);
            }
            // If SIGCHLD is ignored, waitpid(2) returns no exit status.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            check(libc::sigprocmask(libc::SIG_BLOCK, &raw const watched, &raw mut previous))?;
        }
        Ok(Self { watched, previous })
    }

    /// Restores the previous signal mask; to be called in the child.
    ///
    /// # Errors
    /// The error of sigprocmask(2).
    pub fn restore_signals(self) -> io::Result<()> {
        // SAFETY: `previous` was filled in by the kernel.
        check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.previous, ptr::null_mut()) }).map(drop)
    }

    /// Starts the program of `command` with the previous signal mask. Otherwise the program would inherit the mask of
    /// the thread that starts it (execve(2)).
    pub fn restore_signals_in(&self, command: &mut Command) {
        let previous = self.previous;
        let restore = move || {
            // SAFETY: `previous` was filled in by the kernel.
            check(unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const previous, ptr::null_mut()) }).map(drop)
        };
        // SAFETY: between fork(2) and exec(3) the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(restore) };
    }

    /// Waits until `child` ends. Returns its exit code, or 128 plus the number of the signal that killed it. Until then
    /// all other children are reaped, and SIGTERM and SIGHUP are forwarded; the terminal sends SIGINT and SIGQUIT to
    /// the child itself.
    ///
    /// # Errors
    /// The kernel's error: `ECHILD` if there is no such child.
    pub fn wait_for_child(&self, child: pid_t) -> io::Result<u8> {
        loop {
            // SAFETY: `watched` is a valid set; the details of the signal are not asked for.
            match unsafe { libc::sigwaitinfo(&raw const self.watched, ptr::null_mut()) } {
                libc::SIGCHLD => {
                    if let Some(code) = reap_until(child)? {
                        return Ok(code);
                    }
                }
                signal @ (libc::SIGTERM | libc::SIGHUP) => {
                    // SAFETY: the child has not been waited for, so the pid is still its own.
                    unsafe { libc::kill(child, signal) };
                }
                _ => {}
            }
        }
    }
}

/// Reaps ended processes. Returns the exit code of `child` if it has ended.
fn reap_until(child: pid_t) -> io::Result<Option<u8>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is a valid integer that the kernel fills.
        match check(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) })? {
            0 => return Ok(None),
            pid if pid == child => return Ok(Some(exit_code(status))),
            _ => {}
        }
    }
}

fn exit_code(status: c_int) -> u8 {
    let code = if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(0), 0);
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(libc::SIGKILL), 137);
    }

    #[test]
    fn fork_is_refused_in_a_process_with_threads() {
        let error = fork().unwrap_err();
        assert!(error.to_string().contains("threads cannot fork safely"), "{error}");
    }
}

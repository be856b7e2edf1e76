//! The synchronisation state of the clock (adjtimex(2)). Nothing is adjusted.

use std::io;
use std::time::Duration;

/// The kernel's state of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// Whether a daemon such as ntpd, chrony or systemd-timesyncd synchronises the clock.
    pub synchronised: bool,
    /// Upper bound of the clock's error, as estimated by the kernel. The bound grows without synchronisation.
    pub max_error: Duration,
}

/// Reads the state of the clock; requires no privilege.
///
/// # Errors
/// The kernel's error: `EPERM` or `ENOSYS` if a container forbids the call.
pub fn read() -> io::Result<ClockStatus> {
    // SAFETY: a timex is integers only; all zero, its `modes` ask for nothing to be changed.
    let mut clock: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `clock` is a valid timex for the kernel to fill.
    let state = unsafe { libc::adjtimex(&raw mut clock) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    let synchronised = state != libc::TIME_ERROR && clock.status & libc::STA_UNSYNC == 0;
    Ok(ClockStatus { synchronised, max_error: Duration::from_micros(clock.maxerror.max(0).unsigned_abs()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_error_is_at_most_16_seconds() {
        // NTP_PHASE_LIMIT of the kernel: 16 s is the largest error of an unsynchronised clock.
        let clock = read().unwrap();
        assert!(clock.max_error <= Duration::from_secs(16), "{clock:?}");
        assert!(clock.synchronised || clock.max_error > Duration::ZERO, "{clock:?}");
    }
}

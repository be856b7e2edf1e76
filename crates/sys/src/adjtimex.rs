//! Whether the clock of this machine is kept right (adjtimex(2)); nothing is adjusted.

use std::io;
use std::time::Duration;

/// The kernel's state of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockStatus {
    /// Whether a daemon synchronises it, as ntpd, chrony and systemd-timesyncd do.
    pub synchronised: bool,
    /// Upper bound of its error, by the kernel's estimate: it grows without synchronisation.
    pub max_error: Duration,
}

/// Asks; takes no privilege.
///
/// # Errors
/// The kernel's error: `EPERM` or `ENOSYS` where a container forbids to ask.
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

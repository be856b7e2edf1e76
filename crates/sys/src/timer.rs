//! A one-shot timer with a resolution of microseconds (timerfd_create(2)).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// A timer whose descriptor is readable after it has expired.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that is not armed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: there is no memory involved.
        let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, so it has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Arms the timer to expire after `span`, at least 1 ns. An earlier expiry is cleared.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_after(&self, span: Duration) -> io::Result<()> {
        let no_interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero disarms a timer.
        let span = span.max(Duration::from_nanos(1));
        let value = libc::timespec {
            tv_sec: libc::time_t::try_from(span.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(span.subsec_nanos() as i32),
        };
        let timer_spec = libc::itimerspec { it_interval: no_interval, it_value: value };
        // SAFETY: the kernel reads `timer_spec`, which lives until after the call, and writes nothing.
        let result = unsafe { libc::timerfd_settime(self.as_raw_fd(), 0, &raw const timer_spec, std::ptr::null_mut()) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Instant;

    use super::*;
    use crate::poll::Poll;

    #[test]
    fn timer_fires_after_its_delay() {
        let timer = Timer::new().unwrap();
        let mut poll = Poll::new(vec![timer.0.as_fd()]);
        poll.wait(Some(Duration::ZERO)).unwrap();
        assert!(!poll.any_ready(), "the timer is not set");
        for span in [Duration::from_micros(100), Duration::from_millis(3)] {
            let set = Instant::now();
            timer.set_after(span).unwrap();
            poll.wait(Some(Duration::from_secs(5))).unwrap();
            assert!(poll.any_ready() && set.elapsed() >= span, "{:?}", set.elapsed());
        }
        timer.set_after(Duration::from_secs(1)).unwrap();
        poll.wait(Some(Duration::ZERO)).unwrap();
        assert!(!poll.any_ready(), "the new delay has replaced the expired timer");
    }
}

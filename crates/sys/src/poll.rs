//! Waits for descriptors, with timeouts in nanoseconds (ppoll(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poll<'a> {
    entries: Vec<libc::pollfd>,
    _descriptors: Vec<BorrowedFd<'a>>,
}

impl<'a> Poll<'a> {
    /// Returns a set of these descriptors, in this order.
    #[must_use]
    pub fn new(descriptors: Vec<BorrowedFd<'a>>) -> Self {
        let entry = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        Self { entries: descriptors.iter().map(entry).collect(), _descriptors: descriptors }
    }

    /// Waits until a descriptor is readable, or until `timeout` has passed (`None`: without limit). An interruption by
    /// a signal counts as a timeout.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into(),
            tv_nsec: libc::c_long::from(timeout.subsec_nanos() as i32),
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.entries.len() as libc::nfds_t;
        // SAFETY: the entries and the time live until after the call, and the descriptors are borrowed for our lifetime.
        let ready = unsafe { libc::ppoll(self.entries.as_mut_ptr(), count, time, std::ptr::null()) };
        if ready >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        self.entries.iter_mut().for_each(|entry| entry.revents = 0);
        if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
    }

    /// Returns whether any descriptor was ready when the last wait ended.
    #[must_use]
    pub fn any_ready(&self) -> bool {
        self.entries.iter().any(|entry| entry.revents != 0)
    }

    /// Returns whether the descriptor at `index` was readable, or had an error, when the last wait ended.
    #[must_use]
    pub fn is_ready(&self, index: usize) -> bool {
        self.entries[index].revents != 0
    }
}

/// Returns whether a descriptor is writable or has an error now (poll(2), `POLLOUT`).
///
/// # Errors
/// The kernel's error.
pub fn is_writable(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let mut entry = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: the entry is one, and lives until after the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(entry.revents != 0) }
}

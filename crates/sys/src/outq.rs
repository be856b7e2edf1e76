//! What a TCP socket still owes its peer (tcp(7), `SIOCOUTQ`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that were written and not yet acknowledged; a FIN counts as one.
///
/// # Errors
/// The kernel's: not a TCP socket.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int, and `bytes` is one.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

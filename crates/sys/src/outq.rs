//! The unacknowledged, unsent and unread bytes of a TCP socket (tcp(7): `SIOCOUTQ`, `SIOCOUTQNSD`, `SIOCINQ`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Returns the number of bytes that were written and not yet acknowledged; a FIN counts as one byte.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // The same value as SIOCOUTQ.
    ioctl_count(socket, libc::TIOCOUTQ)
}

/// Returns the number of bytes that were written and not yet sent.
///
/// # Errors
/// The kernel's error: not a TCP socket.
pub fn unsent(socket: BorrowedFd<'_>) -> io::Result<usize> {
    /// Not in every libc: linux/sockios.h.
    const SIOCOUTQNSD: libc::Ioctl = 0x894b;
    ioctl_count(socket, SIOCOUTQNSD)
}

/// Returns the number of bytes that have arrived and were not yet read.
///
/// # Errors
/// The kernel's error: the socket is listening.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    // The same value as SIOCINQ.
    ioctl_count(socket, libc::FIONREAD)
}

fn ioctl_count(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: each of these requests writes one int, and `bytes` is one.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;
    use ekiden_testing::tcp_pair;

    #[test]
    fn queued_bytes_are_counted_on_both_sides() {
        let (mut near, mut far) = tcp_pair();
        assert_eq!((unsent(near.as_fd()).unwrap(), unread(far.as_fd()).unwrap()), (0, 0));
        near.write_all(b"bytes").unwrap();
        // Waits until the bytes have arrived, and consumes nothing.
        far.peek(&mut [0]).unwrap();
        assert_eq!(unread(far.as_fd()).unwrap(), 5);
        far.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(unread(far.as_fd()).unwrap(), 0);
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 65_536]).is_ok() {}
        let (queued, unacked) = (unsent(near.as_fd()).unwrap(), unacknowledged(near.as_fd()).unwrap());
        assert!(queued > 0 && queued <= unacked, "{queued} of {unacked}");
    }
}

//! Moves bytes between sockets through a pipe, without copying them (splice(2), pipe(2), fcntl(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// A pipe used as a buffer inside the kernel.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

/// Capacities to try in this order, in bytes. The kernel rejects large ones with EPERM if the user has more than
/// `fs.pipe-user-pages-soft` pages in pipes.
const CAPACITIES: [libc::c_int; 3] = [1 << 20, 256 << 10, 64 << 10];

impl Pipe {
    /// Creates the largest pipe that the kernel grants, from 1 MiB down to 64 KiB.
    ///
    /// # Errors
    /// The error of pipe2(2) (out of descriptors), or EPERM when the user's quota of pipe pages is used up, so
    /// that a pipe would be too small to be worth its system calls.
    pub fn new() -> io::Result<Self> {
        let mut fds: [RawFd; 2] = [-1; 2];
        // SAFETY: `fds` has room for the two descriptors that pipe2(2) writes.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both descriptors are new and have no other owner.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        let capacity = CAPACITIES.iter().find_map(|size| set_capacity(&write, *size).ok());
        let capacity = capacity.ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
        Ok(Self { read, write, capacity })
    }

    /// Returns the capacity in bytes, which is reached if every page in the pipe is full.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Moves up to `most` bytes from `socket` into the pipe; 0 means end of stream.
    ///
    /// # Errors
    /// The kernel's. `WouldBlock` means that the socket is empty *or* that the pipe has no free slot; with an empty
    /// pipe, it means that the socket is empty.
    pub fn fill(&self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        splice(socket.as_raw_fd(), self.write.as_raw_fd(), most)
    }

    /// Moves up to `most` bytes from the pipe into `socket`.
    ///
    /// # Errors
    /// The kernel's. `WouldBlock` means that the send buffer of the socket is full, provided that the pipe is not
    /// empty.
    pub fn drain(&self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        splice(self.read.as_raw_fd(), socket.as_raw_fd(), most)
    }
}

/// Sends bytes that precede spliced bytes. `MSG_MORE` (send(2)) avoids a separate packet for these bytes.
///
/// # Errors
/// The kernel's error.
pub fn send_before_splice(socket: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_MORE | libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: `bytes` is valid for reads of its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

fn set_capacity(pipe: &OwnedFd, size: libc::c_int) -> io::Result<usize> {
    // SAFETY: F_SETPIPE_SZ takes an int and touches no memory of ours.
    let granted = unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, size) };
    usize::try_from(granted).map_err(|_| io::Error::last_os_error())
}

fn splice(from: RawFd, to: RawFd, most: usize) -> io::Result<usize> {
    // SPLICE_F_MORE is not set: unless more bytes are known to follow, it delays the last bytes.
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: null offsets are allowed for pipes and sockets; no memory of ours is involved.
    let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

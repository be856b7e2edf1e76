//! recv(2) into uninitialised memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Reads once, at most `max_bytes` bytes and at most the spare capacity, and appends the bytes to `buffer`. Returns
/// their number; 0 means the end of the stream.
///
/// # Errors
/// The kernel's error: EAGAIN without data, ECONNRESET, ...
pub fn append(socket: BorrowedFd<'_>, buffer: &mut Vec<u8>, max_bytes: usize) -> io::Result<usize> {
    let spare = buffer.spare_capacity_mut();
    let room = spare.len().min(max_bytes);
    // SAFETY: the pointer is that of `room` bytes of spare capacity, which recv(2) only writes to.
    let read = unsafe { libc::recv(socket.as_raw_fd(), spare.as_mut_ptr().cast(), room, 0) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: recv(2) has written the first `read` bytes behind the length, and no more than there was room for.
    unsafe { buffer.set_len(buffer.len() + read) };
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_are_appended_up_to_the_bound_and_the_capacity() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"abcdefgh").unwrap();
        let mut buffer = Vec::with_capacity(64);
        buffer.push(b'>');
        assert_eq!(append(far.as_fd(), &mut buffer, 3).unwrap(), 3);
        assert_eq!(buffer, b">abc");
        buffer.shrink_to_fit();
        buffer.reserve_exact(2);
        let room = buffer.capacity() - buffer.len();
        assert_eq!(append(far.as_fd(), &mut buffer, 100).unwrap(), room.min(5));
        drop(near);
        buffer.reserve(64);
        while append(far.as_fd(), &mut buffer, 100).unwrap() > 0 {}
        assert_eq!(buffer, b">abcdefgh");
    }
}

//! Bounds of the bytes of a connection that the kernel queues (tcp(7)): received bytes that this process has not read,
//! and written bytes that were not sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;

use libc::c_int;

use crate::option::{get, set};

/// Not in every libc: socket(7), Linux 5.14.
pub(crate) const SO_BUF_LOCK: c_int = 72;

/// `SOCK_SNDBUF_LOCK`: the kernel leaves the send buffer as it is.
pub(crate) const SNDBUF_LOCK: c_int = 1;

/// `SOCK_RCVBUF_LOCK`: the kernel leaves the receive buffer as it is.
pub(crate) const RCVBUF_LOCK: c_int = 2;

/// Returns whether the receive buffer has a fixed size instead of one that the kernel adapts.
///
/// # Errors
/// The kernel's error: `ENOPROTOOPT` before Linux 5.14.
pub fn is_receive_buffer_locked(socket: BorrowedFd<'_>) -> io::Result<bool> {
    get::<c_int>(socket, libc::SOL_SOCKET, SO_BUF_LOCK).map(|locks| locks & RCVBUF_LOCK != 0)
}

/// Returns the size of the receive buffer in bytes, in the unit of [`lock_receive_buffer`].
///
/// # Errors
/// The kernel's error.
pub fn receive_buffer(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let doubled: c_int = get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    Ok(doubled.cast_unsigned() / 2)
}

/// Returns the kernel memory of unread data, in bytes, including the overhead of packets (`SO_MEMINFO`,
/// linux/sock_diag.h).
///
/// # Errors
/// The kernel's error.
pub fn receive_memory(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SK_MEMINFO_RMEM_ALLOC is the first member, and the kernel truncates the array to the given length.
    let memory: [u32; 2] = get(socket, libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(memory[0])
}

/// Sets a fixed receive buffer, which bounds the bytes that the peer may send before this process has read. Queued
/// bytes remain. Data beyond the bound, within a window that was advertised before, is dropped on arrival.
///
/// # Errors
/// The kernel's error; `Unsupported` if the kernel would grant less (`net.core.rmem_max`), in which case nothing has
/// changed.
pub fn lock_receive_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // The kernel doubles the size, for its bookkeeping (socket(7)).
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes).is_ok() {
        return Ok(());
    }
    if bytes.cast_unsigned() > max_receive_buffer()? {
        return Err(io::ErrorKind::Unsupported.into());
    }
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)
}

/// Returns the largest receive buffer that is granted without privilege, as tested on a temporary socket.
fn max_receive_buffer() -> io::Result<u32> {
    static MAX_SIZE: OnceLock<u32> = OnceLock::new();
    if let Some(size) = MAX_SIZE.get() {
        return Ok(*size);
    }
    let socket = std::net::UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0))
        .or_else(|_| std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)))?;
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &(c_int::MAX / 2))?;
    let size = receive_buffer(socket.as_fd())?;
    Ok(*MAX_SIZE.get_or_init(|| size))
}

/// Lets the kernel adapt the size of the receive buffer again, starting at its current value.
///
/// # Errors
/// The kernel's error.
pub fn unlock_receive_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    let locks: c_int = get(socket, libc::SOL_SOCKET, SO_BUF_LOCK)?;
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &(locks & !RCVBUF_LOCK))
}

/// Returns the largest window that the kernel advertises to the peer, in bytes (`TCP_WINDOW_CLAMP`, tcp(7)).
///
/// # Errors
/// The kernel's error.
pub fn window_clamp(socket: BorrowedFd<'_>) -> io::Result<u32> {
    get::<c_int>(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP).map(c_int::cast_unsigned)
}

/// Sets [`window_clamp`]. A window that was advertised before stays.
///
/// # Errors
/// The kernel's error.
pub fn set_window_clamp(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &bytes.cast_signed())
}

/// Makes the socket readable only when this many bytes have arrived, or the end of the stream (`SO_RCVLOWAT`,
/// socket(7)). A poll does not wake before; a read returns the available bytes. The default is 1.
///
/// # Errors
/// The kernel's error.
pub fn set_receive_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.cast_signed())
}

/// Returns the number of unsent bytes at which the socket counts as full (`TCP_NOTSENT_LOWAT`); 0 for the host's
/// default.
///
/// # Errors
/// The kernel's error.
pub fn notsent_lowat(socket: BorrowedFd<'_>) -> io::Result<u32> {
    get::<c_int>(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT).map(c_int::cast_unsigned)
}

/// Sets [`notsent_lowat`].
///
/// # Errors
/// The kernel's error.
pub fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_receive_buffer_keeps_its_size() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = socket.as_fd();
        assert!(!is_receive_buffer_locked(socket).unwrap());
        for bytes in [receive_buffer(socket).unwrap(), 100_000, 50_000] {
            lock_receive_buffer(socket, bytes).unwrap();
            assert_eq!((receive_buffer(socket).unwrap(), is_receive_buffer_locked(socket).unwrap()), (bytes, true));
        }
        unlock_receive_buffer(socket).unwrap();
        assert!(!is_receive_buffer_locked(socket).unwrap());
    }

    #[test]
    fn max_receive_buffer_is_rmem_max() {
        let rmem_max = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap();
        assert_eq!(max_receive_buffer().unwrap(), rmem_max.trim().parse::<u32>().unwrap());
    }
}

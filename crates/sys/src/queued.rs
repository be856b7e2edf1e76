//! How much the kernel may hold of a connection's bytes (tcp(7)): those that the peer may send before we have read, and
//! those that we have written before the peer has room.

use std::io;
use std::os::fd::BorrowedFd;

use libc::c_int;

use crate::sockopt::{get, set};

/// Not in every libc: socket(7), Linux 5.14.
const SO_BUF_LOCK: c_int = 72;

/// `SOCK_RCVBUF_LOCK`: the kernel leaves the receive buffer as it is.
const RECEIVE: c_int = 2;

/// Whether the receive buffer has a fixed size, rather than one that the kernel chooses as bytes come and go.
///
/// # Errors
/// The kernel's: `ENOPROTOOPT` before Linux 5.14.
pub fn is_receive_fixed(socket: BorrowedFd<'_>) -> io::Result<bool> {
    get::<c_int>(socket, libc::SOL_SOCKET, SO_BUF_LOCK).map(|locks| locks & RECEIVE != 0)
}

/// Bounds what the peer may send before we have read, in bytes. What is there stays there.
///
/// # Errors
/// The kernel's; `Unsupported` when it grants less (`net.core.rmem_max`), and then that is the bound.
pub fn fix_receive(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    // The kernel doubles it, for its own bookkeeping (socket(7)).
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX).min(c_int::MAX / 2);
    if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes).is_err() {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes)?;
    }
    let granted: c_int = get(socket, libc::SOL_SOCKET, libc::SO_RCVBUF)?;
    if granted / 2 < bytes { Err(io::ErrorKind::Unsupported.into()) } else { Ok(()) }
}

/// Leaves the size of the receive buffer to the kernel again, from what it is now.
///
/// # Errors
/// The kernel's.
pub fn free_receive(socket: BorrowedFd<'_>) -> io::Result<()> {
    let locks: c_int = get(socket, libc::SOL_SOCKET, SO_BUF_LOCK)?;
    set(socket, libc::SOL_SOCKET, SO_BUF_LOCK, &(locks & !RECEIVE))
}

/// Lets the socket be readable only when so many bytes have arrived, or the end of the stream (`SO_RCVLOWAT`, socket(7)). Whoever
/// waits is not woken before; a read takes what there is. 1 is usual.
///
/// # Errors
/// The kernel's.
pub fn set_receive_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &bytes.cast_signed())
}

/// Most bytes that wait to be sent before the socket counts as full, `TCP_NOTSENT_LOWAT`; 0 for the host's default.
///
/// # Errors
/// The kernel's.
pub fn notsent_lowat(socket: BorrowedFd<'_>) -> io::Result<u32> {
    get::<c_int>(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT).map(c_int::cast_unsigned)
}

/// Sets [`notsent_lowat`].
///
/// # Errors
/// The kernel's.
pub fn set_notsent_lowat(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.cast_signed())
}

//! Access to socket options (getsockopt(2), setsockopt(2)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;

/// Types that getsockopt(2) and setsockopt(2) may read and write: plain numbers and arrays of them.
pub(crate) trait Plain: Default {}
impl Plain for c_int {}
impl Plain for u64 {}
impl Plain for [u8; 16] {}
impl Plain for [u32; 2] {}
impl Plain for [u32; 3] {}

pub(crate) fn set<T: Plain>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: a `Plain` value is `size_of::<T>()` initialised bytes without padding.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
    set_bytes(socket, level, name, bytes)
}

pub(crate) fn set_bytes(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
    let length = value.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes from `value`, which has as many.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn get<T: Plain>(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes into `value`, and any bytes make a valid `Plain`.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

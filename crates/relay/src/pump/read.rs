//! Reading from a socket whose readiness edge-triggered epoll reports once (epoll(7)).
//!
//! A read that returns fewer bytes than it asked for has emptied the socket, with one exception: it stopped at urgent data.
//! recv(2) returns the bytes before the urgent byte alone; the next read begins with the urgent byte. splice(2) answers
//! EAGAIN or end of stream at the urgent byte. Then more bytes are in the socket, and no further event announces them.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;

use ekiden_proto::wire::section::record::{HEADER_LENGTH, TAG_LENGTH};
use ekiden_sys::outq::unread;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Whether bytes have arrived that were not read. FIONREAD counts urgent data too, because `SO_OOBINLINE` is set on all
/// sockets (`sockopt::apply`). SIOCATMARK is not enough: a segment without data can move the mark between the read and
/// the ioctl.
pub fn has_unread(from: &TcpStream) -> bool {
    unread(from.as_fd()).is_ok_and(|bytes| bytes > 0)
}

/// Reads once, by a `read` of at most `room` bytes. A read that empties the socket clears the readiness, which saves a read
/// that would only return EAGAIN.
///
/// # Errors
/// That of `read`; `WouldBlock` when the socket is not ready.
pub fn read_once(from: &TcpStream, room: usize, read: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
    let mut emptied = None;
    let result = from.try_io(Interest::READABLE, || {
        let count = read()?;
        if count > 0 && count < room && !has_unread(from) {
            emptied = Some(count);
            // Not a failure: this is how a readiness is given back.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(count)
    });
    emptied.map_or(result, Ok)
}

/// The buffer holds 64 KiB of plaintext or one record of that size: large enough for cheap copying, and a bound for the
/// bytes that a slow receiver leaves in a session.
const SIZE: usize = HEADER_LENGTH + MAX_PLAIN + TAG_LENGTH;

/// Largest plain read, in bytes.
pub const MAX_PLAIN: usize = 64 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into_boxed_slice());
}

/// Lends the thread's buffer for the length of one call.
pub fn with<T>(use_it: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| use_it(scratch))
}

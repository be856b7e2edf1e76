//! Messages with a descriptor (unix(7), `SCM_RIGHTS`; cmsg(3)): the receiver gets a descriptor of the sender's open
//! socket, file or device.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use socket2::{Domain, Socket, Type};

/// Buffer for one descriptor and its header, with the alignment of `struct cmsghdr`.
type FdControl = [u64; 4];

/// Size of one descriptor, in bytes.
const FD_SIZE: u32 = size_of::<c_int>() as u32;

/// Returns the two nonblocking ends of a connection that preserves message boundaries and order (`SOCK_SEQPACKET`).
///
/// # Errors
/// The error of socketpair(2).
pub fn seqpacket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET.cloexec().nonblocking(), None)?;
    Ok((one.into(), other.into()))
}

/// Sends a message, optionally with a descriptor.
///
/// # Errors
/// The error of sendmsg(2): `WouldBlock` while too many messages wait at the receiver, `EPIPE` if the other end is
/// closed.
pub fn send(socket: impl AsFd, message: &[u8], fd: Option<impl AsFd>) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut control = FdControl::default();
    // SAFETY: all zeroes is a valid msghdr, with nothing in it.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    if let Some(fd) = &fd {
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: both only compute a length from a length.
        let (space, length) = unsafe { (libc::CMSG_SPACE(FD_SIZE), libc::CMSG_LEN(FD_SIZE)) };
        header.msg_controllen = space as _;
        // SAFETY: `control` has room for the header and one descriptor, and is aligned for the header.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = length as _;
            libc::CMSG_DATA(first).cast::<c_int>().write_unaligned(fd.as_fd().as_raw_fd());
        }
    }
    // SAFETY: the buffers that `header` points to live until after the call, and the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Receives a message and its descriptor, if any. A length of 0 means that the other end is closed.
///
/// # Errors
/// The error of recvmsg(2): `WouldBlock` if there is no message. `InvalidData` for a message longer than `buffer`, or
/// with more than one descriptor.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = FdControl::default();
    // SAFETY: all zeroes is a valid msghdr, with nothing in it.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it computes a length from a length.
    header.msg_controllen = unsafe { libc::CMSG_LEN(FD_SIZE) } as _;
    // SAFETY: the kernel fills the buffer and `control`, within the lengths given, and both live until after the call.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    let fd = received_fd(&header);
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((length, fd))
}

/// Returns the descriptor in a header that recvmsg(2) has filled in.
fn received_fd(header: &libc::msghdr) -> Option<OwnedFd> {
    // SAFETY: the kernel has set the length of the control data, and written whole headers.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const *header) };
    if first.is_null() {
        return None;
    }
    // SAFETY: a pointer that is not null is to a whole header inside the control data.
    let (level, kind) = unsafe { ((*first).cmsg_level, (*first).cmsg_type) };
    if (level, kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
        return None;
    }
    // SAFETY: the data follows the header in the control data, to all of which `first` is a pointer (one derived from a
    // reference to the header may only be used for the header). A message of this kind holds exactly one descriptor here.
    let descriptor = unsafe { libc::CMSG_DATA(first).cast::<c_int>().read_unaligned() };
    // SAFETY: the kernel has made the descriptor for this message, so it has no other owner.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{BorrowedFd, IntoRawFd};
    use std::time::Duration;

    use super::*;
    use crate::poll::Poll;

    const NO_FD: Option<BorrowedFd<'static>> = None;

    /// Makes no system call, so that Miri can run it. Regression: data was read through a reference to its header.
    #[test]
    fn a_descriptor_is_found_in_control_data() {
        let mut control = FdControl::default();
        // SAFETY: `msghdr` consists of pointers and numbers, and all zeroes is a valid empty header.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_control = control.as_mut_ptr().cast();
        assert!(received_fd(&header).is_none());
        // SAFETY: both only compute a length from a length.
        let (space, length) = unsafe { (libc::CMSG_SPACE(FD_SIZE), libc::CMSG_LEN(FD_SIZE)) };
        header.msg_controllen = space as _;
        let number = c_int::MAX;
        // SAFETY: `control` has room for the header and one descriptor, and is aligned for the header.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = length as _;
            libc::CMSG_DATA(first).cast::<c_int>().write_unaligned(number);
        }
        let found = received_fd(&header).unwrap();
        assert_eq!(found.into_raw_fd(), number, "no open descriptor, so it must not be closed");
    }

    #[test]
    fn passed_listening_socket_keeps_its_accept_queue() {
        let (here, there) = seqpacket_pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        send(&here, b"take it", Some(&listener)).unwrap();
        drop(listener);
        let mut buffer = [0; 100];
        let (length, fd) = receive(&there, &mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"take it");
        let listener = TcpListener::from(fd.unwrap());
        let (mut accepted, _) = listener.accept().unwrap();
        accepted.write_all(b"word").unwrap();
        let mut word = [0; 4];
        client.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word");
    }

    #[test]
    fn messages_keep_boundaries_and_end_when_the_sender_closes() {
        let (here, there) = seqpacket_pair().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        send(&here, b"one", NO_FD).unwrap();
        send(&here, b"two", NO_FD).unwrap();
        for word in [b"one", b"two"] {
            let (length, fd) = receive(&there, &mut buffer).unwrap();
            assert!(&buffer[..length] == word && fd.is_none());
        }
        send(&here, b"more than eight", NO_FD).unwrap();
        assert_eq!(receive(&there, &mut buffer).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(here);
        // A child process that another test starts also holds the descriptor until its execve(2) (close-on-exec).
        Poll::new(vec![there.as_fd()]).wait(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(receive(&there, &mut buffer).unwrap().0, 0);
        assert_eq!(send(&there, b"nobody", NO_FD).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

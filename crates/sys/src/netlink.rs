//! Netlink messages with attributes, to and from the kernel (netlink(7)).
//!
//! The kernel processes a request within send(2): when the call returns, the answer can be received.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::c_int;

/// Length of `struct nlmsghdr` and of `struct nlattr`, in bytes.
const MESSAGE_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;

/// The bits of an attribute's type that identify it; the others are flags of its encoding.
const ATTRIBUTE_TYPE: u16 = 0x3fff;

/// A request: the netlink header, the header of the family, and attributes.
pub(crate) struct NetlinkRequest(Vec<u8>);

impl NetlinkRequest {
    /// Returns a request without attributes. The length of `header` must be a multiple of four bytes.
    pub(crate) fn new(kind: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; MESSAGE_HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(header);
        Self(bytes).with_flags(libc::NLM_F_REQUEST)
    }

    /// Returns the request with one more attribute.
    pub(crate) fn with_attribute(mut self, kind: c_int, value: &[u8]) -> Self {
        self.0.extend(attribute(kind, value));
        self
    }

    /// Returns the request with one or more additional flags `NLM_F_*`.
    pub(crate) fn with_flags(mut self, flag: c_int) -> Self {
        let flags = u16::from_ne_bytes([self.0[6], self.0[7]]) | flag as u16;
        self.0[6..8].copy_from_slice(&flags.to_ne_bytes());
        self
    }

    fn into_bytes(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

/// A message from the kernel.
#[derive(Debug)]
pub enum Message<'a> {
    /// `NLMSG_ERROR`: the result of a request.
    Done(io::Result<()>),
    /// Any other message, without its header.
    Other(&'a [u8]),
}

/// A nonblocking netlink socket of one protocol.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Duplicates the descriptor of the socket.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Returns the socket of an open descriptor.
    pub(crate) const fn from_fd(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Opens a socket to `protocol`, one of `NETLINK_*`.
    ///
    /// # Errors
    /// The kernel's error: `EPROTONOSUPPORT` for a protocol that the kernel lacks.
    pub(crate) fn open(protocol: c_int) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: socket(2) takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a request. The kernel answers only if the request fails, or if it is a query.
    ///
    /// # Errors
    /// The error of send(2).
    pub(crate) fn send(&self, request: NetlinkRequest) -> io::Result<()> {
        let bytes = request.into_bytes();
        // SAFETY: the kernel reads as many bytes as there are. A socket without a peer sends to the kernel.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends a request, and receives its result.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn request(&self, request: NetlinkRequest) -> io::Result<()> {
        self.send(request.with_flags(libc::NLM_F_ACK))?;
        let mut buffer = [0; 1024];
        let mut done = Err(io::ErrorKind::InvalidData.into());
        self.receive(&mut buffer, |message| {
            if let Message::Done(result) = message {
                done = result;
            }
        })?;
        done
    }

    /// Receives one datagram, and passes the messages in it to `each`.
    ///
    /// # Errors
    /// The kernel's error: `WouldBlock` if there is no datagram.
    pub(crate) fn receive(&self, buffer: &mut [u8], each: impl FnMut(Message<'_>)) -> io::Result<()> {
        // SAFETY: the kernel writes at most `buffer.len()` bytes into it.
        let length = unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        messages(&buffer[..length]).for_each(each);
        Ok(())
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Returns the messages of a datagram, up to the first that is incomplete.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
        let message = bytes.get(..length)?;
        let kind = u16::from_ne_bytes([*message.get(4)?, *message.get(5)?]);
        let body = message.get(MESSAGE_HEADER..)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        if c_int::from(kind) != libc::NLMSG_ERROR {
            return Some(Message::Other(body));
        }
        let error = c_int::from_ne_bytes(*body.first_chunk()?);
        Some(Message::Done(if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error.wrapping_neg())) }))
    })
}

/// Encodes one attribute. The concatenation of several is the value of a nested attribute.
#[must_use]
pub fn attribute(kind: c_int, value: &[u8]) -> Vec<u8> {
    let length = (ATTRIBUTE_HEADER + value.len()) as u16;
    let mut bytes = [length.to_ne_bytes(), (kind as u16).to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(align(bytes.len()), 0);
    bytes
}

/// Returns the attributes of a message with their types, up to the first that is incomplete.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (c_int, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let attribute = bytes.get(..length)?;
        let kind = u16::from_ne_bytes([*attribute.get(2)?, *attribute.get(3)?]);
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((c_int::from(kind & ATTRIBUTE_TYPE), &attribute[ATTRIBUTE_HEADER..]))
    })
}

/// Rounds up to a multiple of four bytes, where messages and attributes begin.
const fn align(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        let request = NetlinkRequest::new(7, &[1, 2, 3, 4])
            .with_attribute(5, b"odd")
            .with_attribute(6, b"")
            .with_attribute(0x4007, b"even")
            .into_bytes();
        assert_eq!(request.len() % 4, 0);
        let mut got = Vec::new();
        for message in messages(&[request.clone(), request].concat()) {
            let Message::Other(body) = message else { panic!("an error") };
            got.extend(attributes(&body[4..]).map(|(kind, value)| (kind, value.to_vec())));
        }
        let one = [(5, b"odd".to_vec()), (6, vec![]), (7, b"even".to_vec())];
        assert_eq!(got, [one.clone(), one].concat());
    }

    /// Regression: the negation of `i32::MIN`, which has no positive counterpart, overflowed.
    #[test]
    fn every_error_number_is_reported() {
        for (number, error) in [(0, None), (-17, Some(17)), (c_int::MIN, Some(c_int::MIN))] {
            let mut request = NetlinkRequest::new(libc::NLMSG_ERROR as u16, &c_int::to_ne_bytes(number)).into_bytes();
            request.extend([0; 16]);
            let Some(Message::Done(done)) = messages(&request).next() else { panic!("no error") };
            assert_eq!(done.err().and_then(|error| error.raw_os_error()), error);
        }
    }

    #[test]
    fn invalid_lengths_end_the_iteration() {
        for bytes in [&[0_u8; 40][..], &[3; 40], &[0xff; 40], &[16], &[]] {
            assert_eq!(messages(bytes).count(), 0, "{bytes:?}");
            assert_eq!(attributes(bytes).count(), 0, "{bytes:?}");
        }
    }
}

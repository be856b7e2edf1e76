//! The way between two processes of one relay: messages, each with at most one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ekiden_sys::along;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::message::Message;

/// The longest message, in bytes: the networks behind one device.
const MAX_MESSAGE: usize = 64 << 10;

/// One end of it.
#[derive(Debug)]
pub(crate) struct Channel(UnixDatagram);

impl Channel {
    /// This end, of those that `along::pair` makes.
    ///
    /// # Errors
    /// The kernel's, when it cannot be watched.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixDatagram::from(end);
        socket.set_nonblocking(true)?;
        // A datagram socket is watched as one with ordered messages is.
        UnixDatagram::from_std(socket).map(Self)
    }

    /// Sends a message, and a descriptor along with it.
    ///
    /// # Errors
    /// The kernel's: `BrokenPipe` when the other process is gone.
    pub async fn send(&self, message: &Message, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.async_io(Interest::WRITABLE, || along::send(self.0.as_fd(), &text, along)).await
    }

    /// The next message, and the descriptor that came along; none when the other process is gone.
    ///
    /// # Errors
    /// The kernel's, or `InvalidData` for what is no message.
    pub async fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let received = self.0.async_io(Interest::READABLE, || along::receive(self.0.as_fd(), &mut buffer)).await;
        match received {
            Ok((0, _)) => Ok(None),
            Ok((length, along)) => Ok(Some((serde_json::from_slice(&buffer[..length])?, along))),
            // It has died with something of ours unread.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }
}

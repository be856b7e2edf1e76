//! The channel between two processes of one relay: messages, each with at most one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ekiden_sys::along;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::message::Message;

/// The largest message, in bytes: the networks behind one device.
const MAX_MESSAGE: usize = 64 << 10;

/// One end of the channel.
#[derive(Debug)]
pub(super) struct Channel(UnixDatagram);

impl Channel {
    /// The end that `along::pair` created.
    ///
    /// # Errors
    /// The socket cannot be polled.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixDatagram::from(end);
        socket.set_nonblocking(true)?;
        // tokio polls a datagram socket as it polls one with ordered messages.
        UnixDatagram::from_std(socket).map(Self)
    }

    /// Sends a message with an optional descriptor.
    ///
    /// # Errors
    /// As sendmsg(2): `BrokenPipe` if the other process is gone.
    pub async fn send(&self, message: &Message, along: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.async_io(Interest::WRITABLE, || along::send(self.0.as_fd(), &text, along)).await
    }

    /// Receives a message with its descriptor; `None` if the other process is gone.
    ///
    /// # Errors
    /// As recvmsg(2), or `InvalidData` for an invalid message.
    pub async fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let received = self.0.async_io(Interest::READABLE, || along::receive(self.0.as_fd(), &mut buffer)).await;
        match received {
            Ok((0, _)) => Ok(None),
            Ok((length, along)) => Ok(Some((serde_json::from_slice(&buffer[..length])?, along))),
            // The other process ended with unread messages.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }
}

//! Messages between the old and the new process of an upgrade, and the channel that carries them. A message carries at
//! most one descriptor. The versions of the processes may differ: unknown messages are ignored, and the names of
//! messages never change.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ekiden_sys::fd_passing;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// A message of the handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Message {
    /// The new process has started.
    Here {
        /// The process id of the sender.
        pid: u32,
        /// The version of the sender.
        version: String,
    },
    /// An inherited object; its descriptor is attached to the message.
    Thing {
        /// The kind of object.
        thing: Inherited,
    },
    /// All objects were sent.
    All,
    /// The new process serves.
    Serves,
    /// The new process cannot serve.
    Failed {
        /// Error message of the new process.
        why: String,
    },
    /// The new process takes over now.
    Go,
    /// A message that this version does not support.
    #[serde(other)]
    Unknown,
}

/// An object that is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Inherited {
    /// A listening socket; a listener may have several.
    Socket {
        /// The name of the listener.
        listener: String,
        /// The configured address, possibly with port 0.
        asked: SocketAddr,
    },
    /// The listener of the admin interface.
    Admin {
        /// Its address, as configured.
        at: String,
    },
    /// A queue of first packets.
    Queue {
        /// Number of the queue.
        number: u16,
    },
    /// The device of a tunnel.
    Device {
        /// The name of the device.
        name: String,
        /// The configured MTU, in bytes.
        mtu: u32,
        /// The networks routed into the device, with the source address for connections of this host's own programs to
        /// them.
        routed: Vec<(String, Option<IpAddr>)>,
    },
    /// An object that this version does not support.
    #[serde(other)]
    Unknown,
}

/// All objects that are handed over, with their descriptors.
pub type Inheritance = Vec<(Inherited, OwnedFd)>;

/// Maximum size of a message, in bytes. The longest message lists the networks behind one device.
const MAX_MESSAGE: usize = 64 << 10;

/// One end of the channel.
#[derive(Debug)]
pub(super) struct Channel(UnixDatagram);

impl Channel {
    /// Creates an end from a descriptor of `fd_passing::seqpacket_pair`.
    ///
    /// # Errors
    /// The socket cannot be registered for polling.
    pub fn new(end: OwnedFd) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixDatagram::from(end);
        socket.set_nonblocking(true)?;
        // tokio polls a `SOCK_SEQPACKET` socket in the same way as a datagram socket.
        UnixDatagram::from_std(socket).map(Self)
    }

    /// Sends a message with an optional descriptor.
    ///
    /// # Errors
    /// As sendmsg(2): `BrokenPipe` if the other process has closed the channel.
    pub async fn send(&self, message: &Message, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        self.0.async_io(Interest::WRITABLE, || fd_passing::send(self.0.as_fd(), &text, fd)).await
    }

    /// Receives a message with its descriptor; `None` if the other process has closed the channel.
    ///
    /// # Errors
    /// As recvmsg(2), or `InvalidData` for an invalid message.
    pub async fn receive(&self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let received = self.0.async_io(Interest::READABLE, || fd_passing::receive(self.0.as_fd(), &mut buffer)).await;
        match received {
            Ok((0, _)) => Ok(None),
            Ok((length, fd)) => Ok(Some((serde_json::from_slice(&buffer[..length])?, fd))),
            // The other process ended without reading all messages.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other version of the relay may be newer or older.
    #[test]
    fn unknown_messages_and_fields_are_ignored() {
        for (text, message) in [
            (r#"{"is":"go"}"#, Message::Go),
            (r#"{"is":"go","but":"slowly"}"#, Message::Go),
            (r#"{"is":"something","new":1}"#, Message::Unknown),
            (r#"{"is":"thing","thing":{"of":"timer","rings":2}}"#, Message::Thing { thing: Inherited::Unknown }),
            (
                r#"{"is":"thing","thing":{"of":"queue","number":7}}"#,
                Message::Thing { thing: Inherited::Queue { number: 7 } },
            ),
        ] {
            assert_eq!(serde_json::from_str::<Message>(text).unwrap(), message, "{text}");
        }
        let message = Message::Here { pid: 7, version: "1.2.3".to_owned() };
        let text = serde_json::to_string(&message).unwrap();
        assert_eq!(text, r#"{"is":"here","pid":7,"version":"1.2.3"}"#);
    }
}

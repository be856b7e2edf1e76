//! Where the emulator is plugged in: one end of a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ekiden_sys::packet::{self, Outgoing, PacketSocket, Received};

/// Room for frames that the emulator has not taken yet. With 64 KiB superpackets the kernel's usual 4 MiB are few.
const RECEIVE_BUFFER: usize = 64 << 20;

/// One end of a link.
#[derive(Debug)]
pub struct Port {
    socket: PacketSocket,
    /// Set once the kernel has refused a superpacket: from then on every packet goes by itself.
    pub refuses_superpackets: bool,
}

impl Port {
    /// Opens the interface.
    ///
    /// # Errors
    /// The kernel's, see [`PacketSocket::open`].
    pub fn open(interface: &str) -> io::Result<Self> {
        Ok(Self { socket: PacketSocket::open(interface, RECEIVE_BUFFER)?, refuses_superpackets: false })
    }

    /// The bytes between the `virtio_net_hdr` and the IP packet.
    #[must_use]
    pub fn link_header(&self) -> usize {
        14
    }

    /// Receives what is there, see [`packet::receive`].
    ///
    /// # Errors
    /// The kernel's; nothing there is no error.
    pub fn receive(&mut self, buffers: &mut [Box<[u8]>], received: &mut Vec<Received>) -> io::Result<()> {
        match packet::receive(self.socket.as_fd(), buffers, received) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    /// Sends frames in order; returns how many went.
    ///
    /// # Errors
    /// The kernel's, about the first of them.
    pub fn send(&mut self, frames: &[Outgoing<'_>]) -> io::Result<usize> {
        packet::send(self.socket.as_fd(), frames)
    }

    /// Frames the kernel dropped before the emulator saw them, since this was last asked.
    #[must_use]
    pub fn drops(&self) -> u64 {
        // The question cannot fail on a socket of this kind.
        self.socket.drops().unwrap_or(0)
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

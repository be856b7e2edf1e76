//! Ports of the emulator: packet sockets and TUN devices at the ends of links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ekiden_emulator::direction::FrameSender;
use ekiden_sys::packet::{self, OutgoingFrame, PacketSocket, ReceivedFrame};
use ekiden_sys::tun;

use crate::emulator::Port;

/// Receive buffer of a packet socket, in bytes. The kernel's usual 4 MiB hold few superpackets of 64 KiB.
const RECEIVE_BUFFER: usize = 64 << 20;

/// An open port at one end of a link.
#[derive(Debug)]
pub enum OpenPort {
    /// A packet socket on an interface.
    Interface(PacketSocket),
    /// A TUN device of a host.
    Tun(Arc<OwnedFd>),
}

impl OpenPort {
    /// Opens a packet socket or TUN device.
    ///
    /// # Errors
    /// [`PacketSocket::open`] failed.
    pub fn open(port: &Port) -> io::Result<Self> {
        match port {
            Port::Interface(name) => PacketSocket::open(name, RECEIVE_BUFFER).map(Self::Interface),
            Port::Tun(device) => Ok(Self::Tun(Arc::clone(device))),
        }
    }

    /// Returns the number of bytes between the `virtio_net_hdr` and the IP packet.
    #[must_use]
    pub const fn link_header_len(&self) -> usize {
        match self {
            Self::Interface(_) => 14,
            Self::Tun(_) => 0,
        }
    }

    /// Receives available frames without blocking, into `buffers` in order, and describes them in `received`.
    ///
    /// # Errors
    /// The receive failed. No available frame is not an error.
    pub fn receive(&mut self, buffers: &mut [Box<[u8]>], received: &mut Vec<ReceivedFrame>) -> io::Result<()> {
        let result = match self {
            Self::Interface(socket) => packet::receive(socket.as_fd(), buffers, received),
            Self::Tun(device) => tun::receive(device.as_fd(), buffers, received),
        };
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// Returns the number of frames that the kernel has dropped since the last call, before the emulator received them.
    /// The drops of a TUN device are counted at the host.
    #[must_use]
    pub fn take_drop_count(&self) -> u64 {
        match self {
            // PACKET_STATISTICS cannot fail on a packet socket.
            Self::Interface(socket) => socket.take_drops().unwrap_or(0),
            Self::Tun(_) => 0,
        }
    }
}

impl FrameSender for OpenPort {
    fn send(&mut self, frames: &[OutgoingFrame<'_>]) -> io::Result<usize> {
        match self {
            Self::Interface(socket) => packet::send(socket.as_fd(), frames),
            Self::Tun(device) => tun::send(device.as_fd(), frames),
        }
    }
}

impl AsFd for OpenPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Interface(socket) => socket.as_fd(),
            Self::Tun(device) => device.as_fd(),
        }
    }
}

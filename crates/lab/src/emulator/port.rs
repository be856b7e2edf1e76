//! Where the emulator is plugged in: one end of a link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ekiden_sys::packet::{self, OutgoingFrame, PacketSocket, ReceivedFrame};
use ekiden_sys::tun;

use crate::emulator::Port;

/// Room for frames that the emulator has not taken yet. With 64 KiB superpackets the kernel's usual 4 MiB are few.
const RECEIVE_BUFFER: usize = 64 << 20;

/// One end of a link, open.
#[derive(Debug)]
pub struct OpenPort {
    device: PortDevice,
    /// Set once the kernel has refused a superpacket: from then on every packet goes by itself.
    pub superpackets_refused: bool,
}

#[derive(Debug)]
enum PortDevice {
    Interface(PacketSocket),
    Tun(Arc<OwnedFd>),
}

impl OpenPort {
    /// Opens a port.
    ///
    /// # Errors
    /// The kernel's, see [`PacketSocket::open`].
    pub fn open(port: &Port) -> io::Result<Self> {
        let device = match port {
            Port::Interface(name) => PortDevice::Interface(PacketSocket::open(name, RECEIVE_BUFFER)?),
            Port::Tun(device) => PortDevice::Tun(Arc::clone(device)),
        };
        Ok(Self { device, superpackets_refused: false })
    }

    /// The bytes between the `virtio_net_hdr` and the IP packet.
    #[must_use]
    pub const fn link_header_len(&self) -> usize {
        match self.device {
            PortDevice::Interface(_) => 14,
            PortDevice::Tun(_) => 0,
        }
    }

    /// Receives what is there, without waiting: fills `buffers` in order, and says in `received` what came.
    ///
    /// # Errors
    /// The kernel's; nothing there is no error.
    pub fn receive(&mut self, buffers: &mut [Box<[u8]>], received: &mut Vec<ReceivedFrame>) -> io::Result<()> {
        let done = match &self.device {
            PortDevice::Interface(socket) => packet::receive(socket.as_fd(), buffers, received),
            PortDevice::Tun(device) => tun::receive(device.as_fd(), buffers, received),
        };
        match done {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    /// Sends frames in order; returns how many went.
    ///
    /// # Errors
    /// The kernel's, about the first of them.
    pub fn send(&mut self, frames: &[OutgoingFrame<'_>]) -> io::Result<usize> {
        match &self.device {
            PortDevice::Interface(socket) => packet::send(socket.as_fd(), frames),
            PortDevice::Tun(device) => tun::send(device.as_fd(), frames),
        }
    }

    /// Frames the kernel dropped before the emulator saw them, since this was last asked. A TUN device counts its own,
    /// at the host.
    #[must_use]
    pub fn take_drop_count(&self) -> u64 {
        match &self.device {
            // The question cannot fail on a socket of this kind.
            PortDevice::Interface(socket) => socket.take_drops().unwrap_or(0),
            PortDevice::Tun(_) => 0,
        }
    }
}

impl AsFd for OpenPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.device {
            PortDevice::Interface(socket) => socket.as_fd(),
            PortDevice::Tun(device) => device.as_fd(),
        }
    }
}

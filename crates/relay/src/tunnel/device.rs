//! A device, and the networks that are behind it.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use ekiden_proto::addr::Network;

/// A TUN device as one configuration has it.
#[derive(Debug)]
pub struct Device {
    /// The name of the interface.
    pub name: String,
    /// What is behind it.
    pub nets: Vec<Network>,
    file: Arc<File>,
}

impl Device {
    /// The device that `file` is, in front of `nets`.
    pub const fn new(name: String, nets: Vec<Network>, file: Arc<File>) -> Self {
        Self { name, nets, file }
    }

    /// Whether `ip` is behind it.
    #[must_use]
    pub fn has_network_of(&self, ip: IpAddr) -> bool {
        self.nets.iter().any(|net| net.contains(ip))
    }

    /// Has this host receive a packet as if it came in by the interface. Never waits.
    ///
    /// # Errors
    /// The kernel's: `EINVAL` for what is no packet, `EIO` while the interface is down, `EBADFD` when it has gone.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&*self.file).write(packet).map(drop)
    }

    /// Its descriptor once more, for one who waits for packets.
    ///
    /// # Errors
    /// The kernel's, when it is out of descriptors.
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

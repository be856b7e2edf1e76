//! A TUN device, and the networks behind it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_proto::wire::ip::{IpHeader, TCP};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::device_lanes::DeviceLanes;
use crate::events::metrics::tunnels::DropReason;
use crate::ingress::listener::ListenerContext;
use crate::ingress::shutdown::StopSignal;

/// A TUN device under one configuration.
#[derive(Debug)]
pub struct Device {
    /// The name of the interface.
    pub name: String,
    /// The networks behind the device.
    pub nets: Vec<Network>,
    file: Arc<File>,
}

impl Device {
    /// Returns the device with the descriptor `file` and the networks `nets`.
    pub const fn new(name: String, nets: Vec<Network>, file: Arc<File>) -> Self {
        Self { name, nets, file }
    }

    /// Returns whether `ip` is in a network behind the device.
    #[must_use]
    pub fn has_network_of(&self, ip: IpAddr) -> bool {
        self.nets.iter().any(|net| net.contains(ip))
    }

    /// Injects a packet into this host as if it had arrived on the interface. Never blocks.
    ///
    /// # Errors
    /// `EINVAL` for an invalid packet, `EIO` while the interface is down, `EBADFD` when the device is gone.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        (&*self.file).write(packet).map(drop)
    }

    /// Duplicates the descriptor, for a reader.
    ///
    /// # Errors
    /// The process has no free descriptor.
    pub fn try_clone_file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

/// Size of the read buffer, in bytes: fits the largest IP packet, whatever the MTU of the interface.
const MAX_PACKET: usize = 65_536;

/// Packets that are read before the other tasks of the thread run.
const PACKETS_PER_TURN: usize = 64;

/// Wakes the reader for a packet and for the removal of the device.
const READABLE_OR_ERROR: Interest = Interest::READABLE.add(Interest::ERROR);

/// Reads a device until the stop signal.
///
/// # Errors
/// The device was removed, or cannot be registered for polling.
pub async fn read_device(context: Rc<ListenerContext>, device: Arc<Device>, mut stop: StopSignal) -> io::Result<()> {
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a file never does")]
    let file = AsyncFd::with_interest(device.try_clone_file()?, READABLE_OR_ERROR)?;
    let reader = DeviceReader { device, lanes: DeviceLanes::new(context) };
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        let Some(readable) = stop.stop_first(file.ready(READABLE_OR_ERROR)).await else { return Ok(()) };
        match readable?.try_io(|file| reader.read_batch(file.get_ref(), &mut buffer)) {
            // The device is empty.
            Err(_) => {}
            Ok(done) => done?,
        }
        tokio::task::yield_now().await;
    }
}

struct DeviceReader {
    device: Arc<Device>,
    lanes: Rc<DeviceLanes>,
}

impl DeviceReader {
    /// Reads at most [`PACKETS_PER_TURN`] packets.
    ///
    /// # Errors
    /// `WouldBlock` when the device has no more packets, else the error of read(2).
    fn read_batch(&self, mut file: &File, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..PACKETS_PER_TURN {
            match file.read(buffer) {
                Ok(length) => self.dispatch(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn dispatch(&self, packet: &[u8]) {
        if !IpHeader::parse(packet).is_ok_and(|head| head.protocol == TCP) {
            self.lanes.send(packet);
        } else if self.device.write(packet).is_err() {
            // The kernel is out of memory or the interface is down: the packet is lost, as on any link.
            self.lanes.counters.record_dropped(DropReason::NotTaken, 1);
        }
    }
}

//! What the host sends into a device.

use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::wire::ip::{Head, TCP};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::Device;
use super::lanes::Lanes;
use crate::entrance::Entrance;
use crate::worker::Stop;

/// The longest packet there is, whatever the interface's MTU is made to be while we run.
const LONGEST: usize = 65_536;

/// How many are read before others on this thread have their turn.
const BATCH: usize = 64;

/// A packet, or that the device has gone.
const WANTED: Interest = Interest::READABLE.add(Interest::ERROR);

/// Reads a device until told to stop.
///
/// # Errors
/// The kernel's: the device has gone, or cannot be watched.
pub async fn run(entrance: Rc<Entrance>, device: Arc<Device>, mut stop: Stop) -> io::Result<()> {
    #[expect(deprecated, reason = "`register` is unsafe, for types that change their descriptor; a file never does")]
    let file = AsyncFd::with_interest(device.reading()?, WANTED)?;
    let lanes = Lanes::new(Rc::clone(&entrance));
    let reader = Reader { entrance, device, lanes };
    let mut buffer = vec![0; LONGEST];
    loop {
        let Some(readable) = stop.or(file.ready(WANTED)).await else { return Ok(()) };
        match readable?.try_io(|file| reader.batch(file.get_ref(), &mut buffer)) {
            // Nothing is left.
            Err(_) => {}
            Ok(done) => done?,
        }
        tokio::task::yield_now().await;
    }
}

struct Reader {
    entrance: Rc<Entrance>,
    device: Arc<Device>,
    lanes: Rc<Lanes>,
}

impl Reader {
    /// Reads a few packets.
    ///
    /// # Errors
    /// `WouldBlock` when there were not so many, else the kernel's.
    fn batch(&self, mut file: &File, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            match file.read(buffer) {
                Ok(length) => self.take(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&self, packet: &[u8]) {
        if !Head::read(packet).is_ok_and(|head| head.protocol == TCP) {
            self.lanes.carry(packet);
        } else if self.device.write(packet).is_err() {
            // The kernel has no memory for it, or the interface is down: a packet lost, as on any link.
            self.entrance.shared().metrics.dropped(&self.entrance.listener.name, "not_taken");
        }
    }
}

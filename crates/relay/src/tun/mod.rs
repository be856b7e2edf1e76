//! Tunnels: whole networks behind another relay, by a TUN device that the routes to them lead into.
//!
//! TCP goes back into the device as it came, so that it comes in by an interface of ours; there the rules of transparent
//! listeners catch its first packets, and the kernel ends it. What crosses are its bytes, never its segments. Everything
//! else crosses as packets, by lanes beside the sessions.

mod arrived;
mod carrier;
mod crossing;
mod device;
mod devices;
mod judge;
mod lane;
mod lanes;
mod queue;
mod reader;
mod roll;
mod seen;

use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};

use ekiden_proto::wire::ip::Head;

pub use arrived::serve;
pub use carrier::UNSENT;
pub use crossing::{Counts, Crossing};
pub use device::Device;
pub use devices::{Devices, TunnelError};
pub use reader::run;
pub use roll::Roll;

use judge::Dropped;

/// The devices that are in force now, for all threads.
#[derive(Debug, Default)]
pub struct Tunnels(RwLock<Vec<Arc<Device>>>);

impl Tunnels {
    /// From now on it is these.
    pub fn serve(&self, devices: Vec<Arc<Device>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = devices;
    }

    /// The device behind which `source` is, as its packets say that come from the other side.
    #[must_use]
    pub fn by_source(&self, source: IpAddr) -> Option<Arc<Device>> {
        let devices = self.0.read().unwrap_or_else(PoisonError::into_inner);
        devices.iter().find(|device| device.leads_to(source)).cloned()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Has this host receive a packet that has come from the other side. What is to be done `before` is done when nothing
    /// but the kernel could refuse it: the answer may come before this returns.
    ///
    /// # Errors
    /// Why it goes nowhere.
    fn take(&self, packet: &[u8], head: &Head, before: impl FnOnce()) -> Result<(), Dropped> {
        let device = self.by_source(head.source).ok_or(Dropped::Spoofed)?;
        // It would come back at once.
        if self.by_source(head.destination).is_some() {
            return Err(Dropped::Denied);
        }
        before();
        device.write(packet).map_err(|_| Dropped::NotTaken)
    }
}
